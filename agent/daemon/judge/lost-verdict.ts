/** The verdict about a consumer whose host went away: what it said of itself before is not to be believed now. */
import type { Verdict } from '../../contracts/verdict.js';

/** At once, without asking the consumer: it would go on answering from the CPU and may still report GPU memory. */
export function lostVerdict(before: Verdict, reason: string): Verdict {
  const mode = before.mode === 'gpu' ? 'degraded' : before.mode;
  return {
    ...before,
    mode,
    reason: 'host-unreachable',
    evidence: [
      { kind: 'host', text: `the host does not answer: ${reason}`, weight: 'against', source: null },
      ...before.evidence,
    ],
    summary:
      before.mode === 'gpu'
        ? `${before.unit} began on the GPU, but its host does not answer now (${reason}): requests fail or are answered on the CPU.`
        : before.summary,
    next: 'start vgpu-hostd on the host; the service does the rest',
  };
}

/** The host is back, but this start lost what it had there: until it is started again it may be on the CPU. */
export function staleVerdict(before: Verdict): Verdict {
  if (before.mode !== 'gpu') return before;
  return {
    ...before,
    mode: 'degraded',
    reason: 'consumer-not-restarted',
    evidence: [
      { kind: 'host', text: 'the host was away during this start', weight: 'against', source: null },
      ...before.evidence,
    ],
    summary: `${before.unit} began on the GPU and lost its host meanwhile; the host is back, and it has to be started again to be sure.`,
    next: `sudo systemctl restart ${before.unit}`,
  };
}
