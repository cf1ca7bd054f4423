import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BusCall, BusConnection, BusSignal } from '../../../agent/systemd/connection.js';
import { mainExit, pathLabel, watchExit } from '../../../agent/systemd/exit-watch.js';

test("a unit's name becomes the label that systemd gives its object", () => {
  assert.equal(pathLabel('vgpu-probe-12-ab.service'), 'vgpu_2dprobe_2d12_2dab_2eservice');
  assert.equal(pathLabel('1st@x.service'), '_31st_40x_2eservice');
});

test('an exit status is a number, a signal a name', () => {
  assert.deepEqual(mainExit({ Result: 'exit-code', ExecMainCode: 1, ExecMainStatus: 3 }), {
    result: 'exit-code',
    exitCode: 3,
    signal: null,
  });
  for (const code of [2, 3]) {
    const end = mainExit({ Result: 'signal', ExecMainCode: code, ExecMainStatus: 11 });
    assert.deepEqual([end.exitCode, end.signal], [null, 'SEGV']);
  }
  assert.deepEqual(mainExit({ Result: 'resources' }), { result: 'resources', exitCode: null, signal: null });
});

/** A bus on which the test is the one who sends signals. */
function fakeBus() {
  const calls: BusCall[] = [];
  const listeners = new Set<(signal: BusSignal) => void>();
  const bus: BusConnection = {
    call: async (call) => {
      calls.push(call);
      return [];
    },
    onSignal: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    serve: () => {},
    emit: () => {},
    variant: (_signature, value) => value,
    closed: new Promise(() => {}),
    close: () => {},
  };
  const changed = (unit: string, of: 'Unit' | 'Service', properties: Readonly<Record<string, unknown>>) => {
    const path = `/org/freedesktop/systemd1/unit/${pathLabel(unit)}`;
    const values = Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, { value }]));
    const body = [`org.freedesktop.systemd1.${of}`, values, []];
    const name = 'org.freedesktop.DBus.Properties';
    for (const listener of listeners)
      listener({ sender: ':1.0', path, interface: name, member: 'PropertiesChanged', body });
  };
  return { bus, calls, listeners, changed };
}

test('the end of the unit is told once it is over, by its own signals alone', async () => {
  const { bus, calls, listeners, changed } = fakeBus();
  const watch = await watchExit(bus, 'p.service', async () => {});
  changed('p.service', 'Unit', { ActiveState: 'active' });
  changed('p.service', 'Service', { Result: 'success', ExecMainCode: 0, ExecMainStatus: 0 });
  changed('q.service', 'Unit', { ActiveState: 'failed' });
  assert.equal(await watch.ended(20), null, 'it still runs');
  changed('p.service', 'Service', { Result: 'exit-code', ExecMainCode: 1, ExecMainStatus: 7 });
  changed('p.service', 'Unit', { ActiveState: 'failed' });
  assert.deepEqual(await watch.ended(1000), { result: 'exit-code', exitCode: 7, signal: null });
  await watch.stop();
  assert.equal(listeners.size, 0);
  const rules = calls.map(({ member, body }) => [member, body?.[0]]);
  assert.deepEqual(rules, [
    ['AddMatch', rules[0]?.[1]],
    ['RemoveMatch', rules[0]?.[1]],
  ]);
});
