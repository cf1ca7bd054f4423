/**
 * The analyses of kernels: registers share places only if no lane needs both values, values that are equal in a launch
 * are computed once, and results are those of the plain way.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { builtFile } from '../shim_host.js';
import { runPtx, u32 } from './machine.js';

/** `body` leaves %r0 of each thread; %t is its number in the block, %n the second parameter. */
function kernel(body: string, functions = ''): string {
  return `.version 8.4\n.target sm_90\n.address_size 64
${functions}
.entry k(.param .u64 out, .param .u32 number)
{
.reg .b64 %o, %w; .reg .b32 %r<400>, %t, %n, %b, %s; .reg .pred %p, %q;
mov.u32 %t, %tid.x;
${body}
ld.param.u64 %o, [out];
mov.u32 %b, %ctaid.x; mov.u32 %s, %ntid.x; mad.lo.u32 %b, %b, %s, %t;
mul.wide.u32 %w, %b, 4; add.u64 %o, %o, %w;
st.global.u32 [%o], %r0;
ret;
}
`;
}

const BLOCKS = 3;

/** Expects these numbers from every thread, with analyses and without. */
function leaves(
  text: string,
  expected: (thread: number, block: number) => number,
  { threads = 48, number = 5 } = {},
): void {
  for (const analyses of [0, 1, 2, 5, 7]) {
    const { load, launches, buffers } = runPtx({
      ptx: { text },
      analyses,
      buffers: [BLOCKS * threads * 4],
      launches: [{ kernel: 'k', grid: [BLOCKS], block: [threads], args: ['b1', `u32:${number}`] }],
    });
    assert.match(`${load}\n${launches[0]}`, /^ok.*\nok/);
    const want = Array.from({ length: BLOCKS * threads }, (_, i) =>
      expected(i % threads, Math.floor(i / threads)),
    );
    assert.deepEqual([...u32(buffers[0] ?? Buffer.alloc(0))], want, `analyses ${analyses}`);
  }
}

/** The bytes of a warp's registers. */
function frameBytes(text: string, analyses: number): number {
  const scratch = mkdtempSync(path.join(os.tmpdir(), 'frame-'));
  try {
    const file = path.join(scratch, 'module.ptx');
    writeFileSync(file, text);
    const run = spawnSync(builtFile('programs/ptx_run'), [], {
      input: `module ${file} 90\nframe k\n`,
      encoding: 'utf8',
      env: { ...process.env, PTX_ANALYSES: `${analyses}` },
    });
    const found = /^ok (\d+)$/m.exec(run.stdout)?.[1];
    assert.ok(found !== undefined, run.stdout);
    return Number(found);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** %r1 to %rN, each of the one before: no two of them are needed at once. */
const chain = (count: number): string =>
  Array.from({ length: count }, (_, i) => `add.u32 %r${i + 1}, %r${i}, 1;`).join('\n');

describe('places of registers', () => {
  it('are shared by registers that are never live together', () => {
    const text = kernel(`mov.u32 %r0, %t;\n${chain(300)}\nmov.u32 %r0, %r300;`);
    assert.ok(frameBytes(text, 0) > 300 * 128);
    assert.ok(frameBytes(text, 1) < 16 * 128, `${frameBytes(text, 1)} bytes`);
    leaves(text, (thread) => thread + 300);
  });
  it('are not shared where a lane that waits still needs its value', () => {
    // the upper lanes need %r1 after the join, while the lower ones use temporaries
    const text = kernel(`mul.lo.u32 %r1, %t, 3; mov.u32 %r0, 1;
setp.ge.u32 %p, %t, 16; @%p bra join;
mov.u32 %r2, 1000;\n${Array.from({ length: 40 }, (_, i) => `add.u32 %r${i + 3}, %r${i + 2}, 1;`).join('\n')}
add.u32 %r0, %r42, %r1;
bra end;
join:
add.u32 %r0, %r1, 7;
end:`);
    leaves(text, (thread) => (thread < 16 ? 1040 + 3 * thread : 3 * thread + 7));
  });
  it('keep what a guarded instruction did not write', () => {
    const text = kernel(`mov.u32 %r1, 70; mov.u32 %r2, 1; add.u32 %r3, %r2, %t;
setp.lt.u32 %p, %t, 20; @%p mov.u32 %r1, %r3; add.u32 %r4, %r3, 5; add.u32 %r0, %r1, %r4;`);
    leaves(text, (thread) => (thread < 20 ? thread + 1 : 70) + thread + 6);
  });
  it('keep values around a loop', () => {
    // %r1 is read at the start of a repetition and written in the middle of the one before
    const text = kernel(`mov.u32 %r1, %t; mov.u32 %r2, 0; mov.u32 %r0, 0;
again:
add.u32 %r0, %r0, %r1;
add.u32 %r1, %r1, 2;
mul.lo.u32 %r3, %r0, 3; add.u32 %r4, %r3, 1; xor.b32 %r5, %r4, %r3; add.u32 %r6, %r5, %r4;
and.b32 %r7, %r6, 0; add.u32 %r0, %r0, %r7;
add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 5; @%p bra again;`);
    leaves(text, (thread) => 5 * thread + 20);
  });
  it('keep values in a loop whose blocks are not in order', () => {
    // `last` comes first in the text and reads what `first` wrote, which comes last
    const text = kernel(`mov.u32 %r0, 0; mov.u32 %r2, 0; bra first;
last:
add.u32 %r0, %r0, %r9; add.u32 %r2, %r2, 1; setp.ge.u32 %p, %r2, 4; @%p bra end;
mov.u32 %r5, 100; add.u32 %r6, %r5, 1; add.u32 %r7, %r6, %r5; and.b32 %r7, %r7, 0; add.u32 %r0, %r0, %r7;
first:
add.u32 %r9, %t, %r2;
setp.lt.u32 %q, %r2, 100; @%q bra last;
end:`);
    leaves(text, (thread) => 4 * thread + 6);
  });
  it('stay those of registers that a path reads before it writes them', () => {
    const text = kernel(`mov.u32 %r1, 9; add.u32 %r2, %r1, %t; xor.b32 %r2, %r2, %r2;
setp.gt.u32 %p, %n, 100; @%p mov.u32 %r3, 8; add.u32 %r0, %r3, %r2;`);
    leaves(text, () => 0);
  });
  it('outlast calls and barriers', () => {
    const text = kernel(
      `mul.lo.u32 %r1, %t, 5; setp.lt.u32 %p, %t, 3;
{ .param .b32 a; .param .b32 r; st.param.b32 [a], %t; call (r), twice, (a); ld.param.b32 %r2, [r]; }
bar.red.popc.u32 %r3, 0, %p;
add.u32 %r4, %r1, %r2; add.u32 %r0, %r4, %r3;`,
      `.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %x<4>; ld.param.b32 %x0, [a];
add.u32 %x1, %x0, 1; add.u32 %x2, %x0, %x1; sub.u32 %x3, %x2, 1; st.param.b32 [r], %x3; ret; }`,
    );
    leaves(text, (thread) => 7 * thread + 3);
  });
  it('are found in bounded time and memory for a function with many blocks', () => {
    // too large for the sets: thousands of registers are live through thousands of blocks
    const blocks = 6000;
    const names = Array.from({ length: blocks }, (_, i) => i);
    const text = `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 out, .param .u32 number)
{ .reg .b64 %o; .reg .b32 %r<${blocks}>, %n, %s; .reg .pred %p;
ld.param.u32 %n, [number]; ld.param.u64 %o, [out];
${names.map((i) => `mov.u32 %r${i}, ${i};`).join('\n')}
mov.u32 %s, 0;
${names.map((i) => `b${i}: setp.gt.u32 %p, %n, ${i + 1000000}; @%p bra b${blocks - 1 - i}; add.u32 %s, %s, %r${i};`).join('\n')}
st.global.u32 [%o], %s; ret; }
`;
    const { launches, buffers } = runPtx({
      ptx: { text },
      buffers: [4],
      launches: [{ kernel: 'k', block: [1], args: ['b1', 'u32:5'] }],
    });
    assert.match(launches[0] ?? '', /^ok/);
    assert.equal(buffers[0]?.readUInt32LE(0), (blocks * (blocks - 1)) / 2);
  });
});

describe('values that are equal in a launch', () => {
  it('are there in every warp, also in one with more lanes than the first of its frame', () => {
    // 33 threads: the second warp of a block has one lane, and other blocks take its frame
    const text = kernel(`ld.param.u32 %n, [number]; mul.lo.u32 %r1, %n, 10; mov.u32 %r2, %ntid.x;
add.u32 %r3, %r1, %r2; add.u32 %r0, %r3, %t;`);
    leaves(text, (thread) => 50 + 33 + thread, { threads: 33 });
  });
  it('are not moved if their register is written again', () => {
    const text = kernel(`ld.param.u32 %n, [number]; mov.u32 %r2, 0; mov.u32 %r0, 0;
again:
add.u32 %r0, %r0, %n; add.u32 %n, %n, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 3; @%p bra again;`);
    leaves(text, () => 5 + 6 + 7);
  });
  it('are not moved with a guard, or from a path that others read without', () => {
    const text = kernel(`setp.lt.u32 %p, %t, 4; mov.u32 %r1, 1;
@%p ld.param.u32 %r1, [number];
setp.gt.u32 %q, %t, 40; @%q bra skip;
ld.param.u32 %r2, [number];
skip:
selp.u32 %r3, 0, %r2, %q; add.u32 %r0, %r1, %r3;`);
    leaves(text, (thread) => (thread < 4 ? 5 : 1) + (thread > 40 ? 0 : 5));
  });
  it('are rounded as their instruction says', () => {
    const text = kernel('ld.param.u32 %n, [number]; add.rz.f32 %r1, %n, 0f33800001; mov.b32 %r0, %r1;');
    leaves(text, () => 0x3f800000, { number: 0x3f800000 });
  });
  it('are those of each launch', () => {
    const text = kernel('ld.param.u32 %n, [number]; add.u32 %r1, %n, 1; mov.u32 %r0, %r1;');
    for (const number of [1, 2]) leaves(text, () => number + 1, { number });
  });
});

describe('accesses of a whole warp', () => {
  const shared = '.shared .align 8 .b32 there[256];';
  const fill = `${shared} mov.u32 %r1, there; mad.lo.u32 %r2, %t, 4, %r1; st.shared.u32 [%r2], %t; bar.sync 0;`;
  it('write what the upper lanes have where both halves write', () => {
    const text = kernel(`${fill}
and.b32 %r3, %t, 15; shr.u32 %r4, %t, 4; add.u32 %r3, %r3, %r4; mad.lo.u32 %r3, %r3, 4, %r1;
add.u32 %r5, %t, 100; st.shared.u32 [%r3], %r5; bar.sync 0;
ld.shared.u32 %r0, [%r2];`);
    leaves(text, (thread) => (thread === 0 ? 100 : thread <= 16 ? 115 + thread : thread), { threads: 32 });
  });
  it('wrap around at the end of 32 bits', () => {
    const text = kernel(`${fill}
mad.lo.u32 %r3, %t, 4, %r1; sub.u32 %r3, %r3, 64; ld.shared.u32 %r0, [%r3+64];`);
    leaves(text, (thread) => thread, { threads: 32 });
  });
  it('are right at an instruction whose lanes are now side by side, now anywhere', () => {
    const text = kernel(`${fill} mov.u32 %r0, 0; mov.u32 %r4, 0;
again:
and.b32 %r5, %r4, 1; mad.lo.u32 %r5, %r5, 2, 1; mul.lo.u32 %r5, %r5, %t; and.b32 %r5, %r5, 31;
mad.lo.u32 %r5, %r5, 4, %r1; ld.shared.u32 %r6, [%r5]; add.u32 %r0, %r0, %r6;
add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 80; @%p bra again;`);
    leaves(text, (thread) => 40 * thread + 40 * ((3 * thread) & 31), { threads: 32 });
  });
  it('report the same fault for the same lane', () => {
    const faults = [0, 7].flatMap((analyses) =>
      ['there+132', 'there+1000', 'there+2'].map((place) => {
        const text = kernel(`${shared.replace('256', '64')} mov.u32 %r1, ${place};
mad.lo.u32 %r2, %t, 4, %r1; ld.shared.u32 %r0, [%r2];`);
        const { launches } = runPtx({
          ptx: { text },
          analyses,
          buffers: [128],
          launches: [{ kernel: 'k', block: [32], args: ['b1', 'u32:1'] }],
        });
        assert.match(launches[0] ?? '', /^error/);
        return launches[0];
      }),
    );
    assert.deepEqual(faults.slice(3), faults.slice(0, 3));
  });
});
