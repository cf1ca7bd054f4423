/** The service's status: for systemctl, and as `vgpu-agent status --json` prints it. Pure. */
import type { HostFacts } from '../contracts/facts.js';
import type { Snapshot } from './board.js';
import { overview } from './overview.js';

/** For `systemctl status`. */
export function statusLine(now: Snapshot): string {
  const { phase, problem, verdict } = overview(now);
  const said =
    verdict === null ? 'no verdict yet' : `${verdict.mode}${verdict.simulated ? ' (simulated)' : ''}`;
  const away = now.host.answers === false ? '; the host does not answer' : '';
  return `${phase}, ${said}${away}${problem === null ? '' : `: ${problem.replace(/\s+/g, ' ')}`}`;
}

/** Null while nothing was looked at. */
export function statusDocument(now: Snapshot, version: string): object | null {
  const { view, phase, problem, pendingRestart, counters } = overview(now);
  const { host, configProblem, hostLosses, repairMilliseconds } = now;
  if (view === null) return null;
  const answer: HostFacts['answer'] =
    host.answers === null
      ? { kind: 'unasked' }
      : host.answers
        ? { kind: 'answers', device: host.detail, simulated: host.simulated, milliseconds: 0 }
        : { kind: 'unreachable', message: host.detail, word: null };
  const service = { version, state: phase, problem, configProblem, pendingRestart, ...counters };
  return {
    schema: 1,
    command: 'status',
    ...view,
    host: { ...view.host, answer },
    service: { ...service, hostLosses, repairMilliseconds },
  };
}
