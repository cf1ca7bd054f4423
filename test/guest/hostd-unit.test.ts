// The host's own units: started by the socket, without privileges, seen by the shim; with --device cuda no worker opens
// the files of a GPU that is not its session's.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { standIn, standInNvml } from '../shim/host/stand_in.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { HOSTD, whyNoHostd } from './support/hosts.js';
import { at } from './support/installed.js';
import { journalctl } from './support/journal.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';

const skip = whyNoGuest() || whyNoHostd();
const unit = (name: string): string => readFileSync(join(repository, 'units', name), 'utf8');

test('the socket starts vgpu-hostd at the first connection, with a score of 2.5 or better', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  // The build stands in for /usr/bin; were it under /tmp, PrivateTmp= would hide it.
  const service = unit('vgpu-hostd.service')
    .replaceAll('/usr/bin/vgpu-hostd', HOSTD)
    .replace('PrivateTmp=yes\n', `PrivateTmp=yes\nBindReadOnlyPaths=${repository}\n`);
  const file = '/etc/systemd/system/vgpu-hostd.service';
  await guest.write(file, service);
  await guest.write('/etc/systemd/system/vgpu-hostd.socket', unit('vgpu-hostd.socket'));
  await guest.write('/etc/systemd/system/vgpu-hostd-driver.service', unit('vgpu-hostd-driver.service'));
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'enable', '--now', 'vgpu-hostd.socket');
  assert.equal(await guest.property('vgpu-hostd.service', 'ActiveState'), 'inactive');

  const shim = join(repository, 'build/shim');
  const ran = await guest.runWith(
    { env: { VGPU_HOST: 'unix:/run/vgpu/hostd.sock' } },
    join(shim, 'vgpu-probe'),
    '--library',
    join(shim, 'libcuda.so.1'),
  );
  assert.equal(
    ran.code,
    0,
    `${ran.stdout}${await guest.must('journalctl', '-u', 'vgpu-hostd', '--no-pager')}`,
  );
  assert.equal(at(JSON.parse(ran.stdout), 'simulated'), true);
  assert.equal(await guest.property('vgpu-hostd.service', 'ActiveState'), 'active');
  // The daemon notices the end of a session after the guest's program has exited.
  const status = await until('the session to end', 60_000, async () => {
    const told = await guest.must(HOSTD, 'status');
    return /sessions: 0 now, [1-9]\d* begun/.test(told) ? told : undefined;
  });
  assert.match(status, /^vgpu-hostd .* --device software\ndevice 0: /);
  await guest.must('systemctl', 'reload', 'vgpu-hostd.service');
  await guest.must('mkdir', '-p', '/etc/vgpu');
  await guest.write('/etc/vgpu/hostd.conf', 'allow unix uid=nobody-knows\n');
  assert.equal((await guest.run('systemctl', 'reload', 'vgpu-hostd.service')).code, 1, 'a mistake is told');
  assert.equal(await guest.property('vgpu-hostd.service', 'ActiveState'), 'active');
  assert.match(
    await journalctl(guest, '-u', 'vgpu-hostd', '-o', 'cat', '--no-pager'),
    /vgpu-hostd: .*hostd\.conf: line 1: .*nobody-knows.*the former rules stay in force/,
  );
  await guest.must('rm', '/etc/vgpu/hostd.conf');
  const text = await guest.must('systemd-analyze', 'security', '--no-pager', 'vgpu-hostd.service');
  assert.ok(Number(/exposure level for vgpu-hostd\.service: ([0-9.]+)/.exec(text)?.[1]) <= 2.5);
  await guest.must('systemctl', 'stop', 'vgpu-hostd.service');
  assert.equal(await guest.property('vgpu-hostd.service', 'Result'), 'success');

  // Plain files: the unit's own rules about devices do not count for them, so that what is closed here is closed by the
  // worker's.
  const nodes = ['nvidiactl', 'nvidia0', 'nvidia1', 'nvidia-uvm', 'sda'].map((name) => `/dev/${name}`);
  await guest.must('touch', ...nodes);
  await guest.must('chmod', '666', ...nodes);
  await guest.must('mkdir', '-p', '/etc/vgpu');
  await guest.write('/etc/vgpu/hostd.conf', 'allow unix devices=0\n');
  const driver = await standIn('nodes,cache');
  const environment = Object.entries({
    ...driver.env,
    VGPU_DEVICE: 'cuda',
    VGPU_OPTIONS: [...driver.args.slice(0, 2), '--nvml-library', await standInNvml()].join(' '),
  });
  await guest.write(
    `${file}.d/driver.conf`,
    `[Service]\n${environment.map(([name, value]) => `Environment="${name}=${value}"\n`).join('')}`,
  );
  await guest.must('systemctl', 'daemon-reload');
  const computed = await guest.runWith(
    { env: { VGPU_HOST: 'unix:/run/vgpu/hostd.sock' } },
    join(shim, 'vgpu-probe'),
    ...['--library', join(shim, 'libcuda.so.1'), '--compute'],
  );
  const journal = (): Promise<string> =>
    guest.must('journalctl', '-u', 'vgpu-hostd', '--no-pager', '-o', 'cat');
  assert.equal(computed.code, 0, `${computed.stdout}${await journal()}`);
  const said = await until('the driver to have looked at the files', 60_000, async () => {
    const text = await journal();
    return /stand-in: \/tmp \w+\n[\s\S]*stand-in: \/tmp \w+\n/.test(text) ? text : undefined;
  });
  // The daemon's own look at the driver comes first, the worker's last.
  const last = new Map(
    [...said.matchAll(/(?:^|wrote to stderr: )stand-in: (\S+) (opened|closed)$/gm)].map(([, name, how]) => [
      name,
      how,
    ]),
  );
  assert.deepEqual(Object.fromEntries(last), {
    ...{ nvidiactl: 'opened', nvidia0: 'opened', nvidia1: 'closed', 'nvidia-uvm': 'opened', sda: 'closed' },
    ...{ null: 'opened', 'nvidia-caps/nvidia-cap1': 'closed', '/tmp': 'opened' },
  });
  assert.doesNotMatch(said, /no Landlock/);
  assert.match(
    said,
    /(?:^|wrote to stderr: )stand-in: cache \/var\/cache\/(?:private\/)?vgpu-hostd\/unix-0, 268435456 bytes$/m,
  );
  assert.match(said, /(?:^|wrote to stderr: )stand-in: cache: write yes, /m);

  // The machine has no driver: the unit that loads one is pulled in first, and fails for nothing.
  const began = async (name: string): Promise<number> =>
    Number(await guest.property(name, 'ExecMainStartTimestampMonotonic'));
  const loaded = await began('vgpu-hostd-driver.service');
  assert.ok(loaded > 0 && loaded < (await began('vgpu-hostd.service')));
  assert.equal(await guest.property('vgpu-hostd-driver.service', 'Result'), 'success');
});

test('vgpu-hostd(8) explains every option that --help names, and no other', { skip: whyNoHostd() }, () => {
  const help = spawnSync(HOSTD, ['--help'], { encoding: 'utf8' }).stdout;
  const page = readFileSync(join(repository, 'docs/man/vgpu-hostd.8'), 'utf8');
  const named = new Set([...help.matchAll(/--([a-z-]+)/g)].map((one) => one[1]));
  for (const name of named) assert.match(page, new RegExp(`Fl -${name}\\b|, -${name}\\b`), name);
  for (const [, name] of page.matchAll(/^\.It Fl -([a-z-]+)/gm)) assert.ok(named.has(name), name);
});
