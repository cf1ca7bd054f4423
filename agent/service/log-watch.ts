/** Follows the consumer's log between verdicts, for lines about the GPU after the start was judged. */

import type { Profile } from '../profile/types.js';
import type { JournalReader } from '../systemd/types.js';
import { entriesOfJournal, type LogEntry } from '../verdict/log/entry.js';
import { type LogJudge, logJudges } from '../verdict/log/judge.js';
import { readEntries } from '../verdict/log/lines.js';
import type { ConfirmEffects } from '../verdict/observation.js';

/** Shortest time between verdicts, for a consumer that logs an error with every request. */
const pauseMs = 10_000;

interface LogWatchEffects {
  readonly journal: JournalReader;
  /** The output of its detached container; a container that ends by itself prints nothing more. */
  readonly containerLogs: ConfirmEffects['containerLogs'];
}

/** Calls `onDoubt` when the log of a start has new findings. Costs a sleeping journalctl. */
export async function watchConsumerLog(
  profile: Profile,
  { journal, containerLogs }: LogWatchEffects,
  onDoubt: () => void,
  signal: AbortSignal,
): Promise<void> {
  let timer: NodeJS.Timeout | null = null;
  signal.addEventListener('abort', () => {
    if (timer !== null) clearTimeout(timer);
  });
  const doubt = (): void => {
    timer ??= setTimeout(() => {
      timer = null;
      onDoubt();
    }, pauseMs);
  };
  await Promise.all([
    followJournal(profile, journal, doubt, signal),
    followContainers(profile, containerLogs, doubt, signal),
  ]);
}

async function followJournal(
  profile: Profile,
  journal: JournalReader,
  doubt: () => void,
  signal: AbortSignal,
): Promise<void> {
  const cursor = await journal.tail(signal).catch(() => null);
  const newJudge = logJudges(profile);
  let listener = listen(newJudge(), doubt);
  let invocationId: string | null = null;
  for await (const entry of journal.follow({ unit: profile.unit, cursor, signal })) {
    if (entry.invocationId === null || entry.pid === 1) continue;
    if (entry.invocationId !== invocationId) {
      // systemd reports a new start; the code that follows that start judges its first lines.
      invocationId = entry.invocationId;
      listener = listen(newJudge(), doubt);
    }
    listener(entriesOfJournal(entry));
  }
}

async function followContainers(
  profile: Profile,
  containerLogs: LogWatchEffects['containerLogs'],
  doubt: () => void,
  signal: AbortSignal,
): Promise<void> {
  const newJudge = logJudges(profile);
  for await (const { bytes } of containerLogs(signal)) {
    const listener = listen(newJudge(), doubt);
    for await (const entry of readEntries(bytes)) listener([entry]);
  }
}

function listen(judge: LogJudge, doubt: () => void): (entries: readonly LogEntry[]) => void {
  let last = '';
  return (entries) => {
    for (const entry of entries) judge.push(entry);
    const { reason, load, loadError } = judge.findings();
    // If following began in the middle of a start, its devices were announced before; a load is enough.
    const said = reason === null || reason === 'no-discovery-line' ? '' : reason;
    const now = `${said} ${load?.outcome ?? ''} ${loadError === null ? '' : 'failed'}`.trim();
    if (now === last) return;
    last = now;
    if (now !== '') doubt();
  };
}
