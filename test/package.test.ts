// scripts/package: the same bytes wherever the tree lies, what is in the packages, and what lintian says of them.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { whyNoPackages } from './guest/support/packages.js';
import { repository } from './guest/support/repository.js';
import { lintian, whyNoLintian } from './lintian.js';

const skip =
  whyNoPackages() ||
  (existsSync(path.join(repository, 'build/shim/vgpu-hostd')) ? false : 'the shim is not built');
const scratch = skip === false ? mkdtempSync(path.join(tmpdir(), 'vgpu-test-package-')) : '';
const sources = [
  'scripts',
  'docs',
  'profiles',
  'units',
  'package.json',
  'package-lock.json',
  'LICENSE',
  'README.md',
  'CHANGELOG.md',
];

/** The tree with what was built, somewhere else; git and what was fetched are this tree's. */
function copyOfTree(name: string): string {
  const copy = path.join(scratch, name);
  for (const part of [...sources, 'dist', 'build/shim', 'build/meson/cuda.map', 'build/meson/nvml.map']) {
    const filter = (from: string): boolean => !/\/(dist\/test|build\/shim\/programs)(\/|$)/.test(from);
    cpSync(path.join(repository, part), path.join(copy, part), { recursive: true, filter });
  }
  const git = execFileSync('git', ['-c', 'safe.directory=*', 'rev-parse', '--absolute-git-dir'], {
    cwd: repository,
    encoding: 'utf8',
  });
  writeFileSync(path.join(copy, '.git'), `gitdir: ${git}`);
  for (const part of ['.cache', 'node_modules'])
    symlinkSync(path.join(repository, part), path.join(copy, part));
  return copy;
}

function pack(tree: string, setting: { readonly umask: string; readonly zone: string }): string {
  const out = path.join(tree, 'build/packages');
  const ran = spawnSync('sh', ['-c', `umask ${setting.umask} && exec scripts/package --no-build --fast`], {
    cwd: tree,
    encoding: 'utf8',
    env: { ...process.env, TZ: setting.zone, LC_ALL: 'C.UTF-8' },
  });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  return out;
}

function archives(directory: string): readonly string[] {
  return readdirSync(directory).filter((name) => name.endsWith('.tar.xz'));
}

function sumsOf(directory: string): Readonly<Record<string, string>> {
  const sum = (name: string) =>
    createHash('sha256')
      .update(readFileSync(path.join(directory, name)))
      .digest('hex');
  return Object.fromEntries(readdirSync(directory).map((name) => [name, sum(name)]));
}

describe('scripts/package', { skip }, () => {
  let first: string;
  before(() => {
    first = pack(copyOfTree('one'), { umask: '022', zone: 'UTC' });
  });
  after(() => {
    rmSync(scratch, { recursive: true, force: true });
  });

  test('makes the same bytes in another directory, time zone and umask', () => {
    const second = pack(copyOfTree('quite/another one'), { umask: '077', zone: 'Asia/Kolkata' });
    assert.deepEqual(sumsOf(second), sumsOf(first));
    assert.equal(Object.keys(sumsOf(first)).filter((name) => name.endsWith('.deb')).length, 2);
  });

  test('names each package with its checksum in SHA256SUMS', () => {
    const checked = spawnSync('sha256sum', ['--strict', '-c', 'SHA256SUMS'], {
      cwd: first,
      encoding: 'utf8',
    });
    assert.equal(checked.status, 0, checked.stdout + checked.stderr);
    const debs = readdirSync(first).filter((name) => name.endsWith('.deb'));
    for (const name of [...debs, ...archives(first), 'NOTICES', 'sbom.cdx.json'])
      assert.match(checked.stdout, new RegExp(`^${name}: OK$`, 'm'));
  });

  test('packs only files of root that others cannot change, and nothing of this machine', () => {
    for (const name of readdirSync(first).filter((one) => one.endsWith('.deb'))) {
      const listed = execFileSync('dpkg-deb', ['-c', path.join(first, name)], { encoding: 'utf8' });
      const wrong = listed
        .trim()
        .split('\n')
        .filter(
          (line) => !/^(l|[d-]rw[x-]r-[x-]r-[x-]) ?\S* root\/root /.test(line) && !line.startsWith('l'),
        );
      assert.deepEqual(wrong, [], name);
      const tree = path.join(scratch, `${name}.tree`);
      mkdirSync(tree);
      execFileSync('dpkg-deb', ['-x', path.join(first, name), tree]);
      const named = spawnSync('grep', ['-rlF', '-e', repository, '-e', scratch, tree], { encoding: 'utf8' });
      assert.equal(named.stdout, '', 'files that name the directory they were built in');
    }
  });

  test('has the version of package.json in the package, in the libraries and in CHANGELOG.md', () => {
    const { version } = JSON.parse(readFileSync(path.join(repository, 'package.json'), 'utf8'));
    for (const name of ['vgpu-agent', 'vgpu-hostd']) {
      const deb = readdirSync(first).find((one) => one.startsWith(`${name}_`)) ?? '';
      const said = execFileSync('dpkg-deb', ['-f', path.join(first, deb), 'Version'], { encoding: 'utf8' });
      assert.equal(said.trim(), version);
    }
    const library = readFileSync(path.join(repository, 'build/shim/libcuda.so.1'), 'latin1');
    assert.ok(library.includes(`{"component":"libcuda","version":"${version}"`), 'the note of libcuda');
    assert.match(
      readFileSync(path.join(repository, 'CHANGELOG.md'), 'utf8'),
      new RegExp(`^## ${version} `, 'm'),
    );
  });

  test('recommends an LLVM of each Debian release, with which the simulated GPU compiles kernels', () => {
    const deb = readdirSync(first).find((one) => one.startsWith('vgpu-hostd_')) ?? '';
    const said = execFileSync('dpkg-deb', ['-f', path.join(first, deb), 'Recommends'], { encoding: 'utf8' });
    assert.equal(said.trim(), 'systemd, libllvm19 | libllvm18 | libllvm17t64 | libllvm16 | libllvm15');
  });

  test('names every package that is bundled, and has its licence, in NOTICES and in the SBOM', () => {
    const texts = readFileSync(path.join(first, 'NOTICES'), 'utf8');
    const { components } = JSON.parse(readFileSync(path.join(first, 'sbom.cdx.json'), 'utf8'));
    const listed = new Set((components as readonly { purl: string }[]).map(({ purl }) => purl));
    // The bundle's own map of sources, which nothing of scripts/package reads. A package's own map may name files outside it.
    const bundle = path.join(repository, 'dist/bundle');
    const bundled = new Set(
      readdirSync(bundle)
        .filter((name) => name.endsWith('.map'))
        .flatMap(
          (name) => JSON.parse(readFileSync(path.join(bundle, name), 'utf8')).sources as readonly string[],
        )
        .flatMap((source) => /node_modules\/(@[^/]+\/[^/.][^/]*|[^/@.][^/]*)\//.exec(source)?.[1] ?? []),
    );
    assert.ok(bundled.size > 40, 'finds the packages');
    for (const name of [...bundled, 'systemd-journald', 'nan', 'ajv']) {
      const place = path.join(repository, 'node_modules', name);
      const { version } = JSON.parse(readFileSync(path.join(place, 'package.json'), 'utf8'));
      const license = readdirSync(place).find((file) => /^(licen[cs]e|copying)/i.test(file)) ?? '';
      assert.ok(texts.includes(`\n  ${name} ${version} (`), `${name} ${version} in NOTICES`);
      assert.ok(
        texts.includes(readFileSync(path.join(place, license), 'utf8').trim()),
        `the licence of ${name}`,
      );
      assert.ok(listed.has(`pkg:npm/${name.replace('@', '%40')}@${version}`), `${name} in the SBOM`);
    }
    assert.ok(
      [...listed].some((purl) => purl.startsWith('pkg:npm/node-linux-')),
      'Node in the SBOM',
    );
  });

  test('the archive for other systems works where it is unpacked, without a GPU and without root', () => {
    const [archive = ''] = archives(first);
    const place = path.join(scratch, 'unpacked');
    mkdirSync(place);
    execFileSync('tar', ['-x', '--no-same-owner', '-f', path.join(first, archive), '-C', place]);
    chmodSync(scratch, 0o755);
    const root = path.join(place, archive.replace(/\.tar\.xz$/, ''));
    const options = { encoding: 'utf8', env: { PATH: '/usr/bin:/bin' } } as const;
    const as = process.getuid?.() === 0 ? { ...options, uid: 65534, gid: 65534 } : options;
    const ran = spawnSync(path.join(root, 'examples/smoke_test.sh'), { ...as, cwd: '/' });
    assert.equal(ran.status, 0, ran.stdout + ran.stderr);
    assert.match(ran.stdout, /every number right\nAll passed\. The GPU was SIMULATED/);
    // Without the library the check fails, which shows that it can.
    rmSync(path.join(root, 'agent/build/shim/libcuda.so.1'));
    assert.equal(spawnSync(path.join(root, 'examples/smoke_test.sh'), { ...as, cwd: '/' }).status, 1);
  });

  test('lintian has nothing to say but what the overrides explain', {
    skip: whyNoLintian(),
  }, () => {
    const ran = lintian(first);
    assert.equal(ran.stdout, '', ran.stderr);
    assert.equal(ran.status, 0, ran.stderr);
  });
});
