import { isDeepStrictEqual } from 'node:util';
import { dockerLogs } from '../containers/docker.js';
import type { MachineFacts } from '../contracts/facts.js';
import type { WatchingWorkplace } from '../install/pipeline/workplace.js';
import { messageOf } from '../lib/errors.js';
import type { Profile } from '../profile/types.js';
import type { JournalReader } from '../systemd/types.js';
import { entriesOfJournal, type LogEntry, readEntries } from '../verdict/log/entry.js';
import { type LogJudge, logJudges } from '../verdict/log/judge.js';
import type { ConfirmEffects, ContainerLog } from '../verdict/observation.js';
import { servingNow } from '../verdict/watch-present.js';
import { type Board, consumerBoard, type Record } from './board.js';
import type { Desired } from './desired.js';
import { judge as makeJudge } from './judge/judge.js';
import { keeper as makeKeeper } from './keeper/keeper.js';
import { pause } from './pacer.js';
import { allPlaces, watchPlaces } from './watcher.js';

interface ServedEffects {
  readonly work: WatchingWorkplace;
  readonly board: Board;
  readonly record: Record;
  readonly desired: () => Desired;
  readonly turn: <T>(task: () => Promise<T>) => Promise<T>;
  readonly packageManager: () => Promise<string | null>;
  readonly restart: (unit: string) => Promise<string>;
  readonly moveBack: () => void;
  readonly journal: (unit: string) => JournalReader;
  readonly seen: (facts: MachineFacts) => void;
  readonly settled: (facts: MachineFacts) => void;
  readonly signal: AbortSignal;
}

function serve(effects: ServedEffects, profile: Profile) {
  const { work, record, board } = effects;
  const end = new AbortController();
  const signal = AbortSignal.any([end.signal, effects.signal]);
  const shared = {
    work,
    record,
    board: consumerBoard(board, profile.name, profile.unit),
    desired: () => ({ ...effects.desired(), profile }),
    signal,
  };
  let places = watchPlaces(profile, null, null);
  let followed = false;
  const judge = makeJudge({
    ...shared,
    serving: (unit) => servingNow(profile, unit, signal),
    restart: effects.restart,
    moveBack: effects.moveBack,
  });
  const keeper = makeKeeper({
    ...shared,
    turn: effects.turn,
    packageManager: effects.packageManager,
    seen(facts) {
      places = watchPlaces(profile, facts, facts.manifest);
      effects.seen(facts);
    },
    settled(facts, outdated) {
      judge.settled(facts, outdated);
      effects.settled(facts);
    },
  });
  return {
    profile,
    keeper,
    judge,
    places: () => places,
    followLog() {
      if (followed) return;
      followed = true;
      const logs = {
        journal: effects.journal(profile.unit),
        containerLogs: (ending: AbortSignal) => containerLogs(work, profile.unit, ending),
      };
      const watch = (): Promise<void> =>
        watchConsumerLog(profile, logs, () => judge.tell({ kind: 'doubt' }), signal);
      void keepOn(watch, (why) => record.say(`the log of ${profile.unit} is not followed: ${why}`), signal);
    },
    stop: () => end.abort(),
  };
}

type Served = ReturnType<typeof serve>;

const firstRetryMs = 1_000;
const longestRetryMs = 60_000;

/** Restarts the work when it fails, after pauses that double; reports the first of consecutive failures to `complain`. */
export async function keepOn(
  work: () => Promise<void>,
  complain: (why: string) => void,
  signal: AbortSignal,
  pauseMs = firstRetryMs,
): Promise<void> {
  let next = pauseMs;
  while (!signal.aborted) {
    const begun = performance.now();
    try {
      await work();
      return;
    } catch (error) {
      if (signal.aborted) return;
      // After a longer run this is a new failure.
      if (performance.now() - begun > longestRetryMs) next = pauseMs;
      if (next === pauseMs) complain(messageOf(error));
    }
    await pause(next, signal);
    next = Math.min(next * 2, longestRetryMs);
  }
}

/** The interval for finding a detached container that does not run yet, or a unit that was edited to run one. */
const containerEveryMs = 5_000;
const unitEveryMs = 60_000;

async function* containerLogs(
  work: WatchingWorkplace,
  unit: string,
  signal: AbortSignal,
): AsyncIterable<ContainerLog> {
  const sleep = () => pause(containerEveryMs, signal);
  while (!signal.aborted) {
    yield* dockerLogs({ unit: () => work.unit(unit), sleep }, signal);
    await pause(unitEveryMs, signal);
  }
}

export function crowd(effects: ServedEffects) {
  let all: readonly Served[] = [];
  return {
    get all() {
      return all;
    },
    of: (unit: string) => all.find((one) => one.profile.unit === unit),
    /** Replaces the list, in this order; returns the new ones, without starting them. */
    set(profiles: readonly Profile[]): readonly Served[] {
      effects.board.setConsumers(profiles.map(({ name, unit }) => ({ profile: name, unit })));
      const before = all;
      all = profiles.map(
        (profile) => before.find((one) => isDeepStrictEqual(one.profile, profile)) ?? serve(effects, profile),
      );
      for (const one of before) if (!all.includes(one)) one.stop();
      return all.filter((one) => !before.includes(one));
    },
    places: () => allPlaces(all.map((one) => one.places())),
    async quiet() {
      await Promise.all(all.map((one) => one.keeper.quiet()));
      await Promise.all(all.map((one) => one.judge.quiet()));
    },
  };
}

export function turns(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (task) => {
    const mine = last.then(task);
    last = mine.catch(() => {});
    return mine;
  };
}

// Follows the consumer's log between verdicts, for lines about the GPU after the start was judged.

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
