/** The service: puts the parts together and runs until it is told to stop. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { agentVersion } from '../agent-version.js';
import { httpGet } from '../confirm/node-effects.js';
import { VgpuError } from '../errors.js';
import { defaultShimDirectory } from '../machine/shim-build.js';
import type { HostFacts, MachineFacts } from '../machine/types.js';
import { jsonLine } from '../output/json.js';
import { agentConf, agentUnit, packageRoot } from '../paths.js';
import { openWorkplace } from '../pipeline/open-workplace.js';
import { listProfiles, loadProfile } from '../profile/load.js';
import { spawnRunner } from '../run-command.js';
import { managerOn, requireSystemd } from '../systemd/bus.js';
import { connectBus } from '../systemd/connection.js';
import { journalReader } from '../systemd/journal-reader.js';
import { journalWriter } from '../systemd/journal-writer.js';
import { Board } from './board.js';
import { takeName } from './bus-name.js';
import { busName, serveBusObject } from './bus-object.js';
import { watchBus } from './bus-watch.js';
import { createConfigReader, defaultConfig, readConfigText } from './config.js';
import { type Desired, loadDesired } from './desired.js';
import { startHelper } from './helper.js';
import { judge as makeJudge } from './judge.js';
import { keeper as makeKeeper } from './keeper.js';
import { watchConsumerLog } from './log-watch.js';
import { memory } from './memory.js';
import { metricsText } from './metrics.js';
import { metricsOutput } from './metrics-output.js';
import { packageManagerAtWork } from './package-manager.js';
import { recordTo } from './record.js';
import { runElsewhere } from './run-elsewhere.js';
import { procSockets, servingNow } from './serving.js';
import { watchPlaces } from './watch-places.js';
import { watchDirectories } from './watcher.js';

export interface ServiceOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborts: stop. */
  readonly signal: AbortSignal;
  /** SIGHUP: calls the listener. */
  readonly onReload: (listener: () => void) => void;
  /** A line for whoever looks at standard error. */
  readonly line: (text: string) => void;
}

/** Without systemd's watchdog the host is looked at so often. */
const defaultTickMs = 5_000;
/** A command has the lock for seconds; an install that may roll back, until its verdict is there. */
const lockWaitMs = 120_000;
const restartTimeoutMs = 200_000;
const startWithinMs = 2_000;
const stopWithinMs = 1_500;

/** Runs until `signal` aborts. Throws a VgpuError when the bus is lost: systemd starts the service again then. */
export async function runService(options: ServiceOptions): Promise<void> {
  const { env, line } = options;
  requireSystemd();
  const stopping = new AbortController();
  const signal = AbortSignal.any([options.signal, stopping.signal]);
  let lostBus: VgpuError | null = null;

  const version = agentVersion();
  const bus = await connectBus();
  bus.closed.then(() => {
    if (signal.aborted) return;
    lostBus = new VgpuError('the system bus went away', {
      kind: 'failed',
      operation: 'run the service',
      remedy: 'systemctl status dbus',
    });
    stopping.abort();
  });
  const manager = managerOn(bus);
  const writer = journalWriter((entry) => line(entry.message));
  const record = recordTo(writer, line);
  const board = new Board();
  const { work } = openWorkplace({
    connect: async () => manager,
    runner: runElsewhere(spawnRunner(env)),
    lockWaitMs,
    journal: writer,
  });

  // Desired state.
  const readConfig = createConfigReader();
  let configText: string | null = null;
  let desired: Desired;
  const first = loadDesired(readConfigText(), await work.manifest(), readConfig, loadProfile);
  if (first.kind === 'loaded') desired = first.desired;
  else {
    record.write({ kind: 'configRefused', profile: null, unit: null, text: first.problem });
    const manifest = await work.manifest();
    const profile = loadProfile(manifest?.profile ?? 'ollama');
    desired = { config: defaultConfig, declared: false, profile };
    board.update({ configProblem: first.problem });
  }
  configText = readConfigText();
  board.update({ profile: desired.profile.name, unit: desired.profile.unit });

  // The host, systemd's notify socket, locks.
  const helper = startHelper({
    program: path.join(defaultShimDirectory(), 'vgpu-watch'),
    inherited: env['VGPU_WATCH'],
    onHost: (event) => judge.host(event),
    onLost: (message) => line(message),
  });
  let endpoint = '';
  const watchHostOf = (facts: MachineFacts): void => {
    const wanted = facts.manifest === null ? '' : facts.host.endpoint;
    if (wanted === endpoint) return;
    endpoint = wanted;
    board.update({ host: { endpoint, answers: null, simulated: false, detail: 'not asked yet' } });
    helper.watchHost(wanted === '' ? null : wanted);
  };

  const tidy = memory(globalThis.gc === undefined ? undefined : () => void globalThis.gc?.());
  const judge = makeJudge({
    work,
    board,
    record,
    desired: () => desired,
    serving: (unit) => servingNow(desired.profile, unit, { get: httpGet, sockets: procSockets }, signal),
    restart: (unit) => manager.restart(unit, restartTimeoutMs),
    signal,
  });
  const watcher = watchDirectories((file) => {
    if (file.startsWith(path.dirname(agentConf))) configChanged();
    keeper.look(file);
  });
  const keeper = makeKeeper({
    work,
    board,
    record,
    desired: () => desired,
    packageManager: () => packageManagerAtWork(helper),
    seen(facts) {
      watcher.set(watchPlaces(desired.profile, facts, facts.manifest));
      watchHostOf(facts);
      tidy.used();
    },
    settled(facts, outdated) {
      judge.settled(facts, outdated);
      if (facts.manifest === null) void endWhenUninstalled();
    },
    signal,
  });

  /** `uninstall` removes our unit before it stops us; killed in between, it leaves us without one. */
  const endWhenUninstalled = async (): Promise<void> => {
    if (env['NOTIFY_SOCKET'] === undefined) return;
    const unit = await manager.unit(agentUnit).catch(() => null);
    if (unit?.kind !== 'absent') return;
    line('uninstalled; nothing is left to keep');
    stopping.abort();
  };

  // The consumer's log.
  const journal = journalReader();
  let logOf: { readonly unit: string; readonly end: AbortController } | null = null;
  const followLog = (): void => {
    if (logOf?.unit === desired.profile.unit) return;
    logOf?.end.abort();
    const end = new AbortController();
    logOf = { unit: desired.profile.unit, end };
    const until = AbortSignal.any([end.signal, signal]);
    watchConsumerLog(desired.profile, journal, () => judge.doubt(), until).catch((error: unknown) => {
      if (!until.aborted) line(`the log of ${desired.profile.unit} is not followed: ${String(error)}`);
    });
  };

  // Metrics.
  const metrics = async (): Promise<string> => {
    const microseconds = await helper.roundTrip();
    const roundTrip = microseconds === null ? null : microseconds / 1e6;
    return metricsText({ snapshot: board.now, version, roundTrip });
  };
  const output = metricsOutput(metrics, line);
  board.listen((now, before) => {
    output.changed();
    if (now.verdict !== before.verdict) tidy.used();
  });

  // Reload.
  const reload = async (): Promise<void> => {
    helper.notify('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
    try {
      configText = readConfigText();
      const loaded = loadDesired(configText, await work.manifest(), readConfig, loadProfile);
      if (loaded.kind === 'refused') {
        board.update({ configProblem: loaded.problem });
        const text = `agent.json is refused, the former one stays in force: ${loaded.problem}`;
        record.write({ kind: 'configRefused', profile: null, unit: null, text });
        throw new VgpuError(loaded.problem, { kind: 'profile', operation: 'reload', path: agentConf });
      }
      desired = loaded.desired;
      const { profile } = desired;
      board.update({ configProblem: null, profile: profile.name, unit: profile.unit });
      record.write({ kind: 'configLoaded', profile: profile.name, unit: null, text: 'configuration loaded' });
      output.configure(desired.config.metrics);
      followLog();
      keeper.retry('reload');
      judge.retry();
    } finally {
      helper.notify('READY=1');
    }
  };
  const configChanged = (): void => {
    if (readConfigText() === configText) return;
    reload().catch(() => {
      // Told in the journal, on the bus and in status.
    });
  };
  options.onReload(() => {
    reload().catch(() => {});
  });

  serveBusObject({
    bus,
    board,
    version,
    profiles: () => listProfiles().map((one) => one.name),
    xml: readFileSync(path.join(packageRoot(), 'units', 'org.vgpu.Agent1.xml'), 'utf8'),
    status: () => jsonLine(statusDocument(board, version)),
    metrics,
    verify: async () => JSON.stringify(await judge.verify()),
    repair: async () => {
      keeper.retry('asked');
      judge.retry();
      await keeper.quiet();
      await judge.quiet();
      return { state: board.now.phase, problem: board.now.problem ?? '' };
    },
    reload,
  });
  await watchBus(bus, () => desired.profile.unit, {
    unit: () => {
      judge.unitChanged();
      keeper.look('unit');
    },
    reloaded: () => keeper.look('reloaded'),
    resumed: () => {
      const { profile } = desired;
      record.write({
        kind: 'resumed',
        profile: profile.name,
        unit: profile.unit,
        text: 'the machine woke up; everything is looked at again',
      });
      helper.tick();
      keeper.look('resume');
      judge.doubt();
    },
  });
  const noName = await takeName(bus, busName, (milliseconds) => pause(milliseconds, signal));
  if (noName !== null) line(`not on the bus: ${noName}`);

  // One timer for everything that is regular: the watchdog, the host, and now and then a full look.
  const watchdog = Number(env['WATCHDOG_USEC'] ?? '0') / 2_000;
  const tickMs = watchdog > 0 ? watchdog : defaultTickMs;
  let sinceCheck = 0;
  const timer = setInterval(() => {
    helper.tick();
    judge.tick();
    sinceCheck += tickMs;
    if (sinceCheck < desired.config.checkMinutes * 60_000) return;
    sinceCheck = 0;
    keeper.look('slow check');
  }, tickMs);

  // Begin: first the files, then (for a moment) the host, then the consumer may start.
  watcher.set(watchPlaces(desired.profile, null, null));
  keeper.look('start', { first: true, soon: true });
  // A command that waits for our start may hold the lock that a repair needs.
  await Promise.race([keeper.quiet(), pause(startWithinMs, signal)]);
  await hostKnown(board, desired.config.waitForHostSeconds * 1000, signal);
  output.configure(desired.config.metrics);
  followLog();
  const { profile } = desired;
  const text = `vgpu-agent ${version} keeps ${profile.unit} (profile ${profile.name}): ${board.now.phase}`;
  record.write({ kind: 'serviceStarted', profile: profile.name, unit: null, text });
  helper.notify('READY=1', `STATUS=${statusLine(board)}`);
  let shown = statusLine(board);
  board.listen(() => {
    const now = statusLine(board);
    if (now === shown) return;
    shown = now;
    helper.notify(`STATUS=${now}`);
  });
  judge.ready();

  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve());
  });
  helper.notify('STOPPING=1');
  clearInterval(timer);
  watcher.close();
  tidy.stop();
  output.close();
  await Promise.race([
    Promise.all([keeper.quiet(), judge.quiet()]),
    new Promise((resolve) => setTimeout(resolve, stopWithinMs)),
  ]);
  record.write({ kind: 'serviceStopped', profile: profile.name, unit: null, text: 'vgpu-agent stopped' });
  bus.close();
  helper.stop();
  if (lostBus !== null) throw lostBus;
}

/** Until the host answers, but not longer than `limitMs`; at once where there is none to ask. */
async function hostKnown(board: Board, limitMs: number, signal: AbortSignal): Promise<void> {
  if (board.now.host.endpoint === '' || board.now.host.answers === true) return;
  const known = new Promise<void>((resolve) => {
    board.listen((now) => {
      if (now.host.answers === true) resolve();
    });
  });
  const end = new AbortController();
  await Promise.race([known, pause(limitMs, AbortSignal.any([signal, end.signal]))]);
  end.abort();
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener('abort', done, { once: true });
  });
}

/** For `systemctl status`. */
function statusLine(board: Board): string {
  const { phase, problem, verdict, host } = board.now;
  const said =
    verdict === null ? 'no verdict yet' : `${verdict.mode}${verdict.simulated ? ' (simulated)' : ''}`;
  const away = host.answers === false ? '; the host does not answer' : '';
  return `${phase}, ${said}${away}${problem === null ? '' : `: ${problem.replace(/\s+/g, ' ')}`}`;
}

/** As `vgpu-agent status --json` prints it. */
function statusDocument(board: Board, version: string): object | null {
  const { view, host, phase, problem, configProblem, pendingRestart, counters } = board.now;
  if (view === null) return null;
  const answer: HostFacts['answer'] =
    host.answers === null
      ? { kind: 'unasked' }
      : host.answers
        ? { kind: 'answers', device: host.detail, simulated: host.simulated, milliseconds: 0 }
        : { kind: 'unreachable', message: host.detail };
  return {
    schema: 1,
    command: 'status',
    ...view,
    host: { ...view.host, answer },
    service: { version, state: phase, problem, configProblem, pendingRestart, ...counters },
  };
}
