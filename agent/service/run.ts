/** The service: puts the parts together and runs until it is stopped. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { MachineFacts } from '../contracts/facts.js';
import { createConfigReader, readConfigText } from '../guest/agent-conf.js';
import { defaultShimDirectory } from '../guest/shim/store.js';
import { hostInUse, readHostInUse } from '../guest/vgpu-host/endpoint.js';
import { openWorkplace } from '../install/pipeline/open-workplace.js';
import { agentVersion } from '../lib/build-info.js';
import { VgpuError } from '../lib/errors.js';
import { jsonLine } from '../lib/json.js';
import { agentConf, agentUnit, packageRoot, serviceStarts } from '../lib/paths.js';
import { spawnRunner } from '../lib/run-command.js';
import { listProfiles, loadProfile } from '../profile/load.js';
import { managerOn, requireSystemd } from '../systemd/bus.js';
import { connectBus } from '../systemd/connection.js';
import { journalReader } from '../systemd/journal-reader.js';
import { journalWriter } from '../systemd/journal-writer.js';
import { logNamespace } from '../systemd/unit-facts.js';
import { askSessions } from '../verdict/watch-present.js';
import { Board, recordTo } from './board.js';
import { busName, serveBusObject, takeName } from './bus/object.js';
import { type BusWatch, watchBus } from './bus/watch.js';
import { declare } from './desired.js';
import { hostWatch, packageManagerAtWork, startHelper } from './helper.js';
import { hostsRules, hostsWatch, shownHosts, writeHostInUse } from './hosts.js';
import type { JudgeEvent } from './judge/state.js';
import { metricsOutput, metricsText } from './metrics.js';
import { overview, statusDocument, statusLine } from './overview.js';
import { engineMemory, memory, noteStart, pulse } from './own-process.js';
import { hostKnown, pause, steadyNow } from './pacer.js';
import { crowd, turns } from './served.js';
import { runElsewhere, sessionsAsker } from './sessions-asker.js';
import { watchDirectories } from './watcher.js';

/** A command holds the lock for seconds; an install that may roll back holds it until its verdict. */
const lockWaitMs = 120_000;
const restartTimeoutMs = 200_000;
const startWithinMs = 2_000;
const stopWithinMs = 1_500;
const watchdogPauseMs = 4_000;

/** Runs until `stopping` aborts. Throws a VgpuError when the bus is lost: systemd starts the service again then. */
async function runService(line: (text: string) => void, stopping: AbortController): Promise<void> {
  const { env } = process;
  requireSystemd();
  const { signal } = stopping;
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
  const elsewhere = runElsewhere(spawnRunner(env));
  const asker = sessionsAsker((question) => askSessions(elsewhere, question));
  const { work } = openWorkplace({
    connect: async () => manager,
    runner: elsewhere,
    lockWaitMs,
    journal: writer,
    askSessions: asker.ask,
  });

  const declared = await declare({
    text: readConfigText,
    read: createConfigReader(),
    manifest: () => work.manifest(),
    profileOf: loadProfile,
    board,
    record,
  });

  const helper = startHelper({
    program: path.join(defaultShimDirectory(), 'vgpu-watch'),
    inherited: env['VGPU_WATCH'],
    onHost: (event, place) => hosts.hear(place, event),
    onLost: (message) => line(message),
  });
  const crashes = noteStart(serviceStarts, Number(process.hrtime.bigint() / 1_000_000n));
  if (crashes.pauseMs > 0) {
    const seconds = crashes.pauseMs / 1000;
    const often = `the service ended unexpectedly ${crashes.recent} times within 10 minutes: it starts in ${seconds} s; journalctl -u ${agentUnit} shows why it ended`;
    line(often);
    // After READY=1, because consumers must not wait for this.
    helper.notify('READY=1', `STATUS=${often}`);
    const ticking = setInterval(() => helper.tick(), watchdogPauseMs);
    await pause(crashes.pauseMs, signal);
    clearInterval(ticking);
  }
  const host = hostWatch(board, record);
  const hosts = hostsWatch({
    rules: () => hostsRules(declared.now.config),
    use: (used) => {
      const problem = writeHostInUse(used);
      if (problem !== null) line(problem);
    },
    used: readHostInUse,
    tell(at, event, moved) {
      if (moved) host.left(at, event);
      else {
        if (board.now.host.endpoint !== at) host.moved(at);
        host.host(event);
      }
      tellJudges({ kind: 'host', host: event, movedTo: moved ? at : null, now: steadyNow() });
    },
    offer: (at) => tellJudges({ kind: 'preferred', endpoint: at }),
    show: (state) => board.update({ hosts: shownHosts(state) }),
    signal,
  });
  let endpoint = '';
  const watchHostOf = (facts: MachineFacts): void => {
    const wanted = facts.manifest === null ? '' : facts.host.endpoint;
    if (wanted === endpoint) return;
    endpoint = wanted;
    hosts.watch(endpoint);
    host.moved(endpoint === '' ? '' : hostInUse(endpoint, readHostInUse()));
    helper.watchHost(wanted === '' ? null : wanted);
  };

  const consumers = crowd({
    work,
    board,
    record,
    desired: () => declared.now,
    turn: turns(),
    packageManager: () => packageManagerAtWork(helper),
    restart: (unit) => manager.restart(unit, restartTimeoutMs),
    moveBack: () => hosts.take(),
    journal: (unit) => journalReader({ namespace: async () => logNamespace(await work.unit(unit)) }),
    seen(facts) {
      if (declared.follow(facts.manifest)) setConsumers();
      watcher.set(consumers.places());
      watchHostOf(facts);
    },
    settled(facts) {
      if (facts.manifest === null) void endWhenUninstalled();
    },
    signal,
  });
  const tellJudges = (event: JudgeEvent): void => {
    for (const { judge } of consumers.all) judge.tell(event);
  };
  const retryAll = (): void => {
    for (const { keeper } of consumers.all) keeper.retry();
    tellJudges({ kind: 'retry' });
  };
  const lookAll = (options: { readonly first?: boolean; readonly soon?: boolean } = {}): void => {
    for (const { keeper } of consumers.all) keeper.look(options);
  };
  const watcher = watchDirectories((file) => {
    if (file.startsWith(path.dirname(agentConf))) configChanged();
    lookAll();
  });

  /** After READY=1: consumers may be restarted and their logs are followed. */
  let ready = false;
  let units: BusWatch | null = null;
  const setConsumers = (): void => {
    const { consumers: wanted } = declared.now;
    const added = consumers.set(wanted);
    units?.units(wanted.map((one) => one.unit)).catch((error: unknown) => line(String(error)));
    for (const one of added) {
      if (!ready) continue;
      one.followLog();
      one.judge.tell({ kind: 'ready' });
      one.keeper.look();
    }
  };
  /** `uninstall` removes this service's unit before it stops the service; if killed in between, no unit is left. */
  const endWhenUninstalled = async (): Promise<void> => {
    if (env['NOTIFY_SOCKET'] === undefined) return;
    const unit = await manager.unit(agentUnit).catch(() => null);
    if (unit?.kind !== 'absent') return;
    line('everything was uninstalled; the service has nothing to do and ends');
    stopping.abort();
  };

  const metrics = async (): Promise<string> => {
    const microseconds = await helper.roundTrip(hosts.place);
    const roundTrip = microseconds === null ? null : microseconds / 1e6;
    return metricsText({ snapshot: board.now, version, roundTrip });
  };
  const output = metricsOutput(metrics, line);
  board.listen(() => output.changed());

  const reload = async (): Promise<void> => {
    helper.notify('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`);
    try {
      await declared.reload();
      output.configure(declared.now.config.metrics);
      setConsumers();
      hosts.reconsider();
      retryAll();
    } finally {
      helper.notify('READY=1');
    }
  };
  const configChanged = (): void => {
    if (!declared.isChanged()) return;
    reload().catch(() => {
      // Reported in the journal, on the bus and in status.
    });
  };
  process.on('SIGHUP', () => {
    reload().catch(() => {});
  });

  serveBusObject({
    bus,
    board,
    version,
    profiles: () => listProfiles().map((one) => one.name),
    xml: readFileSync(path.join(packageRoot(), 'units', 'org.vgpu.Agent1.xml'), 'utf8'),
    status: () => jsonLine(statusDocument(board.now, version)),
    metrics,
    verify: async () => {
      await Promise.all(consumers.all.map(({ judge }) => judge.verify()));
      return JSON.stringify(overview(board.now).verdict);
    },
    repair: async () => {
      retryAll();
      await consumers.quiet();
      const { phase, problem } = overview(board.now);
      return { state: phase, problem: problem ?? '' };
    },
    restart: () =>
      consumers.all.flatMap(({ judge, profile: { unit } }) => {
        const reason = judge.restartNow();
        return reason === null ? [] : [{ unit, reason }];
      }),
    reload,
  });
  units = await watchBus(bus, {
    unit: (name) => {
      const served = consumers.of(name);
      served?.judge.tell({ kind: 'unit-changed' });
      served?.keeper.look();
    },
    reloaded: () => lookAll(),
    resumed: () => {
      const text = 'the machine resumed from sleep; everything is inspected again';
      record.write({ kind: 'resumed', profile: null, unit: null, text });
      helper.tick();
      lookAll();
      tellJudges({ kind: 'doubt' });
    },
  });
  const noName = await takeName(bus, busName, (milliseconds) => pause(milliseconds, signal));
  if (noName !== null) line(`not on the bus: ${noName}`);

  const tidy = memory(engineMemory());
  const stopPulse = pulse({
    watchdog: env['WATCHDOG_USEC'],
    checkMinutes: () => declared.now.config.checkMinutes,
    tick() {
      helper.tick();
      tellJudges({ kind: 'tick' });
      tidy.tick();
    },
    check: () => lookAll(),
  });

  // Begin: first the files, then (for a moment) the host, then the consumer may start.
  setConsumers();
  watcher.set(consumers.places());
  lookAll({ first: true, soon: true });
  // A command that waits for our start may hold the lock that a repair needs.
  await Promise.race([
    Promise.all(consumers.all.map(({ keeper }) => keeper.quiet())),
    pause(startWithinMs, signal),
  ]);
  await hostKnown(board, declared.now.config.waitForHostSeconds * 1000, signal);
  output.configure(declared.now.config.metrics);
  const kept = declared.now.consumers.map((one) => `${one.unit} (profile ${one.name})`).join(', ');
  const text = `vgpu-agent ${version} keeps ${kept}: ${overview(board.now).phase}`;
  record.write({ kind: 'serviceStarted', profile: null, unit: null, text });
  helper.notify('READY=1', `STATUS=${statusLine(board.now)}`);
  let shown = statusLine(board.now);
  board.listen(() => {
    const now = statusLine(board.now);
    if (now === shown) return;
    shown = now;
    helper.notify(`STATUS=${now}`);
  });
  ready = true;
  for (const { judge, followLog } of consumers.all) {
    followLog();
    judge.tell({ kind: 'ready' });
  }

  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve());
  });
  helper.notify('STOPPING=1');
  stopPulse();
  watcher.close();
  output.close();
  asker.stop();
  await Promise.race([consumers.quiet(), new Promise((resolve) => setTimeout(resolve, stopWithinMs))]);
  if (lostBus === null) crashes.forget();
  record.write({ kind: 'serviceStopped', profile: null, unit: null, text: 'vgpu-agent stopped' });
  bus.close();
  helper.stop();
  if (lostBus !== null) throw lostBus;
}

/** Limits log lines, because another user's messages could cause an error each. */
const reportsPerMinute = 10;

/**
 * An unexpected error is logged, and the service continues: any user can send it messages, and if it ended at one, every
 * consumer would be unguarded. Continuing is safe because such an error leaves no inconsistent state: the service's state
 * is replaced as a whole (board, state machines), and its changes are in the transaction log. If the service hangs,
 * systemd's watchdog ends it.
 */
export function liveOn(line: (text: string) => void): void {
  let since = Number.NEGATIVE_INFINITY;
  let reports = 0;
  process.on('uncaughtException', (error: unknown, origin) => {
    if (performance.now() - since >= 60_000) {
      since = performance.now();
      reports = 0;
    }
    reports += 1;
    if (reports > reportsPerMinute) return;
    const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
    line(`unexpected error (${origin}), the service goes on; please report it: ${what}`);
    if (reports === reportsPerMinute) line('further unexpected errors of this minute are not logged');
  });
}

/** Runs until SIGTERM or SIGINT; SIGHUP reloads. Rejects as `runService` does. */
export async function serve(line: (text: string) => void): Promise<void> {
  // While journald restarts a write may fail; reporting that would fail, too.
  process.stderr.on('error', () => {});
  liveOn(line);
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => stop.abort());
  try {
    await runService(line, stop);
  } finally {
    // A child that does not end, or a wait for the lock, must not delay the stop.
    setTimeout(() => process.exit(), 50).unref();
  }
}
