import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, symlinkSync } from 'node:fs';
import { machine } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import {
  type AccessEffects,
  canLoad,
  describeLoadCheck,
  noexecMount,
  resolveServiceUser,
} from '../../../../agent/guest/unit/access.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';
import { buildElf, tree } from '../support.js';

const runner = spawnRunner();
const needsRoot = process.geteuid?.() !== 0 && 'needs root to become somebody else';
const unit = (user: string, group = '', dynamicUser = false) => ({ user, group, dynamicUser });

/** A native library: any that this process has loaded will do. */
function nativeLibrary(directory: string): string {
  const file = path.join(directory, 'lib.so');
  const empty = path.join(directory, 'empty.s');
  spawnSync('gcc', ['-shared', '-nostdlib', '-x', 'assembler', '-o', file, '/dev/null']);
  assert.notEqual(file, empty);
  return file;
}

function effects(): AccessEffects {
  return { runner, contents: new ContentCache(), architecture: machine() };
}

function open(context: TestContext): string {
  const directory = tree(context);
  chmodSync(directory, 0o755);
  return directory;
}

describe('service-user', () => {
  it('is root without User=', async () => {
    const user = await resolveServiceUser(runner, unit(''));
    assert.deepEqual([user?.name, user?.uid, user?.gid], ['root', 0, 0]);
    assert.ok(user?.groups.includes(0));
  });

  it('resolves names and numbers as id does', async () => {
    for (const name of ['daemon', '1', 'nobody']) {
      const user = await resolveServiceUser(runner, unit(name));
      const told = (flags: string): string =>
        spawnSync('id', [flags, name], { encoding: 'utf8' }).stdout.trim();
      assert.equal(String(user?.uid), told('-u'));
      assert.equal(String(user?.gid), told('-g'));
      assert.deepEqual(user?.groups.map(String).sort(), told('-G').split(' ').sort());
    }
  });

  it('takes Group= over the user’s own', async () => {
    const user = await resolveServiceUser(runner, unit('daemon', 'video'));
    const gid = Number(spawnSync('getent', ['group', 'video'], { encoding: 'utf8' }).stdout.split(':')[2]);
    assert.equal(user?.gid, gid);
    assert.ok(user.groups.includes(gid));
  });

  it('is null for a user or group that does not exist', async () => {
    assert.equal(await resolveServiceUser(runner, unit('no-such-user')), null);
    assert.equal(await resolveServiceUser(runner, unit('daemon', 'no-such-group')), null);
    assert.equal(await resolveServiceUser(runner, unit('--help')), null);
  });

  it('replaces a dynamic user that is not allocated yet', async () => {
    const user = await resolveServiceUser(runner, unit('vgpu-dynamic', '', true));
    assert.deepEqual([user?.name, user?.uid], ['vgpu-dynamic', 65534]);
  });
});

describe('access', () => {
  it('finds a native library loadable, through links too', async (context) => {
    const directory = open(context);
    const file = nativeLibrary(directory);
    symlinkSync('lib.so', path.join(directory, 'link.so'));
    assert.deepEqual(await canLoad(effects(), null, file), { kind: 'loadable' });
    assert.deepEqual(await canLoad(effects(), null, path.join(directory, 'link.so')), { kind: 'loadable' });
  });

  it('says what is missing', async (context) => {
    const directory = open(context);
    const link = path.join(directory, 'link.so');
    symlinkSync('gone.so', link);
    assert.deepEqual(await canLoad(effects(), null, link), {
      kind: 'missing',
      missing: path.join(directory, 'gone.so'),
    });
    const loop = path.join(directory, 'loop.so');
    symlinkSync('loop.so', loop);
    assert.deepEqual(await canLoad(effects(), null, loop), { kind: 'missing', missing: loop });
    assert.equal((await canLoad(effects(), null, `${directory}/nothing`)).kind, 'missing');
  });

  for (const [what, bytes, kind] of [
    ['a text file', Buffer.from('INPUT(libcuda.so.1)'), 'not-a-library'],
    ['an object file', buildElf({ type: 1 }), 'not-a-library'],
    ['a 32-bit library', buildElf({ bits: 32 }), 'wrong-architecture'],
    ['a library for another machine', buildElf({ machine: 22, bigEndian: true }), 'wrong-architecture'],
  ] as const) {
    it(`does not take ${what}`, async (context) => {
      const directory = tree(context, { 'lib.so': bytes });
      const file = path.join(directory, 'lib.so');
      const check = await canLoad(effects(), null, file);
      assert.equal(check.kind, kind);
      assert.ok(describeLoadCheck(file, null, check).startsWith(file));
    });
  }

  it('does not take a directory', async (context) => {
    assert.equal((await canLoad(effects(), null, tree(context))).kind, 'not-a-library');
  });

  it('names the file that the user may not read', { skip: needsRoot }, async (context) => {
    const file = nativeLibrary(open(context));
    const user = await resolveServiceUser(runner, unit('nobody'));
    chmodSync(file, 0o644);
    assert.deepEqual(await canLoad(effects(), user, file), { kind: 'loadable' });
    chmodSync(file, 0o600);
    const check = await canLoad(effects(), user, file);
    assert.deepEqual(check, { kind: 'unreadable', blockedAt: file });
    assert.equal(describeLoadCheck(file, user, check), `the user "nobody" may not read ${file}`);
  });

  it('names the directory that the user may not enter', { skip: needsRoot }, async (context) => {
    const directory = open(context);
    const closed = path.join(directory, 'closed');
    mkdirSync(path.join(closed, 'in'), { recursive: true });
    const file = path.join(closed, 'in/lib.so');
    copyFileSync(nativeLibrary(directory), file);
    symlinkSync('closed/in/lib.so', path.join(directory, 'link.so'));
    chmodSync(file, 0o644);
    chmodSync(closed, 0o700);
    const user = await resolveServiceUser(runner, unit('nobody'));
    assert.deepEqual(await canLoad(effects(), user, file), { kind: 'unreadable', blockedAt: closed });
    const throughLink = await canLoad(effects(), user, path.join(directory, 'link.so'));
    assert.deepEqual(throughLink, { kind: 'unreadable', blockedAt: closed });
  });

  it('lets a supplementary group read', { skip: needsRoot }, async (context) => {
    const file = nativeLibrary(open(context));
    const gid = spawnSync('getent', ['group', 'video'], { encoding: 'utf8' }).stdout.split(':')[2] ?? '';
    spawnSync('chgrp', [gid, file]);
    chmodSync(file, 0o640);
    const nobody = await resolveServiceUser(runner, unit('nobody'));
    assert.ok(nobody !== null);
    assert.equal((await canLoad(effects(), nobody, file)).kind, 'unreadable');
    const member = { ...nobody, groups: [...nobody.groups, Number(gid)] };
    assert.equal((await canLoad(effects(), member, file)).kind, 'loadable');
  });

  it('finds the mount that covers a file, and whether it is noexec', () => {
    const mountinfo = [
      '1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw',
      '2 1 0:5 / /opt rw,nosuid,noexec - tmpfs tmpfs rw',
      '3 1 0:6 / /opt/with\\040blank rw - tmpfs tmpfs rw',
      '4 1 0:7 / /srv rw,noexec - tmpfs tmpfs rw',
      '5 4 0:8 / /srv rw - tmpfs tmpfs rw',
      '',
    ].join('\n');
    assert.equal(noexecMount(mountinfo, '/opt/vgpu/lib.so'), '/opt');
    assert.equal(noexecMount(mountinfo, '/optional/lib.so'), null);
    assert.equal(noexecMount(mountinfo, '/opt/with blank/lib.so'), null);
    assert.equal(noexecMount(mountinfo, '/srv/lib.so'), null);
    assert.equal(noexecMount('', '/x'), null);
  });
});
