/** Where shared variables lie: those of functions beside those of who calls them, and a module's that no kernel has all of. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u32 } from './machine.js';

const HEAD = '.version 8.4\n.target sm_90\n.address_size 64\n';

/** Calls `inner`, which writes 9 into a shared variable, between writing 7 to its own and reading it. */
const caller = (name: string, callee: string): string => `.visible .entry ${name}(.param .u64 out) {
.shared .align 4 .b8 own[64];
.reg .b32 %a, %b; .reg .b64 %o;
ld.param.u64 %o, [out];
st.shared.u32 [own], 7;
{ .param .b32 p; .param .b32 q; st.param.b32 [p], 9; call (q), ${callee}, (p); ld.param.b32 %b, [q]; }
ld.shared.u32 %a, [own];
st.global.u32 [%o], %a;
st.global.u32 [%o+4], %b;
ret;
}
`;

const inner = (name: string, rest: string): string => `.func (.param .b32 r) ${name}(.param .b32 x) {
.shared .align 4 .b8 mine[64];
.reg .b32 %a, %b;
ld.param.u32 %a, [x];
st.shared.u32 [mine], %a;
${rest}
ld.shared.u32 %a, [mine];
st.param.b32 [r], %a;
ret;
}
`;

describe('shared variables', () => {
  it('are separate for a function, its caller and the functions that it calls', () => {
    const deeper =
      '{ .param .b32 p; .param .b32 q; st.param.b32 [p], 5; call (q), last, (p); ld.param.b32 %b, [q]; }';
    const outcome = runPtx({
      ptx: { text: `${HEAD}${inner('last', '')}${inner('middle', deeper)}${caller('k', 'middle')}` },
      buffers: [8],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.match(outcome.kernels[0] ?? '', / shared=192 /);
    assert.match(outcome.launches[0] ?? '', /^ok/);
    assert.deepEqual([...u32(outcome.buffers[0] ?? Buffer.alloc(0))], [7, 9]);
  });

  it('of a module apply to the kernels that name them, not to later ones', () => {
    const names = Array.from({ length: 20 }, (_, i) => `shared${i}`);
    const kernel = (i: number): string => `.visible .entry k${i}(.param .u64 out) {
.reg .b32 %a; .reg .b64 %o;
ld.param.u64 %o, [out];
st.shared.u32 [shared${i}+40956], ${i};
ld.shared.u32 %a, [shared${i}+40956];
st.global.u32 [%o], %a;
ret;
}
`;
    const outcome = runPtx({
      ptx: {
        text: `${HEAD}${names.map((name) => `.shared .align 16 .b8 ${name}[40960];\n`).join('')}${kernel(0)}${kernel(19)}`,
      },
      buffers: [4],
      launches: [
        { kernel: 'k0', block: [1], args: ['b1'] },
        { kernel: 'k19', block: [1], args: ['b1'] },
      ],
    });
    for (const line of outcome.kernels) assert.match(line, / shared=40960 /);
    for (const line of outcome.launches) assert.match(line, /^ok/);
    assert.deepEqual([...u32(outcome.buffers[0] ?? Buffer.alloc(0))], [19]);
  });

  it('without a size begin at their alignment, behind the other ones, also where a function names them', () => {
    const text = `${HEAD}.extern .shared .align 1024 .b8 large[];
.extern .shared .align 4 .b8 plain[];
.func (.param .b32 r) deep() {
.reg .b32 %a;
mov.u32 %a, large;
st.param.b32 [r], %a;
ret;
}
${['own', 'called', 'small', 'alone']
  .map(
    (name) => `.visible .entry ${name}(.param .u64 out) {
${name === 'alone' ? '' : '.shared .align 4 .b8 words[20];'}
.reg .b32 %a; .reg .b64 %o;
ld.param.u64 %o, [out];
${name === 'alone' ? '' : 'st.shared.u32 [words+16], 7;'}
${name === 'called' ? '{ .param .b32 q; call (q), deep, (); ld.param.b32 %a, [q]; }' : `mov.u32 %a, ${name === 'small' ? 'plain' : 'large'};`}
st.shared.u32 [%a+60], 5;
st.global.u32 [%o], %a;
ret;
}
`,
  )
  .join('')}`;
    const buffers = [4, 4, 4, 4];
    const outcome = runPtx({
      ptx: { text },
      buffers,
      launches: ['own', 'called', 'small', 'alone'].map((kernel, i) => ({
        kernel,
        block: [1],
        shared: 64,
        args: [`b${i + 1}`],
      })),
    });
    for (const line of outcome.launches) assert.match(line, /^ok/);
    // ptxas counts the gap as part of the variables that have a size
    const counted = outcome.kernels.map((line) => Number(/ shared=(\d+) /.exec(line)?.[1]));
    assert.deepEqual(counted, [1024, 1024, 32, 0]);
    const at = outcome.buffers.map((buffer) => u32(buffer)[0] ?? -1);
    assert.deepEqual([(at[0] ?? 1) % 1024, (at[1] ?? 1) % 1024, at[2], at[3]], [0, 0, 32, 0]);
  });
});
