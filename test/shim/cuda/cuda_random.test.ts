/**
 * Random kernels in C: what nvcc makes of them, run on the PTX machine, against what gcc makes of them. The same kernels in
 * every run. `VGPU_TEST_LONG=1`: 1,000 of them; `VGPU_CUDA_SEED=N`: one batch, which is left on disk if it fails.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { compiles } from '../ptx/compiled.js';
import { type Job, random, runPtx } from '../ptx/machine.js';
import { BLOCKS, LEFT, randomKernels, THREADS } from './cuda_random.js';
import { ROOT } from './private_programs.js';

const long = process.env['VGPU_TEST_LONG'] === '1';
const given = process.env['VGPU_CUDA_SEED'];
const KERNELS = given !== undefined || long ? 25 : 12;
const seeds = given !== undefined ? [Number(given)] : Array.from({ length: long ? 40 : 1 }, (_, i) => i + 1);
const OUT = BLOCKS * THREADS * LEFT * 4,
  SUMS = 64;
/** nvcc's ways: as programs are built, and for a debugger, where every variable lies in local memory. */
const WAYS = [['-O3'], ['-G']] as const;

const missing = ['nvcc', 'gcc'].filter((tool) => spawnSync(tool, ['--version']).status !== 0);
const skip = missing.length > 0 && `${missing.join(' and ')} not found: kernels of random C are not compared`;

describe('random kernels in C', { skip }, () => {
  let scratch = '';
  before(() => {
    scratch = mkdtempSync(path.join(os.tmpdir(), 'cuda-random-'));
  });
  after(() => rmSync(scratch, { recursive: true, force: true }));

  for (const seed of seeds) {
    it(`leave what gcc's program leaves, ${KERNELS} of seed ${seed}`, () => {
      const found = compare(path.join(scratch, `${seed}`), seed);
      if (found === undefined) return;
      const kept = path.join(os.tmpdir(), `cuda-random-${seed}.cu`);
      writeFileSync(kept, `#include "device.h"\n${randomKernels(seed, KERNELS).text}`);
      assert.fail(`VGPU_CUDA_SEED=${seed}: ${found}; the kernels are in ${kept}`);
    });
    const count = long ? KERNELS : 3;
    it(`leave the same with each region compared, ${count} of seed ${seed}`, { skip: compiles }, () => {
      assert.equal(compare(path.join(scratch, `${seed}-compared`), seed, count, 'check'), undefined);
    });
  }
});

const input = (): Buffer => {
  const next = random(4711);
  const buffer = Buffer.alloc(THREADS * 4);
  for (let i = 0; i < THREADS; i++) buffer.writeUInt32LE(i % 5 === 0 ? i : next(), i * 4);
  return buffer;
};

/** The first difference of the two, in words; undefined: there is none. */
function compare(
  folder: string,
  seed: number,
  count = KERNELS,
  compile: Job['compile'] = undefined,
): string | undefined {
  const kernels = randomKernels(seed, count);
  const headers = path.join(ROOT, 'test/shim/random_c');
  const at = (name: string): string => path.join(folder, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(at('k.cu'), `#include "device.h"\n${kernels.text}`);
  const numbers = Array.from({ length: kernels.count }, (_, i) => i);
  writeFileSync(
    at('k.c'),
    `#include "host.h"\n${kernels.text}
int main(void) {
  static u32 in[${THREADS}], out[${OUT / 4}], sums[${SUMS / 4}];
  if (fread(in, 1, sizeof in, stdin) != sizeof in) return 2;
${numbers
  .map(
    (i) => `  memset(out, 0, sizeof out); memset(sums, 0, sizeof sums); run(k${i}, ${BLOCKS}, out, in, sums);
  fwrite(out, 1, sizeof out, stdout); fwrite(sums, 1, sizeof sums, stdout);`,
  )
  .join('\n')}
  return 0;
}\n`,
  );
  const plain = ['-O1', '-w', '-std=gnu11', '-fwrapv', '-ffp-contract=off', '-fno-strict-aliasing'];
  execFileSync('gcc', [...plain, `-I${headers}`, '-o', at('k'), at('k.c'), '-lm'], { stdio: 'pipe' });
  const expected = execFileSync(at('k'), { input: input(), maxBuffer: 1 << 26 });
  const [first, second] = WAYS;
  const way = seed % 3 === 0 ? second : first;
  const options = ['-ptx', '-w', '-arch=sm_80', '-fmad=false', ...way, `-I${headers}`];
  execFileSync('nvcc', [...options, '-o', at('k.ptx'), at('k.cu')], { stdio: 'pipe' });
  const outcome = runPtx({
    ptx: { file: at('k.ptx') },
    lazy: seed % 2 === 0,
    ...(compile === undefined ? {} : { compile }),
    buffers: [input(), ...numbers.flatMap(() => [OUT, SUMS])],
    before: ['limit 20000', 'stack 4096', 'helpers 1'],
    launches: numbers.map((i) => ({
      kernel: `k${i}`,
      grid: [BLOCKS],
      block: [THREADS],
      args: [`b${2 + 2 * i}`, 'b1', `b${3 + 2 * i}`],
    })),
  });
  if (!outcome.load.startsWith('ok')) return outcome.load;
  if (compile !== undefined && (outcome.compiled.refused > 0 || outcome.compiled.compared === 0))
    return `compiled and compared: ${JSON.stringify(outcome.compiled)}`;
  for (const i of numbers) {
    const said = outcome.launches[i] ?? '';
    if (!said.startsWith('ok')) return `k${i}: ${said}`;
    const want = expected.subarray(i * (OUT + SUMS), (i + 1) * (OUT + SUMS));
    const have = Buffer.concat([
      outcome.buffers[1 + 2 * i] ?? Buffer.alloc(0),
      outcome.buffers[2 + 2 * i] ?? Buffer.alloc(0),
    ]);
    const place = want.findIndex((byte, k) => byte !== have[k]) & ~3;
    if (want.equals(have)) continue;
    const where =
      place >= OUT
        ? `sums[${(place - OUT) / 4}]`
        : `thread ${Math.floor(place / 4 / LEFT)}, word ${(place / 4) % LEFT}`;
    return `k${i}, ${where}: ${have.readUInt32LE(place).toString(16)} instead of ${want.readUInt32LE(place).toString(16)}`;
  }
  return undefined;
}
