/** The verdict as it is shown and written: what the host did since counts too. Pure. */
import type { Verdict } from '../../contracts/verdict.js';
import { oldVerdict } from '../../install/pipeline/status-view.js';
import { endedVerdict, lostVerdict, staleVerdict } from './lost-verdict.js';
import type { JudgeEffect, JudgeState, Next } from './state.js';

/** The consumer's log of a start that lost its host is no longer true, even when the host is back. */
export function shownVerdict({ verdict, lost, tainted, stale, ended }: JudgeState): Verdict | null {
  if (verdict === null) return null;
  if (ended) return endedVerdict(verdict);
  if (lost !== null) return lostVerdict(verdict, lost.reason);
  if (stale !== null) return oldVerdict(verdict, stale);
  return verdict.invocationId !== null && tainted.includes(verdict.invocationId)
    ? staleVerdict(verdict)
    : verdict;
}

/** Shows the verdict, and writes it to the journal when it is another than the last that was written. */
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
