/** Signals of systemd and logind, on the one connection (dbus-next never removes a rule: each is added once). */

import { addMatch, type BusConnection } from '../../systemd/connection.js';
import { unitPath } from '../../systemd/run-in-unit.js';

interface BusEvents {
  unit(name: string): void;
  reloaded(): void;
  resumed(): void;
}

const systemd = 'org.freedesktop.systemd1';
const properties = 'org.freedesktop.DBus.Properties';

export type BusWatch = Awaited<ReturnType<typeof watchBus>>;

export async function watchBus(bus: BusConnection, events: BusEvents) {
  let watched: ReadonlyMap<string, string> = new Map();
  const rules = new Set<string>();
  bus.onSignal(({ path, interface: name, member, body }) => {
    const unit = watched.get(path);
    if (unit !== undefined && name === properties) {
      // Properties such as MemoryCurrent change all the time; only the state matters.
      const [of, changed] = body;
      if (of !== `${systemd}.Unit` || typeof changed !== 'object' || changed === null) return;
      if ('ActiveState' in changed || 'SubState' in changed || 'InvocationID' in changed) events.unit(unit);
    } else if (name === `${systemd}.Manager` && member === 'Reloading' && body[0] === false)
      events.reloaded();
    else if (name === 'org.freedesktop.login1.Manager' && member === 'PrepareForSleep' && body[0] === false) {
      events.resumed();
    }
  });
  await addMatch(bus, `type='signal',sender='${systemd}',interface='${systemd}.Manager',member='Reloading'`);
  await addMatch(
    bus,
    "type='signal',sender='org.freedesktop.login1',interface='org.freedesktop.login1.Manager',member='PrepareForSleep'",
  );
  await bus.call({
    destination: systemd,
    path: '/org/freedesktop/systemd1',
    interface: `${systemd}.Manager`,
    member: 'Subscribe',
  });
  return {
    /** Replaces the list of the consumers' units; signals of others are ignored. */
    async units(names: readonly string[]): Promise<void> {
      watched = new Map(names.map((name) => [unitPath(name), name]));
      for (const path of watched.keys()) {
        if (rules.has(path)) continue;
        await addMatch(bus, `type='signal',sender='${systemd}',interface='${properties}',path='${path}'`);
        rules.add(path);
      }
    },
  };
}
