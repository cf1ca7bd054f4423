import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mainExit, unitPath, watchExit } from '../../../agent/systemd/run-in-unit.js';
import { fakeBus } from './fake-bus.js';

test("a unit's name becomes the label that systemd gives its object", () => {
  assert.equal(
    unitPath('vgpu-probe-12-ab.service'),
    '/org/freedesktop/systemd1/unit/vgpu_2dprobe_2d12_2dab_2eservice',
  );
  assert.equal(unitPath('1st@x.service'), '/org/freedesktop/systemd1/unit/_31st_40x_2eservice');
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

test('the end of the unit is reported when it is complete, only by its own signals', async () => {
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
