/** `vgpu-agent explain-log`: the verdict for a log file, offline. */
import type { Profile } from '../../profile/types.js';
import type { LogFindings } from './findings.js';
import { createLogJudge } from './judge.js';
import { readEntries } from './lines.js';

/**
 * Judges a log of any length in bounded memory: a file, a pipe, `journalctl`'s
 * output in its short, cat or JSON formats. Rejects with the stream's error. `begin` receives a function that returns
 * the findings so far, for a long stream.
 */
export async function explainLog(
  profile: Profile,
  stream: AsyncIterable<Buffer | string>,
  begin: (soFar: () => LogFindings) => void = () => {},
): Promise<LogFindings> {
  const judge = createLogJudge(profile);
  begin(() => judge.findings());
  for await (const entry of readEntries(stream)) judge.push(entry);
  return judge.findings();
}
