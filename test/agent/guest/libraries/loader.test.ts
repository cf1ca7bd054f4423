import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import type { Distribution } from '../../../../agent/contracts/facts.js';
import { readDistribution } from '../../../../agent/guest/distribution.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { readLoaderCache, readLoaderDirectories } from '../../../../agent/guest/libraries/loader.js';
import { ldconfig } from '../../../../agent/lib/paths.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';
import { grow, tree } from '../support.js';

/** A root in which ldconfig -r works: its own directories, two compiled libraries, one of them by hwcaps. */
function compiledRoot(directory: string): void {
  const lib = path.join(directory, 'usr/lib/x86_64-linux-gnu');
  mkdirSync(path.join(lib, 'glibc-hwcaps/x86-64-v3'), { recursive: true });
  mkdirSync(path.join(directory, 'opt/vgpu'), { recursive: true });
  mkdirSync(path.join(directory, 'etc/ld.so.conf.d'), { recursive: true });
  grow(directory, {
    'etc/ld.so.conf': 'include /etc/ld.so.conf.d/*.conf\n',
    'etc/ld.so.conf.d/000-vgpu.conf': '/opt/vgpu\n',
    'etc/ld.so.conf.d/x.conf': '/usr/lib/x86_64-linux-gnu\n',
    'empty.s': '.globl x\nx:\n',
  });
  for (const place of [
    'opt/vgpu',
    'usr/lib/x86_64-linux-gnu',
    'usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3',
  ]) {
    const built = spawnSync(
      'gcc',
      [
        '-shared',
        '-nostdlib',
        '-Wl,-soname,libcuda.so.1',
        '-o',
        path.join(directory, place, 'libcuda.so.1'),
        path.join(directory, 'empty.s'),
      ],
      { encoding: 'utf8' },
    );
    assert.equal(built.status, 0, built.stderr);
  }
}

describe('loader-cache', () => {
  it('has the entries of this system', async () => {
    const entries = await readLoaderCache(new Root(), spawnRunner());
    assert.ok(entries.some(({ soname, path: file }) => soname === 'libc.so.6' && file.startsWith('/')));
  });

  const noRoot = process.geteuid?.() !== 0 && 'ldconfig -r needs root';
  it('has the entries of another root in their order, glibc-hwcaps first', {
    skip: noRoot,
  }, async (context) => {
    const directory = tree(context);
    assert.deepEqual(await readLoaderCache(new Root(directory), spawnRunner()), []);
    compiledRoot(directory);
    const built = spawnSync(ldconfig, ['-r', directory], { encoding: 'utf8' });
    assert.equal(built.status, 0, built.stderr);
    const entries = await readLoaderCache(new Root(directory), spawnRunner());
    assert.deepEqual(
      entries.map((entry) => [entry.path, entry.flags]),
      [
        ['/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libcuda.so.1', 'libc6,x86-64, hwcap: "x86-64-v3"'],
        ['/opt/vgpu/libcuda.so.1', 'libc6,x86-64'],
        ['/usr/lib/x86_64-linux-gnu/libcuda.so.1', 'libc6,x86-64'],
      ],
    );
  });
});

const debian: Distribution = {
  prettyName: 'Debian',
  family: 'debian',
  architecture: 'x86_64',
  multiarch: 'x86_64-linux-gnu',
};

describe('loader-conf', () => {
  it('lists the directories of this system in ldconfig’s order', () => {
    const { stdout } = spawnSync(ldconfig, ['-N', '-X', '-v'], { encoding: 'utf8', env: { LC_ALL: 'C' } });
    const expected = [...stdout.matchAll(/^(\/.*): \(from (\/[^:]*):/gm)].map((match) => [
      match[1],
      match[2],
    ]);
    assert.ok(expected.length > 0);
    // ldconfig passes over what does not exist and second names of a directory.
    const seen = new Set<string>();
    const root = new Root();
    const directories = readLoaderDirectories(root, readDistribution(root, 'x86_64'))
      .filter(
        ({ path: one }) => existsSync(one) && !seen.has(realpathSync(one)) && seen.add(realpathSync(one)),
      )
      .map((one) => [one.path, one.from]);
    assert.deepEqual(directories.slice(0, expected.length), expected);
  });

  it('follows includes in order, relative ones from the including file, and ends at a cycle', (context) => {
    const root = new Root(
      tree(context, {
        'etc/ld.so.conf': '# comment\n  /first   # why\ninclude ld.so.conf.d/*.conf extra/*.conf\n/last/\n',
        'etc/ld.so.conf.d/10-b.conf': 'hwcap 0 nosegneg\n/b=libc6\n/first\n',
        'etc/ld.so.conf.d/000-vgpu.conf': '/opt/vgpu/current\n',
        'etc/ld.so.conf.d/ignored.txt': '/ignored\n',
        'etc/extra/cycle.conf': 'include ../ld.so.conf\nrelative/is/ignored\n',
      }),
    );
    assert.deepEqual(
      readLoaderDirectories(root, debian).map((one) => `${one.path} ${one.from}`),
      [
        '/first /etc/ld.so.conf',
        '/opt/vgpu/current /etc/ld.so.conf.d/000-vgpu.conf',
        '/b /etc/ld.so.conf.d/10-b.conf',
        '/last /etc/ld.so.conf',
        '/lib/x86_64-linux-gnu built in',
        '/usr/lib/x86_64-linux-gnu built in',
        '/lib built in',
        '/usr/lib built in',
      ],
    );
  });

  it('knows lib64 where there is no multiarch, and needs no configuration', (context) => {
    const fedora: Distribution = { ...debian, family: 'redhat', multiarch: null };
    assert.deepEqual(
      readLoaderDirectories(new Root(tree(context)), fedora).map((one) => one.path),
      ['/lib64', '/usr/lib64', '/lib', '/usr/lib'],
    );
  });
});
