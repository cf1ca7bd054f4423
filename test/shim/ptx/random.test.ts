/**
 * Random programs on the PTX machine against the same computed here: straight lines, predicates, lanes that part and
 * meet in branches and loops, shared memory, shuffles and votes. The same programs in every run, and others for seconds.
 * `VGPU_TEST_LONG=1`: a few thousand, and an hour of others; `VGPU_PTX_SECONDS=N`: others for so long;
 * `VGPU_PTX_SEED=N`: one program.
 */
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { describe, it } from 'node:test';
import { compiles } from './compiled.js';
import { type Job, runPtx } from './machine.js';
import { bytesLeft, randomProgram } from './random.js';
import { COUNTS, LEFT } from './random_text.js';

const BLOCKS = 2;

let compared = 0;

/** The first difference between the machine and the evaluation here, in words; undefined: there is none. */
function difference(seed: number, analyses?: number, compile?: Job['compile']): string | undefined {
  const threads = [32, 64, 96][seed % 3] ?? 32;
  const program = randomProgram(seed, seed % 7 === 0 ? 200 : 60);
  const { load, launches, buffers, compiled } = runPtx({
    ptx: { text: program.text },
    lazy: seed % 2 === 0,
    ...(analyses === undefined ? {} : { analyses }),
    ...(compile === undefined ? {} : { compile }),
    buffers: [BLOCKS * threads * LEFT],
    before: ['limit 60000'],
    launches: [{ kernel: 'k', grid: [BLOCKS], block: [threads], args: ['b1'] }],
  });
  compared += compiled.compared;
  if (!load.startsWith('ok') || launches[0]?.startsWith('ok') !== true) return `${load} ${launches[0]}`;
  const expected = Buffer.concat(
    Array.from({ length: BLOCKS }, (_, block) => bytesLeft(program.run(threads, block))),
  );
  const actual = buffers[0] ?? Buffer.alloc(0);
  if (expected.equals(actual)) return undefined;
  const place = expected.findIndex((byte, i) => byte !== actual[i]);
  const within = place % LEFT;
  const register =
    within < COUNTS.r * 4
      ? `%r${within >> 2}`
      : within < COUNTS.r * 4 + COUNTS.d * 8
        ? `%d${(within - COUNTS.r * 4) >> 3}`
        : `%f${(within - COUNTS.r * 4 - COUNTS.d * 8) >> 2}`;
  const word = (from: Buffer): string => from.readUInt32LE(place & ~3).toString(16);
  return `thread ${Math.floor(place / LEFT)}, ${register}: ${word(actual)} instead of ${word(expected)}`;
}

describe('random programs', () => {
  const one = process.env['VGPU_PTX_SEED'];
  const total = process.env['VGPU_TEST_LONG'] ? 3000 : 60;
  const seeds = one === undefined ? Array.from({ length: total }, (_, i) => i + 1) : [Number(one)];
  it(`leave the registers that they should, ${seeds.length} of them`, () => {
    for (const seed of seeds) {
      const found = difference(seed);
      assert.equal(found, undefined, `VGPU_PTX_SEED=${seed}: ${found}\n${randomProgram(seed).text}`);
    }
  });
  it('leave the same registers without analyses', () => {
    for (const seed of seeds.slice(0, Math.ceil(total / 4))) {
      assert.equal(difference(seed, 0), undefined, `VGPU_PTX_SEED=${seed}`);
    }
  });
  for (const compile of ['always', 'check'] as const) {
    it(`leave the same registers with compile ${compile}`, { skip: compiles }, () => {
      for (const seed of seeds.slice(0, Math.ceil(total / 12))) {
        assert.equal(difference(seed, undefined, compile), undefined, `VGPU_PTX_SEED=${seed}`);
      }
    });
  }

  const seconds = Number(process.env['VGPU_PTX_SECONDS'] ?? (process.env['VGPU_TEST_LONG'] ? 3600 : 5));
  const skip = one === undefined ? compiles : 'VGPU_PTX_SEED has one';
  it(`leave the same with compile check, others in each run, for ${seconds} s`, { skip }, (test) => {
    const end = performance.now() + seconds * 1000;
    const first = randomInt(1_000_000, 2 ** 31);
    test.diagnostic(`from VGPU_PTX_SEED=${first} on`);
    let seed = first;
    compared = 0;
    do {
      assert.equal(difference(seed, undefined, 'check'), undefined, `VGPU_PTX_SEED=${seed}`);
      seed++;
    } while (performance.now() < end);
    test.diagnostic(`${seed - first} programs, ${compared} regions compared`);
    assert.notEqual(compared, 0);
  });
});
