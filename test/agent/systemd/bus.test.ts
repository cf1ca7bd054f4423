import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { VgpuError } from '../../../agent/lib/errors.js';
import { managerOn } from '../../../agent/systemd/bus.js';
import { BusError, connectBus } from '../../../agent/systemd/connection.js';
import { effectiveEnvironment } from '../../../agent/systemd/unit-environment.js';
import { fakeBus } from './fake-bus.js';

test('a subscription that failed once is tried again by the next job, and made once', async () => {
  let refuse = true;
  const job = '/org/freedesktop/systemd1/job/7';
  const { bus, calls, listeners, signal } = fakeBus(({ member }) => {
    if (member === 'AddMatch' && refuse) throw new Error('the bus is full');
    if (member !== 'RestartUnit') return [];
    const body = [7, job, 'ollama.service', 'done'];
    setImmediate(() =>
      signal({ path: '/org/freedesktop/systemd1', interface: 'x', member: 'JobRemoved', body }),
    );
    return [job];
  });
  const manager = managerOn(bus);
  const matches = (): number => calls.filter(({ member }) => member === 'AddMatch').length;
  await assert.rejects(manager.restart('ollama.service', 1_000), /the bus is full/);
  assert.equal(listeners.size, 0, 'nobody listens for nothing');
  refuse = false;
  for (let times = 0; times < 2; times += 1)
    assert.equal(await manager.restart('ollama.service', 1_000), 'done');
  assert.equal(matches(), 2, 'one that failed and one that holds');
  assert.equal(listeners.size, 1);
});

for (const [what, name] of [
  ['has unloaded the unit', 'org.freedesktop.systemd1.NoSuchUnit'],
  ['does not answer that', 'org.freedesktop.DBus.Error.NoReply'],
] as const) {
  test(`a unit that is stopped is not left failed, and is stopped even if systemd ${what}`, async () => {
    const job = '/org/freedesktop/systemd1/job/7';
    const { bus, calls, signal } = fakeBus(({ member }) => {
      if (member === 'ResetFailedUnit') throw new BusError(name, 'refused');
      if (member !== 'StopUnit') return [];
      const body = [7, job, 'x.service', 'done'];
      setImmediate(() =>
        signal({ path: '/org/freedesktop/systemd1', interface: 'x', member: 'JobRemoved', body }),
      );
      return [job];
    });
    assert.equal(await managerOn(bus).stop('x.service', 1_000), 'done');
    assert.deepEqual(
      calls.map(({ member }) => member).filter((member) => member.endsWith('Unit')),
      ['StopUnit', 'ResetFailedUnit'],
    );
  });
}

test('an address of the bus that is none is refused with its value, and no program is run for it', async () => {
  for (const address of [
    'garbage',
    ';',
    'unix:',
    'unixexec:path=/bin/true',
    'tcp:host=x',
    'tcp:port=99999',
  ]) {
    const quoted = JSON.stringify(address);
    await assert.rejects(connectBus(address), (error) => {
      assert.ok(error instanceof VgpuError);
      assert.ok(error.message.startsWith(`DBUS_SYSTEM_BUS_ADDRESS=${quoted} is not an address of a bus`));
      assert.match(error.remedy ?? '', /unset DBUS_SYSTEM_BUS_ADDRESS/);
      return true;
    });
  }
  for (const nobody of ['unix:path=/nonexistent/x', 'unix:abstract=nobody-listens-here'])
    await assert.rejects(connectBus(nobody), /cannot connect to the system bus at unix:/);
});

test('systemd is given as long for reading its units again as systemctl gives it', async () => {
  const { bus, calls } = fakeBus();
  await managerOn(bus).reload();
  const [reload] = calls.filter(({ member }) => member === 'Reload');
  // DAEMON_RELOAD_TIMEOUT_SEC in systemd's sources; a slow generator takes it.
  assert.ok((reload?.timeoutMs ?? 0) >= 180_000, `${reload?.timeoutMs} ms`);
});

test('a reload whose reply was lost counts by what systemd has done', async () => {
  const lost = new BusError('org.freedesktop.DBus.Error.NoReply', 'Message recipient disconnected');
  let finished = 0n;
  const { bus } = fakeBus(({ member }) => {
    if (member === 'Reload') throw lost;
    return [{ UnitsLoadFinishTimestampMonotonic: { value: finished } }];
  });
  await assert.rejects(managerOn(bus, 300).reload(), /NoReply/);
  const reloading = managerOn(bus, 5_000).reload();
  setTimeout(() => {
    finished = process.hrtime.bigint() / 1000n;
  }, 50);
  await reloading;
  const refused = fakeBus(() => {
    throw new BusError('org.freedesktop.DBus.Error.AccessDenied', 'no');
  });
  await assert.rejects(managerOn(refused.bus, 5_000).reload(), /AccessDenied/);
});

test('EnvironmentFile= with wildcards names files in their order', async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-env-'));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const [name, value] of [
    ['b.env', '-1'],
    ['a.env', '0'],
    ['c.conf', '7'],
  ])
    writeFileSync(path.join(directory, `${name}`), `CUDA_VISIBLE_DEVICES=${value}\n`);
  const { bus } = fakeBus(({ member, body }) => {
    if (member === 'LoadUnit') return ['/unit'];
    if (body?.[0] === 'org.freedesktop.systemd1.Unit') return [{ LoadState: 'loaded', Id: 'x.service' }];
    return [{ EnvironmentFiles: [[`${directory}/*.env`, false]] }];
  });
  const unit = await managerOn(bus).unit('x.service');
  assert.ok(unit.kind === 'loaded');
  assert.deepEqual(
    unit.environmentFileContents?.map((file) => path.basename(file.path)),
    ['a.env', 'b.env'],
  );
  assert.equal(effectiveEnvironment(unit).get('CUDA_VISIBLE_DEVICES')?.value, '-1');
});
