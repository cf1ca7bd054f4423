/** The verdict to show and log, which includes later events of the host. Pure. */
import type { Evidence, Verdict } from '../../contracts/verdict.js';
import { oldVerdict } from '../../install/pipeline/status-view.js';
import type { JudgeEffect, JudgeState, Next } from './state.js';

export function shownVerdict({ verdict, lost, tainted, stale, ended }: JudgeState): Verdict | null {
  if (verdict === null) return null;
  if (ended) return endedVerdict(verdict);
  if (lost !== null) return lostVerdict(verdict, lost.reason);
  if (stale !== null) return oldVerdict(verdict, stale);
  return verdict.invocationId !== null && tainted.includes(verdict.invocationId)
    ? staleVerdict(verdict)
    : verdict;
}

export function show(state: JudgeState): Next {
  const verdict = shownVerdict(state);
  const effects: JudgeEffect[] = [{ kind: 'show', verdict }];
  if (verdict === null) return { state, effects };
  const written = [verdict.mode, verdict.reason, verdict.simulated, verdict.invocationId].join();
  if (written === state.written) return { state, effects };
  return {
    state: { ...state, written },
    effects: [...effects, { kind: 'write', message: { kind: 'verdict', verdict } }],
  };
}

/** Immediate, without a query: the consumer continues on the CPU and may still report GPU memory. */
export function lostVerdict(before: Verdict, reason: string): Verdict {
  const wasGpu = before.mode === 'gpu';
  const summary = `${before.unit} started on the GPU, but its host does not answer now (${reason}): requests fail or are answered on the CPU.`;
  const others = before.evidence.filter(({ kind }) => kind !== 'host');
  return {
    ...before,
    mode: wasGpu ? 'degraded' : before.mode,
    reason: 'host-unreachable',
    evidence: [against('host', `the host does not answer: ${reason}`, null), ...others],
    summary: wasGpu ? summary : before.summary,
    next: 'start vgpu-hostd on the host; vgpu-agent.service then restarts the service if necessary',
  };
}

/** The host is back, but this start has lost its sessions: until its restart it may run on the CPU. */
export function staleVerdict(before: Verdict): Verdict {
  if (before.mode !== 'gpu') return before;
  const lost = against('host', 'the host did not answer for some time after this start', null);
  return {
    ...before,
    mode: 'degraded',
    reason: 'consumer-not-restarted',
    evidence: [lost, ...before.evidence],
    summary: `${before.unit} started on the GPU, then its host did not answer for some time. The host answers again; restart the service, because its sessions may be lost.`,
    next: `sudo systemctl restart ${before.unit}`,
  };
}

/** systemd waits before the next start; until then the consumer serves no request. */
function endedVerdict(before: Verdict): Verdict {
  return {
    ...before,
    mode: 'undetermined',
    simulated: false,
    devices: [],
    reason: 'unit-restarting',
    evidence: [against('unit', 'its process has ended; activating (auto-restart)', before.unit)],
    summary: `${before.unit} has ended, and systemd waits before it starts it again.`,
    next: `sudo journalctl --unit=${before.unit} --lines=100`,
  };
}

function against(kind: Evidence['kind'], text: string, source: string | null): Evidence {
  return { kind, text, weight: 'against', source };
}
