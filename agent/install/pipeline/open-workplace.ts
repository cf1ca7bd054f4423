/** The Workplace of the running system: every effect is the real one. Nothing is opened before it is needed. */

import fs from 'node:fs/promises';
import { uptime } from 'node:os';
import { consumersOwn, containerOf, isContainer, isRunning } from '../../containers/container-unit.js';
import { dockerLogs, dockerPid, withComposed } from '../../containers/docker.js';
import type { Emit } from '../../contracts/events.js';
import type { Distribution, HostFacts } from '../../contracts/facts.js';
import type { Consumer } from '../../contracts/manifest.js';
import type { LoadedUnit, UnitFacts } from '../../contracts/unit.js';
import { agentConfCheck } from '../../guest/agent-conf.js';
import { ContentCache } from '../../guest/files/content.js';
import { Root } from '../../guest/files/root.js';
import { inspect } from '../../guest/inspect.js';
import { consumerDirectories } from '../../guest/libraries/candidates.js';
import { OwnerCache } from '../../guest/libraries/packages.js';
import { lookCloser } from '../../guest/look/closer-look.js';
import { defaultShimDirectory, readShimBuild } from '../../guest/shim/store.js';
import { withContainers } from '../../guest/unit/container-processes.js';
import { cgroupPids, readIdentities, readProcesses, readStat } from '../../guest/unit/processes.js';
import { outputTarget, placeAfterRestart, placeOfStart } from '../../guest/unit/start-record.js';
import { hostInUse, inOrderOfUse, readHostInUse } from '../../guest/vgpu-host/endpoint.js';
import { readHost } from '../../guest/vgpu-host/probe.js';
import { agentVersion } from '../../lib/build-info.js';
import { VgpuError } from '../../lib/errors.js';
import { agentUnit, storeCurrent, storeVersions, traceRecord } from '../../lib/paths.js';
import { type CommandRunner, spawnRunner } from '../../lib/run-command.js';
import { forUnit } from '../../profile/instance.js';
import { loadProfile, readableProfiles } from '../../profile/load.js';
import type { Profile } from '../../profile/types.js';
import { openManager } from '../../systemd/bus.js';
import { journalReader } from '../../systemd/journal-reader.js';
import { type JournalWriter, journalWriter } from '../../systemd/journal-writer.js';
import { runInUnit, runProbe } from '../../systemd/run-in-unit.js';
import type { Manager } from '../../systemd/types.js';
import { hostOfUnit } from '../../systemd/unit-environment.js';
import { logNamespace } from '../../systemd/unit-facts.js';
import { type LookEffects, lookAgain, observe } from '../../verdict/confirm.js';
import { decideVerdict } from '../../verdict/decide.js';
import { followFile, httpGet, stamps, systemClock } from '../../verdict/node-effects.js';
import type {
  ConfirmEffects,
  ConfirmOptions,
  Observation,
  SessionsAnswer,
} from '../../verdict/observation.js';
import {
  askSessions,
  type SessionsQuestion,
  servingNow,
  ticksPerSecond,
} from '../../verdict/watch-present.js';
import { watchProcesses } from '../../verdict/watch-processes.js';
import { apply, recover, rollback, settle } from '../apply/apply.js';
import { nodeDisk, systemEffects } from '../apply/disk.js';
import { underLock } from '../apply/lock.js';
import { readManifest } from '../apply/manifest.js';
import { recoverTrace } from '../apply/trace.js';
import { planInstall } from '../plan/install.js';
import { planUninstall } from '../plan/uninstall.js';
import { serviceState, serviceUp } from './agent-service.js';
import { tracing } from './trace.js';
import type { ConfirmRequest, DoctorWorkplace, Mark } from './workplace.js';

/** How long `systemctl restart` may take: a unit's own TimeoutStartSec and TimeoutStopSec are 90 s each. */
const restartTimeoutMs = 200_000;
/** The probe's own limit; connecting to the host is bounded inside it. */
const probeTimeoutMs = 15_000;
/** With kernels: a real driver compiles them first. */
const computeTimeoutMs = 60_000;
/** The time that an engine may take to make a container of a local image. */
const containerUpMs = 5_000;
const containerEveryMs = 100;
const quickQuestionMs = 2_000;
const hostQuestionMs = 5_000;
/** The note of where a log file begins is written before the service's own first line. */
const firstMessages = 1_000;
/** Another command is let finish: an install without a question takes seconds. */
const lockWaitMs = 10_000;

export interface OpenWorkplace {
  readonly work: DoctorWorkplace;
  close(): void;
}

export interface WorkplaceOptions {
  readonly connect?: () => Promise<Manager>;
  readonly runner?: CommandRunner;
  readonly lockWaitMs?: number;
  readonly journal?: JournalWriter;
  readonly askSessions?: (question: SessionsQuestion) => Promise<SessionsAnswer>;
}

export function openWorkplace(options: WorkplaceOptions = {}): OpenWorkplace {
  const { connect = openManager, runner = spawnRunner() } = options;
  const ask = options.askSessions ?? ((question) => askSessions(runner, question));
  const stamp = stamps();
  const disk = nodeDisk(runner);
  const contents = new ContentCache();
  const owners = new OwnerCache();
  const confProblem = agentConfCheck(loadProfile);
  let opening: Promise<Manager> | null = null;
  const manager = (): Promise<Manager> => {
    opening ??= connect().then((bus) => withContainers(bus, { pid: dockerPid, composed: withComposed }));
    return opening;
  };
  const journalOf = (unit: string) =>
    journalReader({ namespace: async () => logNamespace(await (await manager()).unit(unit)) });
  const applyEffects = async () =>
    systemEffects({ runner, manager: await manager(), agentVersion: agentVersion(), restartTimeoutMs });

  const confirmEffects = async (request: ConfirmRequest, emit: Emit): Promise<ConfirmEffects> => {
    const bus = await manager();
    const { unit } = request.profile;
    const hosts = request.facts.host.endpoint;
    const host = { flag: hosts, environment: undefined, guestConf: null };
    /** Reading a unit costs more than reading its processes, which are read ten times as often. */
    let seen = request.facts.unit;
    return {
      clock: systemClock,
      journal: journalReader({ namespace: async () => logNamespace(seen) }),
      emit,
      stamp,
      unit: async () => {
        seen = await bus.unit(unit);
        return seen;
      },
      pids: () => bus.processes(unit),
      processes: async (pids) => consumersOwn(seen, await readProcesses(pids, contents)),
      get: httpGet,
      probe: async (signal) => {
        const now = await bus.unit(unit);
        if (now.kind !== 'loaded') return { kind: 'not-run', message: `${unit} is ${now.kind}` };
        const program = `${storeCurrent}/vgpu-probe`;
        const compute = request.compute === true;
        const timeoutMs = compute ? computeTimeoutMs : probeTimeoutMs;
        const programInContainer = `${storeVersions}/${request.facts.shim.id}/vgpu-probe`;
        const limits = { timeoutMs, compute, signal };
        await containerUp(now, () => bus.processes(unit), signal);
        return runProbe({ unit: now, program, programInContainer, ...limits, runner, manager: bus });
      },
      sessions: async (signal) => sessionsOf(await bus.unit(unit), hosts, signal),
      host: () =>
        readHost(runner, {
          sources: { ...host, defaultSocketExists: false },
          shim: request.facts.shim,
          timeoutMs: hostQuestionMs,
        }),
      followFile,
      containerLogs: (signal) => dockerLogs({ unit: () => bus.unit(unit), sleep: systemClock.sleep }, signal),
    };
  };

  const firstSaid = async (
    unit: string,
    invocationId: string,
    signal: AbortSignal,
  ): Promise<readonly string[]> => {
    const messages: string[] = [];
    try {
      for await (const { message } of journalOf(unit).read({ unit, invocationId, signal })) {
        messages.push(message);
        if (messages.length >= firstMessages) break;
      }
    } catch {
      // Without a journal nothing is known of where the file began.
    }
    return messages;
  };

  const sessionsOf = async (unit: UnitFacts, hosts: string, signal: AbortSignal): Promise<SessionsAnswer> => {
    if (unit.kind !== 'loaded' || !isRunning(unit))
      return { kind: 'unknown', message: `${unit.name} does not run` };
    const program = `${storeCurrent}/vgpu-probe`;
    const pid = await speaker(unit, async () => (await manager()).processes(unit.name));
    if (pid === null)
      return { kind: 'unknown', message: `no process of the container of ${unit.name} is known` };
    return ask({ program, pid, host: hostOfUnit(unit, inOrderOfUse(hosts, readHostInUse())), signal });
  };

  /** Of the observed start only: its unit is not read again. */
  const lookEffects = async ({ unit, endpoint, hosts = endpoint }: Observation): Promise<LookEffects> => {
    const bus = await manager();
    return {
      clock: systemClock,
      stamp,
      get: httpGet,
      pids: async () =>
        (unit.kind === 'loaded' && !isContainer(unit) ? cgroupPids(unit.mainPid, unit.name) : null) ??
        bus.processes(unit.name),
      processes: async (pids) =>
        isContainer(unit) ? consumersOwn(unit, await readProcesses(pids, contents)) : readIdentities(pids),
      sessions: (signal) => sessionsOf(unit, hosts, signal),
    };
  };

  const placeToRead = async (
    unit: UnitFacts,
    { mark, signal }: ConfirmRequest,
  ): Promise<Mark['outputFile']> => {
    if (unit.kind !== 'loaded') return mark?.outputFile ?? null;
    if (mark !== null && mark.outputFile !== null) return placeAfterRestart(unit, mark);
    return placeOfStart(unit, (invocationId) => firstSaid(unit.name, invocationId, signal));
  };

  const observeStart = async (request: ConfirmRequest, emit: Emit): Promise<Observation> => {
    const effects = await confirmEffects(request, emit);
    const now = await effects.unit();
    const { mark, facts, ...asked } = request;
    const { profile } = asked;
    const loaded = now.kind === 'loaded' ? now : null;
    const options: ConfirmOptions = {
      ...asked,
      invocationId: loaded?.invocationId ?? null,
      cursor: mark?.cursor ?? null,
      restarts: mark === null ? null : (loaded?.restarts ?? null),
      libraryDirectories: libraryDirectories(profile, facts.distribution),
      ageMs: loaded === null ? null : await ageOf(loaded.mainPid),
      endpoint: hostInUse(facts.host.endpoint, readHostInUse()),
      hosts: facts.host.endpoint,
      outputFile: await placeToRead(now, request),
      looking: mark?.looking ?? null,
      composed: loaded !== null && containerOf(loaded)?.command === 'compose',
    };
    return observe(options, effects);
  };

  const work: DoctorWorkplace = {
    profile: (name) => loadProfile(name),
    profiles: () => readableProfiles().profiles,
    manifest: () => readManifest(disk),
    inspect: async (profile, host, { quick = false, ask = true, from } = {}) =>
      inspect(
        {
          root: '/',
          runner,
          manager: await manager(),
          readManifest: () => readManifest(disk),
          profileOf: readableProfile,
          confProblem,
          contents,
          owners,
        },
        profile,
        {
          endpoint: host,
          ...(from === undefined ? {} : { endpointFrom: from }),
          environmentHost: process.env['VGPU_HOST'],
          shimDirectory: defaultShimDirectory(),
          ask,
          ...(quick ? { questionTimeoutMs: quickQuestionMs } : {}),
        },
      ),
    planInstall,
    planUninstall,
    locked: async (command, task, { waitMs = options.lockWaitMs ?? lockWaitMs, signal } = {}) => {
      // Before the lock: where there is no systemd, nothing is left behind, not even a lock file.
      await manager();
      return underLock(disk, { command, waitMs, signal }, task);
    },
    recover: async (emit) => {
      const effects = await applyEffects();
      await recoverTrace(effects, emit);
      return recover(effects, emit);
    },
    traceLeft: async () => (await disk.inspect(traceRecord)).kind === 'file',
    recoverTrace: async (emit) => recoverTrace(await applyEffects(), emit),
    tracing: tracing(applyEffects, async (unit) => (await manager()).processes(unit), contents),
    apply: async (plan, options, emit) => apply(plan, await applyEffects(), emit, options),
    rollback: async (unit, emit) => rollback(await applyEffects(), emit, unit),
    settle: async (emit) => settle(await applyEffects(), emit),
    unit: async (name) => (await manager()).unit(name),
    mark: async (unit, signal) => {
      const bus = await manager();
      const looking = {
        clock: systemClock,
        pids: () => bus.processes(unit.name),
        processes: async (pids: readonly number[]) => consumersOwn(unit, await readProcesses(pids, contents)),
      };
      return {
        // Without a journal that can be read the verdict will say so; it is no reason not to install.
        cursor: await journalOf(unit.name)
          .tail(signal)
          .catch(() => null),
        outputFile: await outputFile(unit),
        invocationId: unit.kind === 'loaded' ? unit.invocationId : null,
        looking: watchProcesses(looking, signal),
      };
    },
    confirm: async (request, emit) => decideVerdict(await observeStart(request, emit)),
    serviceUp: async (unit, goal, signal) => {
      const bus = await manager();
      const { now, sleep } = systemClock;
      const effects = { unit: () => bus.unit(agentUnit), state: () => serviceState(unit), now, sleep };
      await serviceUp(effects, goal, signal);
    },
    observe: observeStart,
    lookAgain: async (watched, signal) => lookAgain(watched, await lookEffects(watched.observation), signal),
    serving: async (profile, signal) => {
      const unit = await (await manager()).unit(profile.unit);
      if (unit.kind !== 'loaded') return null;
      return servingNow(profile, unit, signal);
    },
    lookCloser: (profile, facts) =>
      lookCloser(
        {
          root: '/',
          contents,
          runner,
          runInUnit: async (command) =>
            runInUnit(command, { signal: new AbortController().signal, runner, manager: await manager() }),
          serviceState: () => serviceState(profile.unit),
        },
        profile,
        facts,
      ),
    journal: options.journal ?? journalWriter(),
  };
  return {
    work,
    close: () => {
      opening?.then(
        (open) => open.close(),
        () => {},
      );
    },
  };
}

/**
 * The process whose user connects to the host: for a container's unit the first one in the container, because the main
 * process is the engine's. Null: the container's processes are not known, and its sessions cannot be distinguished from
 * others.
 */
async function speaker(unit: LoadedUnit, pids: () => Promise<readonly number[]>): Promise<number | null> {
  if (!isContainer(unit)) return unit.mainPid;
  const [first] = consumersOwn(unit, await readProcesses(await pids(), new ContentCache()));
  return first?.pid ?? null;
}

async function ageOf(pid: number): Promise<number | null> {
  const stat = await readStat(`/proc/${pid}`);
  return stat === null
    ? null
    : Math.max(0, uptime() * 1000 - (Number(stat.startTicks) * 1000) / ticksPerSecond);
}

/** The engine's client runs before its container is there. */
async function containerUp(
  unit: LoadedUnit,
  pids: () => Promise<readonly number[]>,
  signal: AbortSignal,
): Promise<void> {
  if (!isContainer(unit)) return;
  const end = systemClock.now() + containerUpMs;
  while ((await speaker(unit, pids)) === null && systemClock.now() < end && !signal.aborted)
    await systemClock.sleep(containerEveryMs, signal);
}

/** A user's profile may have been taken away or spoilt since. */
function readableProfile({ profile, unit }: Consumer): Profile | null {
  try {
    return forUnit(loadProfile(profile), unit);
  } catch (error) {
    if (error instanceof VgpuError) return null;
    throw error;
  }
}

/**
 * The unit's own log file and its present end. A file that will be truncated is followed from its present end too:
 * until the service has emptied it, its content belongs to an earlier start.
 */
async function outputFile(unit: UnitFacts): Promise<Mark['outputFile']> {
  const target = unit.kind === 'loaded' ? outputTarget(unit) : null;
  if (target === null) return null;
  const size = await fs.stat(target.path).then(
    (found) => found.size,
    () => 0,
  );
  return { path: target.path, offset: size };
}

function libraryDirectories(profile: Profile, distribution: Distribution): number {
  return new Set(consumerDirectories(new Root('/'), profile, distribution)).size;
}

// Asks addresses for a host, with the shim that would be installed.

/** Each question is bounded by `timeoutMs`; no answer is an answer. Throws a VgpuError when the shim is not built. */
export function hostAsker(timeoutMs: number): (endpoint: string) => Promise<HostFacts['answer']> {
  const runner = spawnRunner();
  const contents = new ContentCache();
  return async (endpoint) => {
    const shim = await readShimBuild(defaultShimDirectory(), contents);
    const sources = { flag: endpoint, environment: undefined, guestConf: null, defaultSocketExists: false };
    return (await readHost(runner, { sources, shim, timeoutMs })).answer;
  };
}
