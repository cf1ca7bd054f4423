import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import type { Distribution, LoaderCacheEntry } from '../../../../agent/contracts/facts.js';
import { readDistribution } from '../../../../agent/guest/distribution.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { parseLoaderCache, readLoaderDirectories } from '../../../../agent/guest/libraries/loader.js';
import { grow, tree } from '../support.js';

/** ldconfig is in /sbin, which is not in every PATH. */
const ldconfig = ['/sbin/ldconfig', '/usr/sbin/ldconfig'].find(existsSync) ?? 'ldconfig';

/** The output of `ldconfig -p`, in its order. */
function told(args: readonly string[]): LoaderCacheEntry[] {
  const result = spawnSync(ldconfig, [...args, '-p'], { encoding: 'utf8', env: { LC_ALL: 'C' } });
  assert.equal(result.status, 0, result.stderr);
  return [...result.stdout.matchAll(/^\t(.+) \((.+)\) => (.+)$/gm)].map((match) => ({
    soname: match[1] ?? '',
    flags: match[2] ?? '',
    path: match[3] ?? '',
  }));
}

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
  it('says of this system what ldconfig -p says, in its order', () => {
    const entries = parseLoaderCache(readFileSync('/etc/ld.so.cache'));
    assert.ok(entries !== null && entries.length > 10);
    assert.deepEqual(entries, told([]));
  });

  const noRoot = process.geteuid?.() !== 0 && 'ldconfig -r needs root';
  it('says of a root with glibc-hwcaps and our directory what ldconfig -p says', {
    skip: noRoot,
  }, (context) => {
    const directory = tree(context);
    compiledRoot(directory);
    const built = spawnSync(ldconfig, ['-r', directory], { encoding: 'utf8' });
    assert.equal(built.status, 0, built.stderr);
    const cache = path.join(directory, 'etc/ld.so.cache');
    const entries = parseLoaderCache(readFileSync(cache));
    assert.deepEqual(entries, told(['-C', cache]));
    // glibc-hwcaps come first, then the first directory of the configuration.
    assert.deepEqual(
      entries.map((entry) => [entry.path, entry.flags]),
      [
        ['/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libcuda.so.1', 'libc6,x86-64, hwcap: "x86-64-v3"'],
        ['/opt/vgpu/libcuda.so.1', 'libc6,x86-64'],
        ['/usr/lib/x86_64-linux-gnu/libcuda.so.1', 'libc6,x86-64'],
      ],
    );
  });

  it('reads the two-format cache of older glibc', { skip: noRoot }, (context) => {
    const directory = tree(context);
    compiledRoot(directory);
    rmSync(path.join(directory, 'usr/lib/x86_64-linux-gnu/glibc-hwcaps'), { recursive: true });
    assert.equal(spawnSync(ldconfig, ['-r', directory, '-c', 'compat']).status, 0);
    const cache = path.join(directory, 'etc/ld.so.cache');
    assert.equal(readFileSync(cache).toString('latin1', 0, 11), 'ld.so-1.7.0');
    const entries = parseLoaderCache(readFileSync(cache));
    assert.deepEqual(entries, told(['-C', cache]));
    assert.equal(entries[0]?.path, '/opt/vgpu/libcuda.so.1');
  });

  it('takes a cache that is cut off or damaged for none, and never throws', () => {
    const whole = readFileSync('/etc/ld.so.cache');
    assert.equal(parseLoaderCache(Buffer.alloc(0)), null);
    assert.equal(parseLoaderCache(Buffer.from('ld.so-1.7.0')), null);
    assert.equal(parseLoaderCache(whole.subarray(0, 100)), null);
    for (let length = 0; length < whole.length; length += 97) parseLoaderCache(whole.subarray(0, length));
    for (let at = 0; at < 480; at += 1) {
      const broken = Buffer.from(whole);
      broken[at] = 0xff;
      parseLoaderCache(broken);
    }
  });
});

const debian: Distribution = {
  id: 'debian',
  versionId: '12',
  prettyName: 'Debian',
  family: 'debian',
  architecture: 'x86_64',
  multiarch: 'x86_64-linux-gnu',
  mergedUsr: true,
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
    const fedora: Distribution = { ...debian, id: 'fedora', family: 'redhat', multiarch: null };
    assert.deepEqual(
      readLoaderDirectories(new Root(tree(context)), fedora).map((one) => one.path),
      ['/lib64', '/usr/lib64', '/lib', '/usr/lib'],
    );
  });
});
