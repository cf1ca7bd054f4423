/**
 * Looks again at a consumer that was observed: what it has loaded, whether it answers, and the host's sessions of its
 * processes. Costs milliseconds, where `observe` reads the log and runs a probe. `combine` judges the result of both.
 */
import { settledPresent } from './confirm.js';
import type { ConfirmEffects } from './effects.js';
import type { Observation, ReadinessSeen } from './observation.js';
import type { PresentSeen } from './present.js';
import { askAnswering, type PresentEffects } from './watch-present.js';

/** A busy consumer may miss one question. */
const silentMs = 4_000;

/** The observation of one start as it stands after the newest look. */
export interface Watched {
  readonly observation: Observation;
  /** Monotonic time since which the consumer does not answer; null: it answers, or is not asked. */
  readonly silentSince: number | null;
}

/**
 * The observation with what is known of this start from before its first entries were removed from the journal. A load that
 * the journal tells of since then is newer, and then the former log is not enough.
 */
export function withKnownLog(now: Observation, before: Observation | null): Observation {
  if (before === null || now.journalCut !== true || before.journalCut === true) return now;
  if (before.invocationId !== now.invocationId || before.journalError !== null) return now;
  if (now.log.load !== null && now.log.load.outcome !== before.log.load?.outcome) return now;
  return { ...now, log: { ...before.log, loadError: now.log.loadError }, journalCut: false };
}

function kernelsOf({ sessions }: PresentSeen): number {
  return sessions.kind === 'told' ? sessions.own.reduce((sum, { launches }) => sum + launches, 0) : 0;
}

export type LookEffects = PresentEffects & Pick<ConfirmEffects, 'clock' | 'stamp'>;

/** Never rejects for what the consumer or the host do. */
export async function lookAgain(
  { observation, silentSince }: Watched,
  effects: LookEffects,
  signal: AbortSignal,
): Promise<Watched> {
  const { profile, unit, log } = observation;
  const asked = effects.clock.now();
  const seen = await settledPresent(observation, effects, signal, 0);
  const question = { profile, unit, address: log.address };
  const answering = await askAnswering(question, seen.present.loaded, effects, signal);
  if (answering.kind !== 'silent') {
    const readiness: ReadinessSeen =
      answering.kind === 'answered' && observation.readiness.kind === 'silent'
        ? { kind: 'answered', url: answering.url, afterMs: effects.clock.now() - asked }
        : observation.readiness;
    return { observation: { ...observation, ...seen, readiness }, silentSince: null };
  }
  const since = silentSince ?? asked;
  const elapsedMs = effects.clock.now() - since;
  // Before its first answer a consumer may still be starting: that was judged when it was observed.
  const works = kernelsOf(seen.present) > kernelsOf(observation.present);
  const hung = elapsedMs >= silentMs && observation.end === 'settled' && !works;
  const changes = hung ? { readiness: answering, elapsedMs } : {};
  return { observation: { ...observation, ...seen, ...changes }, silentSince: since };
}
