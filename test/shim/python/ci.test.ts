/** docs/howto/ci.md: its files, and the steps of its job after the installation, word for word. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory } from '../shim_host.js';
import { findPython, skipPython } from './python_steps.js';

const page = readFileSync(path.join(ROOT, 'docs/howto/ci.md'), 'utf8');
const block = (language: string): string =>
  new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'ms').exec(page)?.[1] ?? '';
const scripts = new Map(
  [...block('yaml').matchAll(/^ {6}- name: (.+)\n(?: {8}if: .*\n)? {8}run: \|\n((?: {10}.*\n)+)/gm)].map(
    ([, name = '', script = '']) => [name, script.replaceAll(/^ {10}/gm, '')],
  ),
);
const python = findPython('VGPU_TEST_TRITON', 'triton-pip', 'import triton, numpy');
const noNvcc = spawnSync('nvcc', ['--version']).error !== undefined && 'no nvcc here';
const noTriton = python === undefined && 'no Triton (scripts/fetch-packages triton-pip)';

describe('a job of CI without a GPU', { skip: skipPython }, () => {
  const scratch = scratchDirectory();
  after(() => scratch.remove());
  const bin = path.join(scratch.path, 'bin');
  mkdirSync(bin);
  for (const [name, command] of [
    ['vgpu-agent', `${process.execPath} ${path.join(ROOT, 'dist/bundle/main.js')}`],
    ['vgpu-hostd', builtFile('vgpu-hostd')],
    ['python3', python],
  ] as const) {
    writeFileSync(path.join(bin, name), `#!/bin/sh\nexec ${command} "$@"\n`);
    chmodSync(path.join(bin, name), 0o755);
  }
  writeFileSync(path.join(scratch.path, 'squares.cu'), block('cuda'));
  writeFileSync(path.join(scratch.path, 'test_add.py'), block('python'));

  /** Both steps; of the second one the lines that `wanted` matches. */
  const run = (wanted: RegExp): string => {
    const tests = (scripts.get('Tests') ?? '').split('\n').filter((line) => wanted.test(line));
    const script = ["trap 'kill %1' EXIT", scripts.get('Simulated GPU'), ...tests].join('\n');
    const ran = spawnSync('bash', ['-e', '-c', script.replaceAll('/tmp/', `${scratch.path}/`)], {
      cwd: scratch.path,
      encoding: 'utf8',
      timeout: 300_000,
      env: {
        ...process.env,
        PATH: `${bin}:${process.env['PATH']}`,
        VGPU_HOST: `unix:${scratch.path}/vgpu.sock`,
        XDG_CACHE_HOME: scratch.path,
      },
    });
    const log = readFileSync(path.join(scratch.path, 'vgpu.log'), 'utf8');
    assert.equal(ran.status, 0, `${script}\n${ran.stdout}${ran.stderr}\n${log}`);
    assert.match(log, /device 0: .*simulated/);
    assert.match(ran.stdout, /^kernels: (compiled with LLVM \d+|interpreted, because .+)$/m);
    return ran.stdout;
  };

  it('runs what nvcc built', { skip: noNvcc }, () => {
    assert.match(run(/squares/), /^sum of squares: 85344$/m);
  });

  it('runs what Triton compiles', { skip: noTriton }, () => {
    assert.match(run(/python3/), /^Triton adds$/m);
  });
});
