/** Looks at what the consumer has loaded and at the host's sessions of its processes. */

import type { ProcessIdentity } from '../contracts/facts.js';
import type { HostSession, SessionsReport } from '../contracts/sessions.js';
import type { UnitFacts } from '../contracts/unit.js';
import { messageOf } from '../lib/errors.js';
import { ticksPerSecond } from './host-sessions.js';
import type { ConfirmEffects, LoadedSeen, PresentSeen } from './observation.js';
import { loadedModels } from './present.js';
import { consumerUrls, type Listening } from './watch-readiness.js';

const answerWithinMs = 2_000;
/** The time for which a kernel or an allocation that the host refused is reported. */
const refusedWithinSeconds = 3_600;

export type PresentEffects = Pick<ConfirmEffects, 'get' | 'pids' | 'sessions'> & {
  processes(pids: readonly number[]): Promise<readonly ProcessIdentity[]>;
};

export async function lookAtPresent(
  question: Listening,
  effects: PresentEffects,
  signal: AbortSignal,
): Promise<PresentSeen> {
  const [loaded, sessions] = await Promise.all([
    askLoaded(question, effects, signal),
    askSessions(effects, signal),
  ]);
  return { loaded, sessions };
}

type Answering =
  | { readonly kind: 'answered'; readonly url: string }
  | { readonly kind: 'silent'; readonly url: string; readonly lastError: string }
  | { readonly kind: 'unasked' };

/** Does the consumer answer requests now? `loaded`, its current answer, proves it already. */
export async function askAnswering(
  question: Listening,
  loaded: LoadedSeen,
  effects: Pick<ConfirmEffects, 'get'>,
  signal: AbortSignal,
): Promise<Answering> {
  if (loaded.kind === 'told') return { kind: 'answered', url: loaded.url };
  const { readiness } = question.profile;
  let said: Answering = { kind: 'unasked' };
  if (readiness.kind !== 'http' || !mayAsk(question.unit)) return said;
  for (const url of consumerUrls(question, readiness.path)) {
    const answer = await effects.get(url, answerWithinMs, signal);
    if (answer.kind === 'answered') return { kind: 'answered', url };
    said = { kind: 'silent', url, lastError: answer.message };
  }
  return said;
}

/** A unit with a private network has its own loopback interface. */
function mayAsk(unit: UnitFacts): boolean {
  return unit.kind === 'loaded' && unit.activeState === 'active' && !unit.sandbox.privateNetwork;
}

async function askLoaded(
  question: Listening,
  effects: PresentEffects,
  signal: AbortSignal,
): Promise<LoadedSeen> {
  const { serving, readiness } = question.profile;
  let said: LoadedSeen = { kind: 'unasked' };
  if (serving?.sizes === undefined || readiness.kind !== 'http' || !mayAsk(question.unit)) return said;
  for (const url of consumerUrls(question, serving.path)) {
    const answer = await effects.get(url, answerWithinMs, signal);
    const models = answer.kind === 'answered' ? loadedModels(serving, answer.body) : null;
    if (models !== null) return { kind: 'told', url, models };
    const message = answer.kind === 'failed' ? answer.message : `its answer has no "${serving.list}"`;
    said = { kind: 'silent', url, message };
  }
  return said;
}

async function askSessions(effects: PresentEffects, signal: AbortSignal): Promise<PresentSeen['sessions']> {
  try {
    const answer = await effects.sessions(signal);
    if (answer.kind !== 'told') return answer;
    // After the host's answer: a process that has ended meanwhile no longer has a session.
    const processes = await effects.processes(await effects.pids());
    const { report, seconds } = answer;
    const own = sessionsOf(processes, report);
    // The host refused another start before.
    const { turnedAway } = report;
    const sinceStart = turnedAway.count > 0 && turnedAway.age <= seconds ? turnedAway : null;
    // Not limited to this start, because a program that ends over a refused kernel is restarted.
    const { refusedKernels, memory } = report;
    const refusedMemory = memory?.refused ?? null;
    return {
      kind: 'told',
      own,
      ...youngestOf(processes, seconds),
      processes: processes.length,
      others: report.sessions.length - own.length,
      turnedAway: sinceStart,
      refusedKernels:
        refusedKernels !== null && refusedKernels.age <= refusedWithinSeconds ? refusedKernels : null,
      memory:
        memory === null || refusedMemory === null || refusedMemory.age <= refusedWithinSeconds
          ? memory
          : { ...memory, refused: null },
    };
  } catch (error) {
    return { kind: 'unknown', message: messageOf(error) };
  }
}

/** The oldest is the main process, which began `seconds` ago. */
function youngestOf(processes: readonly ProcessIdentity[], seconds: number): { readonly youngest?: number } {
  const begins = processes.map(({ startTicks }) => Number(startTicks));
  if (begins.length === 0) return {};
  const after = (Math.max(...begins) - Math.min(...begins)) / ticksPerSecond;
  return { youngest: Math.max(0, Math.round(seconds - after)) };
}

export function sessionsOf(
  processes: readonly ProcessIdentity[],
  { sessions }: SessionsReport,
): readonly HostSession[] {
  return sessions.filter(({ claimed }) =>
    processes.some(({ pid, namespacePid, pidNamespace }) => {
      const known = claimed.pidNamespace !== 0 && pidNamespace !== undefined;
      return claimed.pid === (namespacePid ?? pid) && (!known || claimed.pidNamespace === pidNamespace);
    }),
  );
}
