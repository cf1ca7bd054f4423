/** systemd's side of a bus, for what listens to signals. */
import type { BusCall, BusConnection, BusSignal } from '../../../agent/systemd/connection.js';
import { unitPath } from '../../../agent/systemd/run-in-unit.js';

/** A bus on which the test is the one who sends signals; `answer` may throw, and gives what a call returns. */
export function fakeBus(answer: (call: BusCall) => readonly unknown[] = () => []) {
  const calls: BusCall[] = [];
  const listeners = new Set<(signal: BusSignal) => void>();
  const bus: BusConnection = {
    call: async (call) => {
      calls.push(call);
      return answer(call);
    },
    onSignal: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    serve: () => {},
    emit: () => {},
    variant: (_signature, value) => value,
    direct: false,
    closed: new Promise(() => {}),
    close: () => {},
  };
  const changed = (unit: string, of: 'Unit' | 'Service', properties: Readonly<Record<string, unknown>>) => {
    const path = unitPath(unit);
    const values = Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, { value }]));
    const body = [`org.freedesktop.systemd1.${of}`, values, []];
    const name = 'org.freedesktop.DBus.Properties';
    for (const listener of listeners)
      listener({ sender: ':1.0', path, interface: name, member: 'PropertiesChanged', body });
  };
  const signal = (one: Partial<BusSignal>): void => {
    const whole = { sender: ':1.0', path: '', interface: '', member: '', body: [], ...one };
    for (const listener of [...listeners]) listener(whole);
  };
  return { bus, calls, listeners, changed, signal };
}
