/** systemd's manager over D-Bus: what a unit is, reload, restart with the job's end awaited. */
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { containerOf } from '../containers/container-unit.js';
import type { DropIn, UnitFacts } from '../contracts/unit.js';
import { VgpuError } from '../lib/errors.js';
import { glob } from '../lib/glob.js';
import { namesUpTo, readLimited } from '../lib/trust/files.js';
import {
  addMatch,
  BusAwayError,
  type BusConnection,
  BusError,
  connectBus,
  connectSystemd,
} from './connection.js';
import { bagOf, count, type PropertyBag, structs, text, texts } from './properties.js';
import { watchExit } from './run-in-unit.js';
import type { JobResult, Manager } from './types.js';
import { execStart, unitFacts } from './unit-facts.js';

const destination = 'org.freedesktop.systemd1';
const managerPath = '/org/freedesktop/systemd1';
const managerInterface = 'org.freedesktop.systemd1.Manager';
const unitInterface = 'org.freedesktop.systemd1.Unit';
const serviceInterface = 'org.freedesktop.systemd1.Service';
/** A method may wait for a reload with all generators: as long as systemctl does. */
const workTimeoutMs = 180_000;
const askLoadedEveryMs = 200;

/** Throws `refused` when the machine was not booted with systemd, `failed` when its bus is silent. */
export async function openManager(options: { readonly address?: string } = {}): Promise<Manager> {
  requireSystemd();
  return managerOn(await connectBus(options.address));
}

/** A look has somebody else to ask. */
const lookingWithinMs = 3_000;

/**
 * For who only looks: if the bus cannot be reached, root asks systemd itself. `onDirect` gets the reason. Throws as
 * `openManager`.
 */
export async function openManagerToLook(onDirect: (why: VgpuError) => void): Promise<Manager> {
  requireSystemd();
  try {
    return managerOn(await connectBus(undefined, lookingWithinMs));
  } catch (error) {
    if (!(error instanceof BusAwayError)) throw error;
    const direct = await connectSystemd().catch(() => null);
    if (direct === null) throw error;
    onDirect(error);
    return managerOn(direct);
  }
}

/** sd_booted(3): the one sign that systemd is PID 1 here. */
export function requireSystemd(exists: (path: string) => boolean = existsSync): void {
  if (exists('/run/systemd/system')) return;
  throw new VgpuError('this machine was not booted with systemd: /run/systemd/system does not exist', {
    kind: 'refused',
    operation: 'find systemd',
    path: '/run/systemd/system',
    remedy: 'run vgpu-agent in the guest itself, not in a container or chroot of it',
  });
}

type Call = (member: string, signature?: string, body?: readonly unknown[]) => Promise<readonly unknown[]>;

export function managerOn(bus: BusConnection, reloadGraceMs = 10_000): Manager {
  const self = { destination, path: managerPath, interface: managerInterface };
  const manager: Call = (member, signature = '', body = []) => bus.call({ ...self, member, signature, body });
  const working: Call = (member, signature = '', body = []) =>
    bus.call({ ...self, member, signature, body, timeoutMs: workTimeoutMs });
  const enqueue = async (verb: string, name: string): Promise<string> =>
    String((await working(`${verb}Unit`, 'ss', [name, 'replace']))[0]);

  const properties = async (path: string, name: string): Promise<PropertyBag> => {
    const [bag] = await bus.call({
      destination,
      path,
      interface: 'org.freedesktop.DBus.Properties',
      member: 'GetAll',
      signature: 's',
      body: [name],
    });
    return bagOf(bag);
  };

  /** Has systemd read its units since that time of CLOCK_MONOTONIC? It is waited for. */
  const loadedSince = async (microseconds: bigint): Promise<boolean> => {
    const until = performance.now() + reloadGraceMs;
    for (;;) {
      const bag = await properties(managerPath, managerInterface).catch((): PropertyBag => ({}));
      if (count(bag, 'UnitsLoadFinishTimestampMonotonic') >= Number(microseconds)) return true;
      if (performance.now() >= until) return false;
      await sleep(askLoadedEveryMs);
    }
  };

  const subscribe = (): Promise<unknown> => manager('Subscribe').catch(ignoreSubscribed);
  const jobs = jobWatcher(bus, subscribe);

  const resetFailed = (name: string): Promise<unknown> =>
    working('ResetFailedUnit', 's', [name]).catch(ignoreNotLoaded);

  return {
    unit: (name) => explain(`read unit ${name}`, name, () => readUnit(name, manager, properties)),
    reload: () =>
      explain('reload systemd', undefined, async () => {
        const begunUs = process.hrtime.bigint() / 1000n;
        try {
          await working('Reload');
        } catch (error) {
          if (!isNoReply(error) || !(await loadedSince(begunUs))) throw error;
        }
      }),
    restart: (name, timeoutMs) =>
      explain(`restart ${name}`, name, async () => {
        // The start limit counts our restart too: without this, a consumer that crash-loops could not be
        // helped, and a second install within seconds would be refused by systemd.
        await resetFailed(name);
        return jobs.run(() => enqueue('Restart', name), name, timeoutMs);
      }),
    start: (name, timeoutMs) =>
      explain(`start ${name}`, name, () => jobs.run(() => enqueue('Start', name), name, timeoutMs)),
    stop: (name, timeoutMs) =>
      explain(`stop ${name}`, name, async () => {
        const result = await jobs.run(() => enqueue('Stop', name), name, timeoutMs);
        // A unit that had to be killed is failed, and systemd does not unload a failed unit (CollectMode=). It has
        // stopped even if that cannot be reset.
        await resetFailed(name).catch(() => {});
        return result;
      }),
    processes: (name) =>
      explain(`list processes of ${name}`, name, async () => {
        const [list] = await manager('GetUnitProcesses', 's', [name]);
        if (!Array.isArray(list)) return [];
        return list
          .map((process) => Number(Array.isArray(process) ? process[1] : Number.NaN))
          .filter(Number.isInteger);
      }),
    watchExit: (name) =>
      explain(`watch ${name}`, name, async () => {
        if (bus.direct)
          throw new VgpuError('systemd-run needs the system bus', {
            kind: 'failed',
            operation: `run ${name}`,
            path: name,
            remedy: 'start the bus (systemctl start dbus), then run the command again',
          });
        return watchExit(bus, name, subscribe);
      }),
    kill: (name) =>
      explain(`kill ${name}`, name, async () => {
        await manager('KillUnit', 'ssi', [name, 'all', constants.signals.SIGKILL]).catch(ignoreNotLoaded);
      }),
    close: () => bus.close(),
  };
}

async function readUnit(
  name: string,
  manager: Call,
  properties: (path: string, name: string) => Promise<PropertyBag>,
): Promise<UnitFacts> {
  // LoadUnit answers for units that do not exist too; GetUnit knows only loaded ones.
  const [object] = await manager('LoadUnit', 's', [name]);
  const path = String(object);
  const unit = await properties(path, unitInterface);
  const loaded = text(unit, 'LoadState') === 'loaded';
  const service = loaded && name.endsWith('.service') ? await properties(path, serviceInterface) : {};
  const fragment = text(unit, 'FragmentPath');
  const contentsOf = (files: readonly string[]): readonly DropIn[] =>
    files.map((file) => ({ path: file, content: contentOf(file) }));
  const container = containerOf({ execStart: execStart(service) });
  const files = [
    ...structs(service, 'EnvironmentFiles').map(([file]) => String(file)),
    ...(container?.environmentFiles ?? []),
  ];
  const named = files.filter((one) => one.startsWith('/')).flatMap(matching);
  return unitFacts({
    name,
    unit,
    service,
    dropIns: contentsOf(loaded ? texts(unit, 'DropInPaths') : []),
    environmentFiles: contentsOf(named).filter(({ content }) => content !== ''),
    fragment: loaded && fragment !== '' ? contentOf(fragment) : '',
  });
}

/** The files that EnvironmentFile= names: it may have wildcards, which systemd expands in this order (systemd.exec(5)). */
function matching(pattern: string): readonly string[] {
  return /[*?[]/.test(pattern) ? glob(disk, pattern).slice(0, mostEnvironmentFiles) : [pattern];
}

const mostEnvironmentFiles = 100;
const mostNames = 10_000;
const disk = {
  readdir(directory: string): readonly string[] {
    try {
      return namesUpTo(directory, mostNames);
    } catch {
      return [];
    }
  },
  exists: existsSync,
};

/** No unit file is near it. */
const maxUnitFileBytes = 1024 * 1024;

/**
 * Unit files may vanish between the bus's answer and our read; systemd then knows more than the disk. An
 * EnvironmentFile= may lie where the service's user can put anything.
 */
function contentOf(path: string): string {
  try {
    return readLimited(path, maxUnitFileBytes)?.toString('utf8') ?? '';
  } catch {
    return '';
  }
}

interface Waiting {
  resolve(result: JobResult): void;
  lost(): void;
}

/**
 * The subscription to JobRemoved comes before the request for the job, because the signal may come before the reply
 * that names the job. Jobs that end meanwhile are kept only while a caller waits.
 */
function jobWatcher(bus: BusConnection, subscribeToManager: () => Promise<unknown>) {
  const ended = new Map<string, JobResult>();
  const waiting = new Map<string, Waiting>();
  let running = 0;
  let subscribed: Promise<void> | null = null;
  bus.closed.then(() => {
    for (const one of waiting.values()) one.lost();
  });

  const subscribe = async (): Promise<void> => {
    const deaf = bus.onSignal((signal) => {
      if (signal.path !== managerPath || signal.member !== 'JobRemoved' || running === 0) return;
      const [, job, , result] = signal.body;
      ended.set(String(job), String(result));
      waiting.get(String(job))?.resolve(String(result));
    });
    const rule = `type='signal',sender='${destination}',path='${managerPath}',interface='${managerInterface}',member='JobRemoved'`;
    try {
      await addMatch(bus, rule);
      await subscribeToManager();
    } catch (error) {
      // The next job tries again: a failure is not kept for the connection's life.
      deaf();
      subscribed = null;
      throw error;
    }
  };

  const result = async (job: string, unit: string, timeoutMs: number): Promise<JobResult> => {
    const early = ended.get(job);
    if (early !== undefined) return early;
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<JobResult>((resolve, reject) => {
        const look = `look at \`systemctl status ${unit}\``;
        const gone = `the system bus went away while ${unit} was restarting`;
        const lost = () => reject(jobFailed(unit, gone, `${look}, then run the command again`));
        waiting.set(job, { resolve, lost });
        const late = `systemd has not restarted ${unit} within ${timeoutMs / 1000} s`;
        timer = setTimeout(
          () => reject(jobFailed(unit, late, `${look} and \`systemctl list-jobs\``)),
          timeoutMs,
        );
      });
    } finally {
      clearTimeout(timer);
      waiting.delete(job);
    }
  };

  return {
    /** Requests a job by `enqueue`, which resolves with its object path, and waits for its result. */
    async run(enqueue: () => Promise<string>, unit: string, timeoutMs: number): Promise<JobResult> {
      subscribed ??= subscribe();
      await subscribed;
      running += 1;
      try {
        return await result(await enqueue(), unit, timeoutMs);
      } finally {
        running -= 1;
        if (running === 0) ended.clear();
      }
    },
  };
}

/** For a failure that is expected: throws other ones again. */
const ignore =
  (type: string) =>
  (error: unknown): readonly unknown[] => {
    if (error instanceof BusError && error.type === `org.freedesktop.systemd1.${type}`) return [];
    throw error;
  };

/** The connection is shared: another part may have subscribed it already. */
const ignoreSubscribed = ignore('AlreadySubscribed');
const ignoreNotLoaded = ignore('NoSuchUnit');

/**
 * A reload may end without a reply, because systemd restores its bus connection during it: cockpit ignores that too
 * (https://bugzilla.redhat.com/show_bug.cgi?id=1560549).
 */
function isNoReply(error: unknown): boolean {
  return (
    error instanceof BusError && /^org\.freedesktop\.DBus\.Error\.(?:NoReply|Disconnected)$/.test(error.type)
  );
}

function jobFailed(unit: string, message: string, remedy: string): VgpuError {
  return new VgpuError(message, { kind: 'failed', operation: `restart ${unit}`, path: unit, remedy });
}

async function explain<T>(operation: string, unit: string | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof BusError)) throw error;
    throw new VgpuError(`cannot ${operation}: ${error.message} (${error.type})`, {
      kind: 'failed',
      operation,
      ...(unit === undefined ? {} : { path: unit }),
      remedy: remedyFor(error, unit),
      cause: error,
    });
  }
}

function remedyFor(error: BusError, unit: string | undefined): string {
  switch (error.type) {
    case 'org.freedesktop.DBus.Error.AccessDenied':
    case 'org.freedesktop.DBus.Error.InteractiveAuthorizationRequired':
      return 'run it as root (sudo)';
    case 'org.freedesktop.systemd1.UnitMasked':
      return `systemctl unmask ${unit ?? ''}`.trim();
    default:
      return unit === undefined ? 'look at `journalctl -b _PID=1`' : `look at \`systemctl status ${unit}\``;
  }
}
