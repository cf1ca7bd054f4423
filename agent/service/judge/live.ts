/** Looks between two verdicts: the newest evidence decides what is shown. Pure. */
import type { Reason } from '../../contracts/verdict.js';
import { freshMs } from '../../install/pipeline/status-view.js';
import { dropped, withoutMoot } from './restart.js';
import { show } from './shown.js';
import { after, type JudgeEvent, type JudgeState, type LiveSeen, type Next } from './state.js';

/** A verdict in full takes a probe: looks that keep changing do not have it made all the time. */
const lookDoubtMs = 30_000;
/** The journal or the host did not answer in time, as on a busy machine: another verdict in full may know more. */
const unanswered: ReadonlySet<Reason | null> = new Set(['journal-unavailable', 'host-slow']);

/** The state with what the host said. What it said before is forgotten only with the start. */
export function withLive(state: JudgeState, seen: LiveSeen, now: number): JudgeState {
  const { live } = state;
  if (seen.kind === 'unknown') {
    // A host that never told of this start, such as one of an old version, leaves the verdict to the log.
    const age = live === null ? 0 : now - live.toldAt;
    const stale = age <= freshMs ? null : `the host does not report its sessions: ${seen.message}`;
    return { ...state, stale };
  }
  const { sessions, launches, works } = seen;
  const same = live !== null && live.sessions === sessions && live.launches === launches;
  const changedAt = same ? live.changedAt : now;
  return { ...state, stale: null, live: { sessions, launches, works, toldAt: now, changedAt } };
}

export function looked(before: JudgeState, event: Extract<JudgeEvent, { kind: 'looked' }>): Next {
  const { verdict, live, now } = event;
  const was = before.verdict;
  if (was === null || was.invocationId !== verdict.invocationId) return { state: before, effects: [] };
  const told = withLive(before, live, now);
  const works = live.kind === 'told' && live.works;
  const next = works ? recovered(told, verdict.invocationId) : { state: told, effects: [] };
  return after(next, (state) => {
    const shown = after(withoutMoot({ ...state, verdict }), show);
    const changed = was.mode !== verdict.mode || was.reason !== verdict.reason;
    const doubtful = changed || unanswered.has(verdict.reason);
    if (!doubtful || now - state.lookDoubtedAt < lookDoubtMs) return shown;
    return {
      state: { ...shown.state, doubted: true, lookDoubtedAt: now },
      effects: [...shown.effects, { kind: 'look', when: 'soon' }],
    };
  });
}

/** The host runs its kernels: whatever it lost before, it has found it again without a restart. */
function recovered(state: JudgeState, invocationId: string | null): Next {
  const tainted = state.tainted.filter((id) => id !== invocationId);
  const survivor = state.survivor === invocationId ? null : state.survivor;
  const next = { ...state, tainted, survivor };
  return state.pending?.cause === 'host' ? dropped(next) : { state: next, effects: [] };
}
