/** Follows the consumer's journal between verdicts: lines that speak of the GPU after the start was judged. */
import { createLogJudge } from '../confirm/log/judge.js';
import type { Profile } from '../profile/types.js';
import type { JournalReader } from '../systemd/types.js';

/** A consumer that complains with every request must not have us judge it all the time. */
const pauseMs = 10_000;

/**
 * Calls `onDoubt` when the log of a start says something else than it said before. Ends when `signal` aborts.
 * Costs a journalctl that sleeps; nothing is read twice.
 */
export async function watchConsumerLog(
  profile: Profile,
  journal: JournalReader,
  onDoubt: () => void,
  signal: AbortSignal,
): Promise<void> {
  const cursor = await journal.tail().catch(() => null);
  let judge = createLogJudge(profile);
  let invocationId: string | null = null;
  let last = '';
  let timer: NodeJS.Timeout | null = null;
  signal.addEventListener('abort', () => {
    if (timer !== null) clearTimeout(timer);
  });
  for await (const entry of journal.follow({ unit: profile.unit, invocationId: null, cursor, signal })) {
    if (entry.invocationId === null || entry.pid === 1) continue;
    if (entry.invocationId !== invocationId) {
      // Of a new start systemd tells; its first lines are judged by the code that follows that start.
      invocationId = entry.invocationId;
      judge = createLogJudge(profile);
      last = '';
    }
    const source = `journal cursor ${entry.cursor}`;
    for (const text of entry.message.split('\n')) {
      judge.push({ text, source, invocationId, pid: entry.pid, speaker: 'consumer', truncated: false });
    }
    const { reason, load } = judge.findings();
    // We may have begun in the middle of a start: then its devices were announced before, and a load says all.
    const said = reason === null || reason === 'no-discovery-line' ? '' : reason;
    const now = `${said} ${load?.outcome ?? ''}`.trim();
    if (now === last) continue;
    last = now;
    if (now === '' || timer !== null) continue;
    timer = setTimeout(() => {
      timer = null;
      onDoubt();
    }, pauseMs);
  }
}
