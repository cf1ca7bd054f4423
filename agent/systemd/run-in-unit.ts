/**
 * Runs a program like the unit's own program: as its user, in its environment and sandbox, as a transient service. So
 * both have the same access.
 */
import { randomBytes } from 'node:crypto';
import { constants } from 'node:os';
import { type ContainerUnit, containerOf, isRootless } from '../containers/container-unit.js';
import type { ProbeRun } from '../contracts/probe.js';
import type { LoadedUnit } from '../contracts/unit.js';
import { VgpuError } from '../lib/errors.js';
import type { CommandRunner } from '../lib/run-command.js';
import { addMatch, type BusConnection, removeMatch } from './connection.js';
import { bagOf, count, type PropertyBag, text } from './properties.js';
import type { ExitWatch, MainExit, Manager } from './types.js';
import { transportCalls } from './unit-sandbox.js';

export interface UnitCommand {
  readonly unit: LoadedUnit;
  readonly purpose: string;
  readonly program: string;
  readonly args: readonly string[];
  /** The environment; what `environmentFiles` say wins over it, as in the unit. */
  readonly environment: Readonly<Record<string, string>>;
  readonly environmentFiles: readonly string[];
  /** Another user than the unit's; null: that one. */
  readonly user: { readonly uid: number; readonly gid: number; readonly groups: readonly number[] } | null;
  readonly directory: string;
  /** Not in the unit's sandbox, since it goes into a container by itself; as root, or as the unit's user. */
  readonly outside?: 'root' | 'user';
  readonly limitMs: number;
}

interface UnitCommandEffects {
  readonly signal: AbortSignal;
  readonly runner: CommandRunner;
  readonly manager: Pick<Manager, 'watchExit' | 'kill'>;
}

const overheadMs = 5_000;
/** systemd-run and the agent learn of the unit's end from the same signal; the agent may read it this much later. */
const signalDelayMs = 2_000;

/** Never throws: a program that could not be run is a result too (`not-run`, with the reason). */
export async function runInUnit(command: UnitCommand, effects: UnitCommandEffects): Promise<ProbeRun> {
  const { manager, runner, signal } = effects;
  const name = `${command.purpose}-${process.pid}-${randomBytes(4).toString('hex')}.service`;
  const kill = (): void => {
    // systemd-run ends by itself when its unit has ended.
    manager.kill(name).catch(() => {});
  };
  if (signal.aborted) return { kind: 'not-run', message: 'interrupted' };
  signal.addEventListener('abort', kill, { once: true });
  let watch: ExitWatch | null = null;
  try {
    watch = await manager.watchExit(name);
    const started = performance.now();
    const ran = await runner.run('systemd-run', unitArguments(command, name), {
      timeoutMs: command.limitMs + overheadMs,
    });
    const milliseconds = Math.round(performance.now() - started);
    const stderr = ran.stderr.toString('utf8');
    const end = await watch.ended(ran.timedOut ? 0 : signalDelayMs);
    if (end === null || end.result === 'resources') {
      const why = ran.timedOut ? 'systemd-run did not end in time' : `systemd-run: exit status ${ran.code}`;
      return { kind: 'not-run', message: stderr.trim() || why };
    }
    const notRun = setupFailure(end.exitCode, command);
    if (notRun !== null) return { kind: 'not-run', message: notRun };
    return {
      kind: 'ran',
      exitCode: end.exitCode,
      signal: end.signal,
      timedOut: ran.timedOut || end.result === 'timeout',
      stdout: ran.stdout.toString('utf8'),
      stderr,
      milliseconds,
    };
  } catch (error) {
    if (error instanceof VgpuError) return { kind: 'not-run', message: error.message };
    throw error;
  } finally {
    signal.removeEventListener('abort', kill);
    await watch?.stop();
  }
}

/** systemd-run's arguments: the unit's user, environment and those sandbox settings that matter to a GPU. */
export function unitArguments(command: UnitCommand, transientName: string): readonly string[] {
  const { unit, purpose, program, args, environment, environmentFiles, directory, limitMs } = command;
  const properties = [
    ...(command.outside === 'root' ? [] : userProperties(command)),
    ...environmentFiles.map((file) => `EnvironmentFile=${file}`),
    ...(command.outside === undefined ? sandboxProperties(unit) : []),
    ...(directory === '/' ? [] : [`WorkingDirectory=-${directory}`]),
    `RuntimeMaxSec=${Math.ceil(limitMs / 1000)}`,
    'KillMode=control-group',
    // A core dump of the probe is of no use; its signal is reported.
    'LimitCORE=0',
  ];
  return [
    // Standard error is the program's alone: systemd-run's own words change with its version.
    '--quiet',
    '--pipe',
    '--wait',
    '--collect',
    '--service-type=exec',
    `--unit=${transientName}`,
    `--description=${purpose} for ${unit.name}`,
    ...properties.map((property) => `--property=${property}`),
    ...Object.entries(environment).map(([name, value]) => `--setenv=${name}=${value}`),
    '--',
    program,
    // systemd replaces variables in the arguments of a service (systemd.service(5), "Command lines").
    ...args.map((arg) => arg.replaceAll('$', '$$$$')),
  ];
}

function userProperties({ unit, user }: UnitCommand): readonly string[] {
  if (user !== null) {
    const { uid, gid, groups } = user;
    return [`User=${uid}`, `Group=${gid}`, `SupplementaryGroups=${groups.join(' ')}`];
  }
  return [
    ...(unit.user === '' ? [] : [`User=${unit.user}`]),
    ...(unit.group === '' ? [] : [`Group=${unit.group}`]),
    ...(unit.dynamicUser ? ['DynamicUser=yes'] : []),
  ];
}

function sandboxProperties({ sandbox }: LoadedUnit): readonly string[] {
  const families = sandbox.restrictAddressFamilies;
  const list = `${families?.deny ? '~' : ''}${families?.families.join(' ') || 'none'}`;
  const set = (name: string, value: string, unset: readonly string[]): readonly string[] =>
    unset.includes(value) ? [] : [`${name}=${value}`];
  const yes = (name: string, on = false): readonly string[] => (on ? [`${name}=yes`] : []);
  const each = (name: string, values: readonly string[] = []): readonly string[] =>
    values.map((value) => `${name}=${value}`);
  return [
    ...(families === null ? [] : [`RestrictAddressFamilies=${list}`]),
    ...yes('PrivateNetwork', sandbox.privateNetwork),
    ...set('DevicePolicy', sandbox.devicePolicy, ['', 'auto']),
    ...yes('MemoryDenyWriteExecute', sandbox.memoryDenyWriteExecute),
    ...yes('NoNewPrivileges', sandbox.noNewPrivileges),
    ...set('ProtectHome', sandbox.protectHome, ['', 'no']),
    ...set('RootDirectory', sandbox.rootDirectory, ['']),
    ...each('InaccessiblePaths', sandbox.inaccessiblePaths),
    ...each('TemporaryFileSystem', sandbox.temporaryFileSystem),
    ...yes('PrivateTmp', sandbox.privateTmp),
    ...each('IPAddressDeny', sandbox.ipAddressDeny),
    ...each('IPAddressAllow', sandbox.ipAddressAllow),
    ...systemCalls(sandbox),
  ];
}

/** Only what decides over the transport: a whole filter would be longer than a command line may be. */
function systemCalls({ systemCallFilter }: LoadedUnit['sandbox']): readonly string[] {
  const blocked = transportCalls.filter(
    (call) => systemCallFilter?.calls.includes(call) === systemCallFilter?.deny,
  );
  if (systemCallFilter === null || systemCallFilter === undefined || blocked.length === 0) return [];
  return [`SystemCallFilter=~${blocked.join(' ')}`, 'SystemCallErrorNumber=EPERM'];
}

/** Exit statuses by which systemd says that it could not even start the program (systemd.exec(5)). */
function setupFailure(status: number | null, { unit, purpose }: UnitCommand): string | null {
  const failures: Readonly<Record<number, string>> = {
    203: `${purpose} could not be executed in the sandbox of ${unit.name}`,
    216: `the group ${JSON.stringify(unit.group)} of ${unit.name} does not exist`,
    217: `the user ${JSON.stringify(unit.user)} of ${unit.name} does not exist`,
    226: `systemd could not set up the namespaces of ${unit.name}`,
  };
  return status === null ? null : (failures[status] ?? null);
}

// Runs vgpu-probe with the consumer's user, environment and sandbox.

export interface ProbeQuestion {
  readonly unit: LoadedUnit;
  /** Absolute path of vgpu-probe, readable and executable for the service's user. */
  readonly program: string;
  /** The same where the consumer runs in a container that has our CDI device; default: `program`. */
  readonly programInContainer?: string;
  readonly timeoutMs: number;
  readonly compute?: boolean;
}

/** systemd ends the probe this long after its own limit. */
const graceMs = 2_000;

/** Never throws: a probe that could not be run is a result too (`not-run`, with the reason). */
export async function runProbe(question: ProbeQuestion & UnitCommandEffects): Promise<ProbeRun> {
  const container = containerOf(question.unit);
  if (container?.name === null) return { kind: 'not-run', message: unnamed(container) };
  if (isRootless(question.unit) && question.unit.dynamicUser)
    return {
      kind: 'not-run',
      message: 'the container is in the podman of a user that exists only for this unit (DynamicUser=)',
    };
  const ran = await runInUnit(probeCommand(question), question);
  return container === null || ran.kind === 'not-run' ? ran : ofContainer(ran);
}

export function probeCommand(question: ProbeQuestion): UnitCommand {
  const { unit, program, timeoutMs, compute = false } = question;
  const args = [
    '--json',
    '--timeout',
    String(Math.ceil(timeoutMs / 1000)),
    ...(compute ? ['--compute'] : []),
  ];
  const container = containerOf(unit);
  const common = { unit, purpose: 'vgpu-probe', user: null, directory: '/', limitMs: timeoutMs + graceMs };
  const { environment, environmentFiles } = unit;
  if (container === null) return { ...common, program, args, environment, environmentFiles };
  // The engine itself puts the probe into the container, with the container's own rights: what an image holds is
  // never executed as root of the guest.
  const inside = [...container.options, 'exec', container.name ?? ''];
  // Where a user's podman keeps its containers depends on its environment too: XDG_RUNTIME_DIR, HOME.
  const rootless = isRootless(unit);
  return {
    ...common,
    program: container.program,
    args: [...inside, question.programInContainer ?? program, ...args],
    ...(rootless ? { environment, environmentFiles } : { environment: {}, environmentFiles: [] }),
    outside: rootless ? 'user' : 'root',
  };
}

function unnamed({ engine, command }: ContainerUnit): string {
  return command === 'compose'
    ? 'no container of the compose file is known'
    : `the container has no name, so it cannot be found: add --name NAME to ${engine} run`;
}

/** Where the program ran it printed its document, or a signal ended it (128 and above). */
function ofContainer(ran: Extract<ProbeRun, { kind: 'ran' }>): ProbeRun {
  const { exitCode, stdout, stderr } = ran;
  // podman-exec(1), docker-exec: the engine could not execute it, and says so on either output.
  const refused = exitCode === 126 || exitCode === 127;
  if (!refused && (stdout !== '' || exitCode === null || exitCode >= 128))
    return { ...ran, inContainer: true };
  // The libraries ask for less of the image's C library than the probe does.
  if (/version `GLIBC_[\d.]+' not found/.test(stderr))
    return { kind: 'not-run', message: "vgpu-probe needs a newer C library than the container's image has" };
  const said = `${stdout}\n${stderr}`.trim().split('\n').at(-1)?.slice(0, 300) ?? '';
  const why = exitCode === 127 ? 'it does not exist there, so the container does not have the device' : said;
  return { kind: 'not-run', message: `vgpu-probe could not be executed in the container: ${why}` };
}

// How a transient unit ended, in systemd's own properties (`Result`, `ExecMainCode`, `ExecMainStatus` of
// org.freedesktop.systemd1(5)). The text that systemd-run prints says the same, in other words with each version.
//
// Such a unit is unloaded as soon as it has ended, so its properties are taken from the signals that it sends
// before; they are listened for before the unit is started.

const unitInterface = 'org.freedesktop.systemd1.Unit';
const serviceInterface = 'org.freedesktop.systemd1.Service';

/** `subscribe` makes systemd send signals at all; it may be called often. */
export async function watchExit(
  bus: BusConnection,
  name: string,
  subscribe: () => Promise<unknown>,
): Promise<ExitWatch> {
  const path = unitPath(name);
  const rule = `type='signal',sender='org.freedesktop.systemd1',path='${path}',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'`;
  let service: PropertyBag = {};
  let over: () => void = () => {};
  const isOver = new Promise<true>((resolve) => {
    over = () => resolve(true);
  });
  const silence = bus.onSignal((signal) => {
    if (signal.path !== path || signal.member !== 'PropertiesChanged') return;
    const [of, changed] = signal.body;
    const bag = bagOf(changed);
    // Clients may rely on the service's signal coming before the unit's (systemd, dbus-unit.c).
    if (of === serviceInterface) service = { ...service, ...bag };
    if (of === unitInterface && ['inactive', 'failed'].includes(text(bag, 'ActiveState'))) over();
  });
  await addMatch(bus, rule);
  await subscribe();
  return {
    async ended(timeoutMs) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<false>((resolve) => {
        timer = setTimeout(() => resolve(false), timeoutMs);
      });
      const known = await Promise.race([isOver, late]);
      clearTimeout(timer);
      return known && text(service, 'Result') !== '' ? mainExit(service) : null;
    },
    async stop() {
      silence();
      await removeMatch(bus, rule).catch(() => {});
    },
  };
}

/** si_code of SIGCHLD (sigaction(2)). */
const cldExited = 1;

export function mainExit(service: PropertyBag): MainExit {
  const code = count(service, 'ExecMainCode');
  const status = count(service, 'ExecMainStatus');
  return {
    result: text(service, 'Result'),
    exitCode: code === cldExited ? status : null,
    signal: code > cldExited ? signalName(status) : null,
  };
}

function signalName(number: number): string {
  const found = Object.entries(constants.signals).find(([, value]) => value === number);
  return found?.[0].replace(/^SIG/, '') ?? String(number);
}

/** A unit's object path (sd_bus_path_encode(3)): what is no letter or digit becomes `_` and its code. */
export function unitPath(name: string): string {
  const label = Buffer.from(name)
    .toString('latin1')
    .replace(/[^A-Za-z0-9]|^[0-9]/g, (one) => `_${one.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return `/org/freedesktop/systemd1/unit/${label}`;
}
