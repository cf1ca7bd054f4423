// Root runs a copy that only root can change (scripts/install-agent), never a checkout in a home directory.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { defaultProfilePlaces, listProfiles, validMark } from '../../agent/profile/load.js';
import { whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { at, differences, documentOf, prepareConsumer, uninstall } from './support/installed.js';
import type { Listing } from './support/listing.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';
import { errorOf } from './support/scenario.js';
import { settledOnGpu } from './support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const checkout = '/home/dev/vgpu';
const built =
  'dist/bundle dist/agent/schemas build/shim profiles units docs/man docs/json package.json LICENSE scripts node_modules/systemd-journald';

describe('a checkout in a home directory', { skip }, () => {
  let guest: Guest;
  let bare: Listing;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await prepareConsumer(guest, 3);
    await guest.must(
      'bash',
      '-c',
      `useradd -m dev && rm /usr/local/bin/vgpu-agent && mkdir -p ${checkout} && cd ${repository} &&
       tar -c --exclude=build/shim/programs --ignore-failed-read ${built} | tar -x -C ${checkout} && chown -R dev: ${checkout}`,
    );
    bare = await guest.listing();
  });
  after(() => guest.stop());

  test('is refused as the program of the service, before anything is changed', async () => {
    const ran = await guest.run(
      'node',
      `${checkout}/dist/bundle/main.js`,
      'install',
      '--service',
      '--yes',
      '--json',
    );
    const error = errorOf(ran);
    assert.equal(error.exitCode, 6);
    assert.match(error.message, /would run programs as root that other users can change: \/home\/dev/);
    assert.deepEqual(differences(bare, await guest.listing()), []);
  });

  test('becomes a copy of root, which the unit runs and every user can call', async () => {
    await guest.must(`${checkout}/scripts/install-agent`);
    const copied = await guest.must('ls', '/usr/lib/vgpu-agent/dist/agent/schemas');
    const { directories, schema } = defaultProfilePlaces();
    const shipped = listProfiles({ directories: directories.slice(-1), schema });
    const marks = shipped.map(({ path }) =>
      validMark(readFileSync(path, 'utf8'), readFileSync(schema, 'utf8')),
    );
    assert.deepEqual(
      copied.split('\n').filter((name) => name.endsWith('.profile')),
      marks.map((mark) => basename(mark)).sort(),
      'a command would validate the shipped profiles again',
    );
    documentOf(await guest.agent('install', '--service', '--yes', '--json'));
    await settledOnGpu(guest);
    const unit = await guest.read('/etc/systemd/system/vgpu-agent.service');
    assert.match(
      unit,
      /^ExecStart=\/usr\/lib\/vgpu-agent\/build\/shim\/vgpu-watch -- .* \/usr\/lib\/vgpu-agent\/dist\/bundle\/daemon\.cjs$/m,
    );
    assert.doesNotMatch(unit, /home\/dev/);
    const strangers = await guest.must(
      'find',
      '/usr/lib/vgpu-agent',
      '(',
      '!',
      '-user',
      '0',
      '-o',
      '-perm',
      '/022',
      ')',
      '!',
      '-type',
      'l',
    );
    assert.equal(strangers, '');
    await guest.must('chmod', '0700', '/home/dev');
    const asked = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'status', '--json');
    assert.equal(at(JSON.parse(asked.stdout), 'service', 'state'), 'settled', asked.stderr);
  });

  test('is upgraded in one step, and the service runs the new copy', async () => {
    const pid = await guest.property('vgpu-agent', 'MainPID');
    await guest.must(`${checkout}/scripts/install-agent`);
    assert.equal(await guest.property('vgpu-agent', 'MainPID'), pid, 'nothing is new: no restart');
    await guest.must('chmod', '0777', '/usr/lib/vgpu-agent/dist/bundle');
    await guest.must(`${checkout}/scripts/install-agent`);
    const mode = await guest.must('stat', '--format=%a', '/usr/lib/vgpu-agent/dist/bundle');
    assert.equal(mode.trim(), '755', 'what others can change is replaced');
    await settledOnGpu(guest);
    const replaced = await guest.property('vgpu-agent', 'MainPID');
    await guest.must('sh', '-c', `echo '// new' >>${checkout}/dist/bundle/daemon.cjs`);
    await guest.must(`${checkout}/scripts/install-agent`);
    assert.notEqual(await guest.property('vgpu-agent', 'MainPID'), replaced);
    assert.match(await guest.must('tail', '-n', '1', '/usr/lib/vgpu-agent/dist/bundle/daemon.cjs'), /new/);
    assert.equal((await guest.must('sh', '-c', 'ls -d /usr/lib/vgpu-agent*')).trim(), '/usr/lib/vgpu-agent');
    await settledOnGpu(guest);
  });

  test('the copy is never missing while it is replaced', async () => {
    await guest.must('sh', '-c', `echo '// newer' >>${checkout}/dist/bundle/daemon.cjs`);
    await guest.must(
      'strace',
      ...['-f', '-qq', '-e', 'trace=/rename', '-o', '/run/renames'],
      `${checkout}/scripts/install-agent`,
    );
    const renames = (await guest.read('/run/renames'))
      .split('\n')
      .filter((one) => one.includes('vgpu-agent"'));
    assert.match(renames.join('\n'), /"\/usr\/lib\/vgpu-agent", RENAME_EXCHANGE\) = 0/);
    assert.deepEqual(
      renames.filter((one) => one.includes('"/usr/lib/vgpu-agent"') && !one.includes('RENAME_EXCHANGE')),
      [],
    );
    await settledOnGpu(guest);
  });

  test('a service that is only starting is started with the new copy, too', async () => {
    const dropIn = '/run/systemd/system/vgpu-agent.service.d/slow.conf';
    await guest.must('systemctl', 'stop', 'vgpu-agent');
    await guest.must('mkdir', '-p', dropIn.slice(0, dropIn.lastIndexOf('/')));
    const slow = "[Service]\nExecStartPre=/bin/sh -c 'test -e /run/go || sleep 50'\n";
    await guest.runWith({ stdin: slow }, 'tee', dropIn);
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'start', '--no-block', 'vgpu-agent');
    await until('it is starting', 60_000, async () =>
      (await guest.property('vgpu-agent', 'ActiveState')) === 'activating' ? true : undefined,
    );
    const first = await guest.invocationId('vgpu-agent');
    await guest.must('touch', '/run/go');
    await guest.must('sh', '-c', `echo '// newest' >>${checkout}/dist/bundle/daemon.cjs`);
    await guest.must(`${checkout}/scripts/install-agent`);
    assert.notEqual(await guest.invocationId('vgpu-agent'), first);
    await settledOnGpu(guest);
    await guest.must('rm', dropIn);
    await guest.must('systemctl', 'daemon-reload');
  });

  test('is taken away after everything else, and leaves nothing', async () => {
    const early = await guest.run(`${checkout}/scripts/install-agent`, '--remove');
    assert.equal(early.code, 6);
    assert.match(early.stderr, /vgpu-agent uninstall/);
    await uninstall(guest);
    await guest.must(`${checkout}/scripts/install-agent`, '--remove');
    await guest.must('rm', '-rf', '/etc/vgpu-agent');
    assert.deepEqual(differences(bare, await guest.listing()), []);
  });

  test('does not replace a file that the agent did not write', async () => {
    await guest.must('mkdir', '/usr/lib/vgpu-agent');
    const ran = await guest.run(`${checkout}/scripts/install-agent`);
    assert.equal(ran.code, 6);
    assert.match(ran.stderr, /\/usr\/lib\/vgpu-agent has no package.json of vgpu-agent/);
    await guest.must('rmdir', '/usr/lib/vgpu-agent');
    await guest.must('ln', '-s', '/bin/true', '/usr/local/bin/vgpu-agent');
    assert.equal((await guest.run(`${checkout}/scripts/install-agent`)).code, 6);
    assert.equal((await guest.must('readlink', '/usr/local/bin/vgpu-agent')).trim(), '/bin/true');
  });
});
