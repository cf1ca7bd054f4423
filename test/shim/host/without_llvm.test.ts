/** LLVM is an optional package: with it kernels are compiled; without it they are interpreted, and tests say so. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { compiles } from '../ptx/compiled.js';

/** Runs a command where no LLVM is: in a mount namespace of its own. */
const WITHOUT = `set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay none -o lowerdir=/usr/lib/x86_64-linux-gnu,upperdir=/mnt/upper,workdir=/mnt/work /usr/lib/x86_64-linux-gnu
rm -f /usr/lib/x86_64-linux-gnu/libLLVM*
exec "$@"`;
const without = (...command: readonly string[]) =>
  spawnSync('unshare', ['-m', 'sh', '-c', WITHOUT, 'sh', ...command], {
    encoding: 'utf8',
    // a runner within a runner would report to the outer one
    env: { ...process.env, NODE_TEST_CONTEXT: undefined, PTX_COMPILE: undefined },
  });

const fits = / avx2 /.test(readFileSync('/proc/cpuinfo', 'latin1')) ? false : 'no processor with AVX2';
const packages = spawnSync('dpkg-query', ['--list', 'libllvm*'], { encoding: 'utf8' }).stdout ?? '';
const installed = [...packages.matchAll(/^ii +libllvm(\d+)/gm)].map((found) => Number(found[1]));
const namespaces = without('true');

describe('LLVM', { skip: fits }, () => {
  const none = installed.some((version) => version >= 15)
    ? false
    : 'no LLVM from 15 on is installed here (scripts/setup --develop installs libllvm19)';
  it('is found where a package of it is installed', { skip: none }, () => {
    assert.equal(compiles, false, `installed: ${installed.join(' ')}`);
  });
});

describe('without LLVM', { skip: fits || (namespaces.status !== 0 && namespaces.stderr.trim()) }, () => {
  it('tests of compiled kernels are skipped with the reason, the others pass', () => {
    const tests = path.join(path.dirname(fileURLToPath(import.meta.url)), 'compile.test.js');
    const { status, stdout } = without(process.execPath, '--test', '--test-reporter=tap', tests);
    assert.equal(status, 0, stdout);
    assert.match(
      stdout,
      /^ok \d+ - vgpu-hostd --software-compile # SKIP kernels cannot be compiled: no LLVM 15 to 19 or 21 to 23 is installed \(on Debian: apt install libllvm19\)$/m,
    );
    assert.match(stdout, /ok \d+ - is auto by default: kernels are compiled, or the status has the reason$/m);
  });
});
