/** The state of the service from all consumers: the worst one counts. Pure. */
import type { HostAnswer } from '../contracts/facts.js';
import type { Mode } from '../contracts/verdict.js';
import type { ConsumerView, StatusView } from '../contracts/views.js';
import { allInOne } from '../install/pipeline/status-view.js';
import type { ConsumerState, Counters, HostState, Phase, Snapshot } from './board.js';

export type Overview = ReturnType<typeof overview>;

export const phases: readonly Phase[] = [
  'degraded',
  'repairing',
  'waiting',
  'restart-pending',
  'starting',
  'settled',
  'idle',
];
const modes: readonly Mode[] = ['cpu', 'degraded', 'undetermined', 'gpu'];

export function overview({ consumers }: Snapshot) {
  const [first] = consumers;
  const several = consumers.length > 1;
  const verdicts = consumers.map((one) => one.verdict).filter((one) => one !== null);
  const [view, ...views] = consumers.map(viewOf).filter((one) => one !== null);
  const drift = consumers.flatMap((one) => one.view?.drift ?? []);
  const due = consumers.find((one) => one.pendingRestart !== null);
  const named = ({ unit }: ConsumerState, text: string): string => (several ? `${unit}: ${text}` : text);
  const problems = consumers.flatMap((one) => (one.problem === null ? [] : [named(one, one.problem)]));
  return {
    profile: first?.profile ?? '',
    unit: first?.unit ?? '',
    phase: phases.find((phase) => consumers.some((one) => phaseOf(one) === phase)) ?? 'starting',
    problem: problems.length === 0 ? null : problems.join('; '),
    verdict: modes.flatMap((mode) => verdicts.filter((one) => one.mode === mode))[0] ?? null,
    view: view === undefined ? null : allInOne([view, ...views]),
    drift: [...new Map(drift.map((one) => [`${one.change}\n${one.reason}`, one])).values()],
    pendingRestart:
      due?.pendingRestart === null || due === undefined
        ? null
        : { ...due.pendingRestart, reason: named(due, due.pendingRestart.reason) },
    counters: {
      checks: sum(consumers, 'checks'),
      drifts: sum(consumers, 'drifts'),
      repairs: sum(consumers, 'repairs'),
      failedRepairs: sum(consumers, 'failedRepairs'),
      restarts: sum(consumers, 'restarts'),
    },
  };
}

/** The keeper's phase; if the files are as installed, also the judge's pending work. */
export function phaseOf({ phase, pendingRestart }: Pick<ConsumerState, 'phase' | 'pendingRestart'>): Phase {
  return phase === 'settled' && pendingRestart !== null ? 'restart-pending' : phase;
}

function viewOf(one: ConsumerState): StatusView | null {
  const { view, problem, pendingRestart } = one;
  if (view === null) return null;
  const service = { state: phaseOf(one), problem, pendingRestart };
  return { ...view, consumers: view.consumers.map((one): ConsumerView => ({ ...one, service })) };
}

function sum(consumers: readonly ConsumerState[], name: keyof Counters): number {
  return consumers.reduce((total, one) => total + one.counters[name], 0);
}

function answerOf({ answers, detail, simulated }: HostState): HostAnswer {
  if (answers === null) return { kind: 'unasked' };
  return answers
    ? { kind: 'answers', device: detail, simulated, milliseconds: 0 }
    : { kind: 'unreachable', message: detail, word: null };
}

export function statusLine(now: Snapshot): string {
  const { phase, problem, verdict } = overview(now);
  const said =
    verdict === null ? 'no verdict yet' : `${verdict.mode}${verdict.simulated ? ' (simulated)' : ''}`;
  const away = now.host.answers === false ? '; the host does not answer' : '';
  return `${phase}, ${said}${away}${problem === null ? '' : `: ${problem.replace(/\s+/g, ' ')}`}`;
}

/** Null before the first inspection. */
export function statusDocument(now: Snapshot, version: string): object | null {
  const { view, phase, problem, pendingRestart, counters } = overview(now);
  const { host, configProblem, hostLosses, hostMoves, repairMilliseconds } = now;
  if (view === null) return null;
  const hosts = now.hosts.map((one) => ({
    endpoint: one.endpoint,
    inUse: one.inUse,
    answer: answerOf(one),
  }));
  const several = hosts.length === 0 ? {} : { hosts };
  const service = { version, state: phase, problem, configProblem, pendingRestart, ...counters };
  return {
    schema: 1,
    command: 'status',
    ...view,
    host: { ...view.host, answer: answerOf(host), ...several },
    service: {
      ...service,
      hostLosses,
      ...(hosts.length === 0 ? {} : { hostMoves }),
      repairMilliseconds,
    },
  };
}
