/** Constructs that ptxas accepts and nvcc no longer writes: older compilers and people do. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { askAll, type Host, type Shell, scratchDirectory, startHost, startShell } from '../shim_host.js';
import { runPtx, u32 } from './machine.js';

const HEAD = '.version 8.7\n.target sm_90\n.address_size 64\n';
const OLD = '.version 1.4\n.target sm_13\n';

/** A kernel `k` whose parameter `p` is in %rd1. */
const kernel = (body: string): string => `.entry k(.param .u64 p) {
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %q<3>; .local .align 8 .b8 x[64];
ld.param.u64 %rd1, [p]; ${body} ret; }
`;

/** The first words of the buffer that the text's kernel `k` gets, after one thread of it. */
function words(text: string, count: number, name = 'k'): readonly number[] {
  const { load, refused, launches, buffers } = runPtx({
    ptx: { text },
    buffers: [Buffer.alloc(64)],
    launches: [{ kernel: name, block: [1], args: ['b1'] }],
  });
  assert.match(`${load} ${launches[0]}`, /^ok .* ok /, refused.join());
  return [...u32(buffers[0] ?? Buffer.alloc(64)).subarray(0, count)];
}

const store = (register: string, at = 0): string => `st.global.u32 [%rd1+${at}], ${register};`;

const PROTOTYPES = `.visible .func (.param .b32 r) twice (.param .b32 a)

.const .align 4 .u32 c = 21;
.func nothing() .func nothing() { ret; }
.visible .func (.param .b32 r) twice (.param .b32 a)
{ .reg .u32 %r<3>; ld.param.u32 %r1, [a]; add.u32 %r2, %r1, %r1; st.param.u32 [r], %r2; ret; }
`;
const CALLS_TWICE = kernel(
  `.param .b32 to, from; ld.const.u32 %r1, [c]; st.param.b32 [from], %r1; call (to), twice, (from);
   ld.param.b32 %r2, [to]; ${store('%r2')}`,
);
/** 2 is stored by the kernel, the function adds 3 to it, and the kernel's own variable is another one. */
const MODULE_LOCAL = `.local .align 8 .b8 both[8], other[4];
.func more() { .reg .u32 %r<2>; .local .u32 mine; st.local.u32 [mine], 9; ld.local.u32 %r1, [both+4]; add.u32 %r1, %r1, 3; st.local.u32 [both+4], %r1; ret; }
${kernel(`st.local.u32 [both+4], 2; st.local.u32 [x], 70; call more; ld.local.u32 %r1, [both+4]; ld.local.u32 %r2, [x]; ${store('%r1')} ${store('%r2', 4)}`)}`;

describe('a prototype without a semicolon', () => {
  it('ends where the next statement begins', () => {
    assert.deepEqual(words(`.version 2.1\n.target sm_20\n${PROTOTYPES}${CALLS_TWICE}`, 1), [42]);
  });

  it('may be the last of a text, and is one of a kernel only with a semicolon', () => {
    assert.deepEqual(words(`${HEAD}${kernel(store('7'))}.func f()`, 1), [7]);
    assert.match(
      runPtx({ ptx: { text: `${HEAD}.entry e()\n${kernel('')}` } }).load,
      /^error invalid PTX: line 5: '\{' expected before '\.entry/,
    );
  });
});

describe('variables outside of functions', () => {
  it('in .local are shared by all functions of a thread', () => {
    assert.deepEqual(words(`.version 2.1\n.target sm_20\n${MODULE_LOCAL}`, 2), [5, 70]);
  });

  it('in .reg are registers of each kernel, and cost the functions that would share them', () => {
    const registers = `.version 2.1\n.target sm_20\n.reg .u32 %m<3>;\n.reg .v2 .u32 pair;\n`;
    const body = `mov.u32 %m2, 5; mov.u32 pair.y, 6; ${store('%m2')} ${store('pair.y', 4)}`;
    assert.deepEqual(words(`${registers}${kernel(body)}`, 2), [5, 6]);
    const text = `${registers}.func f() { mov.u32 %m1, 3; ret; }\n.entry calls() { call f; ret; }\n${kernel(body)}`;
    assert.deepEqual(words(text, 2), [5, 6]);
    assert.deepEqual(runPtx({ ptx: { text } }).refused, [
      'line 5: a function in a module that has registers outside of functions (in the function f), so the kernel calls cannot run',
    ]);
  });

  it('in .tex are texture references, with a coordinate for each of four dimensions', () => {
    const fetch =
      'mov.f32 %f1, 0f00000000; tex.1d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f1,%f1,%f1,%f1}]; txq.width.b32 %r1, [t];';
    const { load, refused } = runPtx({ ptx: { text: `${OLD}.tex .u64 t, other;\n${kernel(fetch)}` } });
    assert.match(load, /^ok kernels=1 globals=2 data=16 /);
    assert.deepEqual(refused, []);
    assert.match(
      runPtx({ ptx: { text: `${OLD}.tex .f32 t;\n` } }).load,
      /^error invalid PTX: line 3: a \.tex variable that is not \.u32 or \.u64/,
    );
  });
});

describe('a register that is a vector', () => {
  const swap = `${HEAD}.func (.reg .v2 .u32 o) swap(.reg .v2 .u32 i) { mov.u32 o.x, i.y; mov.u32 o.y, i.x; ret; }
.func (.reg .v4 .u16 o, .reg .u32 sum) four(.reg .u32 a, .reg .v4 .u16 i) { .reg .u32 %r<2>;
  mov.u16 o.x, i.w; mov.u16 o.y, i.z; mov.u16 o.z, i.y; mov.u16 o.w, i.x; cvt.u32.u16 %r1, i.z; add.u32 sum, a, %r1; ret; }
.func (.reg .b128 o) wide(.reg .b128 i) { .reg .b64 %a, %b; mov.b128 {%a, %b}, i; add.u64 %b, %b, 1; mov.b128 o, {%b, %a}; ret; }
.func (.param .b64 o) whole(.param .b64 i) { .reg .b64 %a; ld.param.u64 %a, [i]; add.u64 %a, %a, 1; st.param.u64 [o], %a; ret; }
`;

  it('is passed to a function and returned', () => {
    const body = `.reg .v2 .u32 a, b; .reg .v4 .u16 c<2>; .reg .b128 w, v;
mov.u32 a.x, 1; mov.u32 a.y, 2; call (b), swap, (a); st.global.v2.u32 [%rd1], b;
mov.u16 c0.x, 10; mov.u16 c0.y, 20; mov.u16 c0.z, 30; mov.u16 c0.w, 40; call (c1, %r1), four, (5, c0);
st.global.v4.u16 [%rd1+8], c1; ${store('%r1', 16)}
mov.u64 %rd2, 7; mov.u64 %rd3, 8; mov.b128 w, {%rd2, %rd3}; call (v), wide, (w); mov.b128 {%rd4, %rd5}, v;
cvt.u32.u64 %r2, %rd4; cvt.u32.u64 %r3, %rd5; ${store('%r2', 20)} ${store('%r3', 24)}
call (b), whole, (a); st.global.v2.u32 [%rd1+32], b; call (_), swap, (a);`;
    assert.deepEqual(words(swap + kernel(body), 10), [
      ...[2, 1, (30 << 16) | 40, (10 << 16) | 20, 35, 9, 7],
      ...[0, 2, 2],
    ]);
  });

  it('is passed through a pointer, too', () => {
    const body = `.reg .v2 .u32 a, b; mov.u32 a.x, 1; mov.u32 a.y, 2; mov.u64 %rd2, swap;
to: .callprototype (.reg .v2 .u32 _) _ (.reg .v2 .u32 _); call (b), %rd2, (a), to; st.global.v2.u32 [%rd1], b;`;
    assert.deepEqual(words(swap + kernel(body), 2), [2, 1]);
  });
});

describe('a function whose parameters cannot be read', () => {
  const text = `${HEAD}.func huge(.param .align 8 .b8 i[40000]) { ret; }
.func (.param .b32 r) odd(.param .newspace .b32 a);
.func (.param .b32 r) odd(.param .newspace .b32 a) { ret; }
.entry bad() { .param .align 8 .b8 i[8]; call huge, (i); ret; }
.entry worse() { .param .b32 r, a; call (r), odd, (a); ret; }
${kernel(store('7'))}`;
  for (const lazy of [false, true]) {
    it(`costs the kernels that call it and no other, ${lazy ? 'decoded at the launch' : 'at the load'}`, () => {
      const launch = (name: string, ...args: string[]) => ({ kernel: name, block: [1], args });
      const { load, refused, launches, buffers } = runPtx({
        ptx: { text },
        lazy,
        buffers: [8],
        launches: [launch('bad'), launch('worse'), launch('k', 'b1')],
      });
      assert.match(load, /^ok kernels=3 /);
      const why = [
        'line 4: a parameter of 40000 bytes (in the function huge)',
        "line 6: '.newspace' in a declaration (in the function odd)",
      ];
      assert.deepEqual(
        refused,
        lazy ? [] : why.map((words, i) => `${words}, so the kernel ${['bad', 'worse'][i]} cannot run`),
      );
      why.forEach((words, i) => {
        assert.ok(
          launches[i]?.startsWith('error unsupported: ') && launches[i]?.includes(words),
          launches[i],
        );
      });
      assert.match(launches[2] ?? '', /^ok /);
      assert.equal(buffers[0]?.readUInt32LE(0), 7);
    });
  }

  it('may be a kernel', () => {
    const odd = `${HEAD}.entry odd(.param .newspace .b32 a) { ret; }\n${kernel(store('7'))}`;
    assert.deepEqual(words(odd, 1), [7]);
    assert.deepEqual(runPtx({ ptx: { text: odd } }).refused, [
      "line 4: '.newspace' in a declaration, so the kernel odd cannot run",
    ]);
  });
});

describe('a register and a constant as one operand', () => {
  it('is their sum, in the width of the register', () => {
    const body = `mov.u64 %rd2, 41; st.local.u64 [x], %rd2 + 1; ld.local.u32 %r1, [x]; ${store('%r1')}
mov.u32 %r1, 5; mov.u32 %r2, 7; mul.lo.u32 %r3, %r1+4*3, %r2+-1; ${store('%r3', 4)}
mov.u16 %h1, 65535; cvt.u32.u16 %r3, %h1+2; ${store('%r3', 8)} st.global.u8 [%rd1+12], %r1+256; ${store('%r2+1+2', 16)}
setp.eq.u32 %q1, %r1+2, %r2; selp.u32 %r3, %r1+1, %r2, %q1; ${store('%r3', 20)}`;
    assert.deepEqual(words(HEAD + kernel(body), 6), [42, 102, 1, 5, 10, 6]);
  });

  for (const instruction of ['mov.u32 %r1+1, %r2', 'add.f32 %f1, %f2+1, %f3', 'mov.pred %q1, %q2+1'])
    it(`is refused in ${instruction}`, () => {
      const { load, refused } = runPtx({ ptx: { text: HEAD + kernel(`${instruction};`) } });
      assert.match(load, /^ok /);
      assert.match(refused.join(), /^line 6: \S+ is not supported: a (constant added|register expected)/);
    });
});

describe('a constant expression', () => {
  /** Computed once by ptxas 13.0, as the initial value of a .u64 variable. */
  const integers: Readonly<Record<string, bigint>> = {
    '(1+2)*3': 9n,
    '1<<4|3': 19n,
    '5>3?7:9': 7n,
    '~0': -1n,
    '!5': 0n,
    '!0': 1n,
    '-5/2': -2n,
    '7% -3': 7n,
    '-1>>63': -1n,
    '0xFFFFFFFFFFFFFFFF>>1': 0x7fffffffffffffffn,
    '-1/2': 0n,
    '0xFFFFFFFFFFFFFFFF/2': 0x7fffffffffffffffn,
    '-1<1': 1n,
    '-1U<1': 0n,
    '-1<1U': 0n,
    '1&&0': 0n,
    '2||0': 1n,
    '1?-1:2U': -1n,
    '(.s64)-1/2': 0n,
    '(.u64)-1/2': 0x7fffffffffffffffn,
    '2+3*4-1': 13n,
    '10-3-2': 5n,
    '100/5/2': 10n,
    '1<<2<<3': 32n,
    '1<<65': 2n,
    '1<<-1': -0x8000000000000000n,
    'WARP_SZ*2': 64n,
    '1?2:3?4:5': 2n,
    '0?2:0?4:5': 5n,
    '0x7fffffffffffffff+1': -0x8000000000000000n,
    '010+0b11': 11n,
    '- -5': 5n,
    '1 < 2 == 1': 1n,
    '4 ^ 1 | 2': 7n,
    '1 | 2 & 3': 3n,
    '1 + 2 << 3': 24n,
    '-5 > 3U': 1n,
    '-3 >= -4': 1n,
    '~5 & 0xf': 10n,
    '(-7)>>1U': -4n,
    '-7U>>1': 0x7ffffffffffffffcn,
    '-7/2U': 0x7ffffffffffffffcn,
    '-1==18446744073709551615': 1n,
    '5-6U<0': 0n,
    '1.0<2.0': 1n,
    '1.5==1.0+0.5': 1n,
  };
  it('has the values that the ISA defines, as an initial value and as an operand', () => {
    const all = Object.entries(integers);
    const variables = all.map(([text], i) => `.global .u64 g${i} = ${text};`).join('\n');
    const body = all
      .map(
        ([text], i) =>
          `ld.global.u64 %rd2, [g${i}]; st.global.u64 [%rd1+${i * 16}], %rd2; mov.u64 %rd2, ${text}; st.global.u64 [%rd1+${i * 16 + 8}], %rd2;`,
      )
      .join('\n');
    const { load, launches, buffers } = runPtx({
      ptx: { text: `${HEAD}${variables}\n${kernel(body)}` },
      buffers: [all.length * 16],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.match(`${load} ${launches[0]}`, /^ok .* ok /);
    all.forEach(([text, value], i) => {
      assert.equal(buffers[0]?.readBigInt64LE(i * 16), value, `initial value ${text}`);
      assert.equal(buffers[0]?.readBigInt64LE(i * 16 + 8), value, `operand ${text}`);
    });
  });

  it('may be a float, a dimension, an alignment and a part of an address', () => {
    const text = `${HEAD}.global .align 4*2 .f64 f = -1.5*2.0/4.0; .shared .align 2<<2 .b8 s[(3+1)*2][2];
${kernel(`ld.global.f64 %rd2, [f]; st.global.u64 [%rd1+(4+4)], %rd2; mov.u32 %r1, s; mov.u32 %r2, s+4*2; sub.u32 %r1, %r2, %r1; ${store('%r1')} ${store('%r1', 4)} st.global.u32 [%rd1+32-4*4], 3;`).replaceAll('.f64 %rd2', '.u64 %rd2')}`;
    assert.deepEqual(words(text, 5), [8, 8, 0, 0xbfe80000, 3]);
    assert.match(runPtx({ ptx: { text } }).kernels[0] ?? '', / shared=16 /);
  });

  const wrong: Readonly<Record<string, RegExp>> = {
    '5/0': /divides by zero/,
    '1+2.0': /integers and floats/,
    '2.0?1:0': /an integer expected/,
    '!1.5': /an integer expected/,
    '(1+2': /'\)' expected/,
    '1+k': /'k' in a constant expression/,
    [`${'('.repeat(1000)}1`]: /nested too deep/,
    [`${'-'.repeat(1000)}1`]: /nested too deep/,
  };
  for (const [text, why] of Object.entries(wrong))
    it(`is refused: ${text.slice(0, 12)}`, () => {
      const { load } = runPtx({ ptx: { text: `${HEAD}.global .u64 g = ${text};\n` } });
      assert.match(load, /^error invalid PTX: line 4: /);
      assert.match(load, why);
    });
});

describe('a special register', () => {
  it('of performance counters, and the fourth element of one that has three, are zero', () => {
    const body = `mov.u64 %rd2, %pm1_64; cvt.u32.u64 %r1, %rd2; mov.u32 %r2, %pm7; add.u32 %r1, %r1, %r2;
mov.u32 %r2, %ntid.w; add.u32 %r1, %r1, %r2; mov.u32 %r2, %nctaid.w; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, 3; ${store('%r1')}`;
    assert.deepEqual(words(HEAD + kernel(body), 1), [3]);
  });
});

describe('what a program asks of such a module', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let shell: Shell;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels', 'skip'] });
    shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    await askAll(shell, ['begin']);
  });
  after(async () => {
    shell.kill();
    await host.stop();
    scratch.remove();
  });

  const loaded = async (text: string): Promise<void> => {
    const file = path.join(scratch.path, 'module.ptx');
    writeFileSync(file, text);
    await askAll(shell, [`load 0 ${file}`, 'function 1 0 k']);
  };

  it('is a variable behind a prototype without a semicolon', async () => {
    await loaded(`.version 2.1\n.target sm_20\n${PROTOTYPES}${CALLS_TWICE}`);
    assert.deepEqual((await shell.ask('global 0 c')).values.slice(0, 2), ['4', '15000000']);
  });

  it('is a kernel beside variables of .local, .reg and .tex', async () => {
    await loaded(`${OLD}.tex .u64 t;\n.reg .u32 %m<2>;\n${MODULE_LOCAL}`);
    assert.deepEqual((await shell.ask('parameters 1')).values, ['0:8']);
  });

  it('is the count of registers, which .maxnreg limits and 1234 does not', async () => {
    const counted = async (most: number): Promise<number> => {
      await loaded(`${HEAD}.entry k() .maxnreg ${most} { .reg .b32 %r<200>; ret; }\n`);
      return Number((await shell.ask('attribute 1 4')).values[0]);
    };
    assert.equal(await counted(16), 16);
    assert.ok((await counted(1234)) > 16);
  });
});
