/** vgpu-ptxas: the "ptxas" that hands PTX to a simulated GPU, called as compilers call NVIDIA's. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { builtFile, scratchDirectory } from '../shim_host.js';

const text = '// a comment\n.version 8.0\n.target sm_90\n.address_size 64\n';

describe('vgpu-ptxas', () => {
  const scratch = scratchDirectory();
  after(() => scratch.remove());
  const input = path.join(scratch.path, 'in.ptx');
  const output = path.join(scratch.path, 'out.o');
  writeFileSync(input, text);
  const notPtx = path.join(scratch.path, 'object.o');
  writeFileSync(notPtx, '\x7fELF\x02 .version');

  const run = (...args: readonly string[]) =>
    spawnSync(builtFile('vgpu-ptxas'), args, { encoding: 'utf8', cwd: scratch.path });

  it('names a release as compilers read it, and does not call itself ptxas', () => {
    const { status, stdout } = run('--version');
    assert.equal(status, 0);
    assert.match(stdout, /\brelease \d+\.\d+, V\d+\.\d+\.\d+$/m);
    assert.doesNotMatch(stdout, /NVIDIA/);
  });

  for (const [who, args] of [
    ['Triton', ['-lineinfo', '-v', '--regAllocOptLevel=2', '--gpu-name=sm_90a', input, '-o', output]],
    [
      'Triton without optimization',
      ['-g', '-v', '--opt-level', '0', '--gpu-name=sm_90a', input, '-o', output],
    ],
    ['XLA', [input, '-o', output, '-arch=sm_90a', '--warn-on-spills', '-O3']],
    ['nvcc', ['-arch=sm_90', '-m64', input, '--output-file', output]],
    ['a script', ['--gpu-name', 'sm_90', '--maxrregcount', '32', `--output-file=${output}`, input]],
  ] as const) {
    it(`writes the text and the NUL that ends it when ${who} calls`, () => {
      writeFileSync(output, 'of before');
      const { status, stderr } = run(...args);
      assert.deepEqual([status, stderr], [0, '']);
      assert.equal(readFileSync(output, 'latin1'), `${text}\0`);
    });
  }

  it('writes elf.o without -o, as ptxas does', () => {
    assert.equal(run(input).status, 0);
    assert.equal(readFileSync(path.join(scratch.path, 'elf.o'), 'latin1'), `${text}\0`);
  });

  for (const [what, args, code, message] of [
    ['no file', ['-v'], 2, /no file of PTX was given/],
    ['two files', [input, 'other.ptx'], 2, /one file of PTX at a time: ".*in\.ptx" and "other\.ptx"/],
    ['a text as an argument', ['--input-as-string', text], 2, /--input-as-string is not supported/],
    ['a missing file', ['missing.ptx'], 1, /cannot read "missing\.ptx"/],
    ['a file that is no PTX', [notPtx], 1, /is no PTX: it has no \.version/],
    ['an output that cannot be written', [input, '-o', '/proc/none'], 1, /cannot write "\/proc\/none"/],
  ] as const) {
    it(`refuses ${what} by name`, () => {
      const { status, stderr } = run(...args);
      assert.equal(status, code);
      assert.match(stderr, /^(?:.*\n)?vgpu-ptxas: /);
      assert.match(stderr, message);
    });
  }
});
