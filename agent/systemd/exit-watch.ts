/**
 * How a transient unit ended, in systemd's own properties (`Result`, `ExecMainCode`, `ExecMainStatus` of
 * org.freedesktop.systemd1(5)). The text that systemd-run prints says the same, in other words with each version.
 *
 * Such a unit is unloaded as soon as it has ended, so its properties are taken from the signals that it sends
 * before; they are listened for before the unit is started.
 */
import { constants } from 'node:os';
import { addMatch, type BusConnection, removeMatch } from './connection.js';
import { bagOf, count, type PropertyBag, text } from './properties.js';

export interface MainExit {
  /** systemd's word: `success`, `exit-code`, `signal`, `core-dump`, `timeout`, `resources`, ... */
  readonly result: string;
  /** Exit status of the main process; null when a signal ended it or it never was. */
  readonly exitCode: number | null;
  /** `SEGV`, `KILL`, ...; null when it exited. */
  readonly signal: string | null;
}

export interface ExitWatch {
  /** How the unit ended; null when it has not within `timeoutMs` from now, for instance because it never was. */
  ended(timeoutMs: number): Promise<MainExit | null>;
  stop(): Promise<void>;
}

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
