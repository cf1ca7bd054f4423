/** Ways to write PTX that compilers other than nvcc use: registers as parameters, vectors of registers, 128 bits. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, f32, runPtx, u32 } from './machine.js';

const HEAD = '.version 8.4\n.target sm_90\n.address_size 64\n';

/** The `words` words that each of 32 lanes leaves, after a kernel `k` that finds its own address in %rd1. */
function lanes(functions: string, body: string, words: number, shared = 0): Buffer {
  const outcome = runPtx({
    ptx: {
      text: `${HEAD}${functions}
.entry k(.param .u64 out)
{
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, ${words * 4};
add.u64 %rd1, %rd1, %rd2;
${body}
ret;
}
`,
    },
    buffers: [32 * words * 4],
    launches: [{ kernel: 'k', block: [32], shared, args: ['b1'] }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  return outcome.buffers[0] ?? Buffer.alloc(0);
}

const TWICE = `.func (.reg .u32 r, .reg .f32 s) twice(.reg .u32 a, .reg .u64 b, .reg .f32 c)
{
.reg .pred p; .reg .u32 t;
cvt.u32.u64 t, b;
mul.f32 s, c, 0f40000000;
setp.gt.u32 p, a, 3;
add.u32 r, a, t;
@p ret;
mul.lo.u32 r, r, 100;
}
`;

describe('memory on the stack', () => {
  it('is given back to where it was saved, and taken again at the same place', () => {
    const out = lanes(
      '',
      `and.b32 %r2, %r1, 3; shl.b32 %r2, %r2, 5; add.u32 %r2, %r2, 8;
stacksave.u32 %r3;
alloca.u32 %r4, %r2, 64;
st.local.u32 [%r4], %r1;
alloca.u32 %r5, 4;
st.local.u32 [%r5], %r2;
ld.local.u32 %r6, [%r4]; ld.local.u32 %r7, [%r5];
stackrestore.u32 %r3;
alloca.u32 %r8, 16;
and.b32 %r4, %r4, 63;
sub.u32 %r5, %r5, %r8; sub.u32 %r3, %r8, %r3;
st.global.u32 [%rd1], %r6; st.global.u32 [%rd1+4], %r7; st.global.u32 [%rd1+8], %r4;
st.global.u32 [%rd1+12], %r3; st.global.u32 [%rd1+16], %r5;`,
      5,
    );
    for (let lane = 0; lane < 32; lane++) {
      const size = (lane & 3) * 32 + 8;
      const told = [...u32(out)].slice(lane * 5, lane * 5 + 5);
      // the first allocation begins at a multiple of 64, the second behind it
      assert.deepEqual(told.slice(0, 4), [lane, size, 0, 0], `lane ${lane}`);
      assert.ok((told[4] ?? 0) >= Math.ceil(size / 16) * 16, `lane ${lane}`);
    }
  });

  for (const [words, body] of [
    ['more than there is', 'mov.u64 %rd3, 100000; alloca.u64 %rd4, %rd3;'],
    ['a size beyond all memory', 'mov.u64 %rd3, -16; alloca.u64 %rd4, %rd3;'],
    ['what was never saved', 'mov.u64 %rd3, 8; stackrestore.u64 %rd3;'],
    ['what was saved above', 'stacksave.u64 %rd3; add.u64 %rd3, %rd3, 64; stackrestore.u64 %rd3;'],
  ] as const) {
    it(`is no room for ${words}`, () => {
      const text = `${HEAD}.entry k(.param .u64 out) {\n.reg .b64 %rd<9>; .local .b8 own[32];\n${body}\nret; }\n`;
      const { refused, launches } = runPtx({
        ptx: { text },
        buffers: [4],
        launches: [{ kernel: 'k', block: [32], args: ['b1'] }],
      });
      assert.deepEqual(refused, []);
      assert.match(launches[0] ?? '', /stack overflow/);
    });
  }

  it('is refused where its size, type or alignment is none', () => {
    for (const wrong of [
      'alloca.u64 %rd1, 8, 3',
      'alloca.u64 %rd1, 8, 8192',
      'alloca.f64 %rd1, 8',
      'stacksave.u16 %h1',
    ]) {
      const text = `${HEAD}.entry k() {\n.reg .b64 %rd<9>; .reg .b16 %h<9>;\n${wrong}; ret; }\n`;
      assert.match(
        runPtx({ ptx: { text } }).refused.join(),
        /^line 6: (alloca|stacksave)\.\w+ is not supported/,
        wrong,
      );
    }
  });
});

describe('parameters of functions in registers', () => {
  it('come in and go out, also where lanes return from different places', () => {
    const out = lanes(
      TWICE,
      `mov.f32 %f1, 0f3fc00000;
call (%r2, %f2), twice, (%r1, 7, %f1);
st.global.u32 [%rd1], %r2; st.global.f32 [%rd1+4], %f2;`,
      2,
    );
    for (let lane = 0; lane < 32; lane++) {
      assert.equal(u32(out)[lane * 2], lane > 3 ? lane + 7 : (lane + 7) * 100, `lane ${lane}`);
      assert.equal(f32(out)[lane * 2 + 1], 3);
    }
  });

  it('may be predicates, in, out, and as numbers', () => {
    const out = lanes(
      `.func (.reg .pred r, .reg .u32 s) both(.reg .pred a, .reg .u32 b, .reg .pred c)
{
.reg .pred q;
setp.gt.u32 q, b, 3;
and.pred r, a, q;
selp.u32 s, b, 100, a;
@c add.u32 s, s, 1000;
@q ret;
not.pred r, r;
}
`,
      `setp.ne.u32 %p1, %r1, 5; setp.lt.u32 %p3, %r1, 20;
call (%p2, %r2), both, (%p1, %r1, 1);
@%p3 call (_, %r3), both, (%p2, %r1, %p1);
selp.u32 %r4, 1, 0, %p2;
st.global.u32 [%rd1], %r4; st.global.u32 [%rd1+4], %r2; @%p3 st.global.u32 [%rd1+8], %r3;`,
      3,
    );
    for (let lane = 0; lane < 32; lane++) {
      const first = lane !== 5;
      const result = lane > 3 ? first : !(first && lane > 3);
      const again = lane < 20 ? (result ? lane : 100) + (first ? 1000 : 0) : 0;
      assert.deepEqual(
        [...u32(out)].slice(lane * 3, lane * 3 + 3),
        [result ? 1 : 0, (first ? lane : 100) + 1000, again],
        `lane ${lane}`,
      );
    }
  });

  it('are no negated predicates', () => {
    const text = `${HEAD}.func f(.reg .pred a) { ret; }\n.entry k() {\n.reg .pred %p<2>;\ncall f, (!%p1);\nret; }\n`;
    assert.match(runPtx({ ptx: { text } }).refused.join(), /call is not supported/);
  });

  it('are left alone in lanes that do not call', () => {
    const out = lanes(
      TWICE,
      `mov.u32 %r2, 5; mov.f32 %f1, 0f3fc00000; setp.lt.u32 %p1, %r1, 8;
@%p1 call (%r2, _), twice, (%r1, 7, %f1);
st.global.u32 [%rd1], %r2;`,
      1,
    );
    assert.equal(u32(out)[7], 14);
    assert.equal(u32(out)[8], 5);
  });

  it('mix with .param variables, which must have the right size', () => {
    const wrong = `${HEAD}${TWICE}.entry k()\n{\n.reg .b32 %r<9>; .reg .f32 %f<9>;\n.param .align 4 .b8 big[32];\ncall (%r2, %f2), twice, (big, 7, %f1);\n}\n`;
    const { refused } = runPtx({ ptx: { text: wrong } });
    assert.match(refused.join(), /call is not supported: a parameter of another size than the function has/);
  });
});

describe('declarations before the definition', () => {
  it('may be kernels and functions, with their parameters or without, on lines of their own', () => {
    const text = `.version 4.0
.target sm_50
.address_size 64
.entry k(.param .u64 out);
.func (.param .b32 r) g
(
.param .b32 a
)
;
.func h;
.entry k(.param .u64 out)
{
.reg .b64 %rd<2>; .reg .b32 %r<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, 4;
{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1; call (r0), g, (p0); ld.param.b32 %r2, [r0]; }
call h;
st.global.u32 [%rd1], %r2;
ret;
}
.func (.param .b32 r) g(.param .b32 a)
{
.reg .b32 x;
ld.param.b32 x, [a]; add.u32 x, x, 1; st.param.b32 [r], x;
ret;
}
.func h { ret; }
`;
    const { refused, launches, buffers } = runPtx({
      ptx: { text },
      buffers: [4],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.deepEqual(refused, []);
    assert.match(launches[0] ?? '', /^ok/);
    assert.equal(u32(buffers[0] ?? Buffer.alloc(4))[0], 5);
  });
});

describe("the address of a function's parameter", () => {
  it('points to its bytes, in .param space and as a generic address', () => {
    const out = lanes(
      `.func (.param .b32 out) sum(.param .align 4 .b8 box[16])
{
.reg .u64 at; .reg .u32 v, s, i; .reg .pred p;
mov.b64 at, box;
mov.u32 s, 0; mov.u32 i, 0;
again:
ld.param.u32 v, [at];
add.u32 s, s, v; add.u64 at, at, 4; add.u32 i, i, 1;
setp.lt.u32 p, i, 4;
@p bra again;
mov.b64 at, box;
cvta.param.u64 at, at;
ld.u32 v, [at+12];
mad.lo.u32 s, v, 1000, s;
st.param.b32 [out], s;
ret;
}
`,
      `{
.param .align 4 .b8 p[16]; .param .b32 o;
st.param.u32 [p], 1; st.param.u32 [p+4], 20; st.param.u32 [p+8], 300; st.param.u32 [p+12], %r1;
call (o), sum, (p);
ld.param.b32 %r5, [o];
}
st.global.u32 [%rd1], %r5;`,
      1,
    );
    u32(out).forEach((value, lane) => {
      assert.equal(value, 321 + lane * 1001);
    });
  });

  it('is one of local memory, as nvcc 13 writes for a struct by value, and one copy for each call', () => {
    const out = lanes(
      `.func (.param .b32 out) change(.param .align 4 .b8 box[16], .param .b32 which)
{
.reg .b64 at, generic, same, more; .reg .b32 v, i, s, rest; .reg .pred p;
mov.b64 at, box;
cvta.local.u64 generic, at;
cvta.to.local.u64 at, generic;
ld.param.u32 i, [which];
and.b32 v, i, 3;
mul.wide.u32 more, v, 4;
add.u64 at, at, more;
ld.local.u32 v, [at];
add.u32 v, v, 2;
st.local.u32 [at], v;
mov.u32 rest, 0;
setp.lt.u32 p, i, 8;
@!p bra done;
{
.param .align 4 .b8 p[16]; .param .b32 q; .param .b32 o;
add.u32 i, i, 8;
st.param.u32 [p], 7; st.param.u32 [p+4], 7; st.param.u32 [p+8], 7; st.param.u32 [p+12], 7; st.param.b32 [q], i;
call (o), change, (p, q);
ld.param.b32 rest, [o];
}
done:
mov.b64 same, box+4;
ld.local.u32 s, [same];
mad.lo.u32 s, s, 100, rest;
ld.u32 v, [generic];
mad.lo.u32 s, v, 10000, s;
st.param.b32 [out], s;
ret;
}
`,
      `{
.param .align 4 .b8 p[16]; .param .b32 q; .param .b32 o;
st.param.u32 [p], 1; st.param.u32 [p+4], 3; st.param.u32 [p+8], 5; st.param.u32 [p+12], 6; st.param.b32 [q], %r1;
call (o), change, (p, q);
ld.param.b32 %r5, [o];
}
st.global.u32 [%rd1], %r5;`,
      1,
    );
    const changed = (box: readonly number[], which: number): number => {
      const own = box.map((x, i) => (i === which % 4 ? x + 2 : x));
      const rest = which < 8 ? changed([7, 7, 7, 7], which + 8) : 0;
      return (own[0] ?? 0) * 10_000 + (own[1] ?? 0) * 100 + rest;
    };
    u32(out).forEach((value, lane) => {
      assert.equal(value, changed([1, 3, 5, 6], lane));
    });
  });
});

describe('registers that are vectors', () => {
  it('have elements by letters, and are loaded and stored whole', () => {
    const out = lanes(
      '',
      `.reg .v4 .f32 v; .reg .v2 .u32 w;
cvt.rn.f32.u32 v.x, %r1; mov.f32 v.g, 0f40000000; add.f32 v.z, v.r, v.y; mov.f32 v.a, v.b;
st.global.v4.f32 [%rd1], v;
ld.global.v2.u32 w, [%rd1+8];
xor.b32 w.x, w.x, w.y;
st.global.u32 [%rd1+16], w.x;`,
      8,
    );
    for (let lane = 0; lane < 32; lane++) {
      assert.deepEqual([...f32(out).slice(lane * 8, lane * 8 + 4)], [lane, 2, lane + 2, lane + 2]);
      assert.equal(u32(out)[lane * 8 + 4], 0);
    }
  });

  it('are moved whole, and of numbers, as GCC writes them for OpenMP', () => {
    const out = lanes(
      '',
      `.reg .v2 .u32 v, w; .reg .v4 .f32 f;
mov.v2.u32 v, { 7, -1 };
mov.u32 v.x, %r1;
mov.v2.u32 w, v;
mov.v2.u32 v, { w.y, w.x };
mov.v2.u32 v, { v.y, v.x };
st.global.v2.u32 [%rd1], w;
st.global.v2.u32 [%rd1+8], v;
mov.v4.f32 f, { 0f3f800000, 0f40000000, 0f40400000, 0f40800000 };
st.global.v4.f32 [%rd1+16], f;`,
      8,
    );
    for (let lane = 0; lane < 32; lane++) {
      assert.deepEqual([...u32(out).slice(lane * 8, lane * 8 + 4)], [lane, 0xffffffff, lane, 0xffffffff]);
      assert.deepEqual([...f32(out).slice(lane * 8 + 4, lane * 8 + 8)], [1, 2, 3, 4]);
    }
  });

  it('have no other elements, and are no operand of arithmetic', () => {
    for (const [text, why] of [
      ['mov.v2.f32 v, { 0f00000000, 0f00000000, 0f00000000, 0f00000000 }', /as many elements on both sides/],
      ['mov.f32 v.z, 0f00000000', /'v' has no element 'z'/],
      ['add.f32 v, v, v', /add.f32 is not supported/],
    ] as const) {
      const { load, refused } = runPtx({
        ptx: { text: `${HEAD}.entry k()\n{\n.reg .v2 .f32 v;\n${text};\n}\n` },
      });
      assert.match([load, ...refused].join(), why);
    }
  });
});

describe('128 bits at once', () => {
  it('are moved as halves, loaded and stored', () => {
    const out = lanes(
      '',
      `.reg .b128 q, r;
cvt.u64.u32 %rd3, %r1; mov.b64 %rd4, 0x123456789abcdef0;
mov.b128 q, {%rd3, %rd4};
st.global.b128 [%rd1], q;
ld.global.b128 r, [%rd1];
mov.b128 {%rd5, %rd6}, r;
mov.b128 r, {%rd6, %rd5};
st.global.b128 [%rd1+16], r;`,
      8,
    );
    for (let lane = 0; lane < 32; lane++) {
      const at = out.subarray(lane * 32);
      assert.deepEqual([at.readBigUInt64LE(0), at.readBigUInt64LE(8)], [BigInt(lane), 0x123456789abcdef0n]);
      assert.deepEqual([at.readBigUInt64LE(16), at.readBigUInt64LE(24)], [0x123456789abcdef0n, BigInt(lane)]);
    }
  });

  it('need an aligned address', () => {
    const text = `${HEAD}.entry k(.param .u64 out)\n{\n.reg .b64 %rd<9>; .reg .b128 q;\nld.param.u64 %rd1, [out];\nld.global.b128 q, [%rd1+8];\n}\n`;
    const { launches } = runPtx({
      ptx: { text },
      buffers: [64],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.match(launches[0] ?? '', /misaligned/);
  });
});

describe('cvt.satfinite', () => {
  it('keeps f16, bf16, their pairs and tf32 finite, and NaN a NaN', () => {
    const values = Float32Array.of(1, -1e30, Number.POSITIVE_INFINITY, Number.NaN, 65519, 3.4e38, -0, 70000);
    const outcome = runPtx({
      ptx: {
        text: `${HEAD}.entry k(.param .u64 in, .param .u64 out)
{
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b16 %h<9>;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r1, 16; add.u64 %rd2, %rd2, %rd3;
ld.global.f32 %f1, [%rd1];
cvt.rn.satfinite.f16.f32 %h1, %f1;
cvt.rn.satfinite.bf16.f32 %h2, %f1;
mov.b32 %r2, {%h1, %h2};
cvt.rn.satfinite.f16x2.f32 %r3, %f1, 0f3f800000;
cvt.rz.satfinite.bf16x2.f32 %r4, 0f3f800000, %f1;
cvt.rna.satfinite.tf32.f32 %r5, %f1;
st.global.v4.b32 [%rd2], {%r2, %r3, %r4, %r5};
ret;
}
`,
      },
      buffers: [bytes(values), values.length * 16],
      launches: [{ kernel: 'k', block: [values.length], args: ['b1', 'b2'] }],
    });
    assert.deepEqual(outcome.refused, []);
    const out = u32(outcome.buffers[1] ?? Buffer.alloc(0));
    const f16 = [0x3c00, 0xfbff, 0x7bff, 0x7fff, 0x7bff, 0x7bff, 0x8000, 0x7bff];
    const bf16 = [0x3f80, 0xf14a, 0x7f7f, 0x7fff, 0x4780, 0x7f7f, 0x8000, 0x4789];
    values.forEach((value, i) => {
      const hex = (n: number | undefined): string => (n ?? 0).toString(16);
      assert.equal(hex((out[i * 4] ?? 0) & 0xffff), hex(f16[i]), `${value} as f16`);
      assert.equal(hex((out[i * 4] ?? 0) >>> 16), hex(bf16[i]), `${value} as bf16`);
      assert.equal(hex((out[i * 4 + 1] ?? 0) >>> 16), hex(f16[i]), `${value} as f16x2`);
      assert.equal((out[i * 4 + 2] ?? 0) >>> 16, 0x3f80);
      const tf32 = out[i * 4 + 3] ?? 0;
      assert.equal((tf32 & 0x7f800000) === 0x7f800000, Number.isNaN(value), `${value} as tf32: ${hex(tf32)}`);
    });
  });
});

describe('special registers', () => {
  it('say where the reserved shared memory is, behind all variables of the program', () => {
    const out = lanes(
      '.shared .align 4 .b8 own[256];\n.extern .shared .align 4 .b8 more[];\n',
      `mov.u32 %r2, %reserved_smem_offset_begin; mov.u32 %r3, %reserved_smem_offset_end;
sub.u32 %r3, %r3, %r2; st.global.u32 [%rd1], %r3;
mov.u32 %r3, %reserved_smem_offset_cap; st.global.u32 [%rd1+4], %r3;
mov.u32 %r4, %aggr_smem_size; mov.u32 %r5, own; st.shared.u32 [%r5], %r4; st.global.u32 [%rd1+8], %r4;
mov.u32 %r4, %total_smem_size; mov.u32 %r6, more; st.shared.u32 [%r6+60], %r4; st.global.u32 [%rd1+12], %r4;
mov.u32 %r7, %reserved_smem_offset_1;
st.shared.u32 [%r7], -1; st.shared.u32 [%r7+284], -1; st.shared.u32 [%r2], -1;
ld.shared.u32 %r7, [%r5]; st.global.u32 [%rd1+16], %r7;
ld.shared.u32 %r7, [%r6+60]; st.global.u32 [%rd1+20], %r7;`,
      6,
      64,
    );
    assert.deepEqual([...u32(out).slice(0, 6)], [1024, 1024, 256 + 64 + 1024, 256 + 64, 1344, 320]);
  });

  it('leave no room behind the shared memory of a kernel that does not ask for them', () => {
    const text = `${HEAD}.entry k()\n{\n.shared .align 4 .b8 own[256];\n.reg .b32 %r1;
mov.u32 %r1, own;\nst.shared.u32 [%r1+256], 0;\nret;\n}\n`;
    const { launches } = runPtx({
      ptx: { text },
      buffers: [],
      launches: [{ kernel: 'k', block: [1], args: [] }],
    });
    assert.match(launches[0] ?? '', /is outside of the block's shared memory/);
  });
});

describe('mnemonics', () => {
  it('may have blanks, comments and new lines before a modifier', () => {
    const out = lanes(
      '',
      `add .u32 %r2, %r1, 1; mul .lo
.u32 %r2, %r2, 2; add/* nothing */.u32 %r2 , %r2, // nothing
3;
setp.lt .u32 %p1, %r1, 16;
@%p1 bra .uni low;
add\t.u32 %r2, %r2, 100;
low:
bar.warp .sync -1;
st.global .u32 [%rd1], %r2;`,
      1,
    );
    const want = Array.from({ length: 32 }, (_, i) => (i + 1) * 2 + 3 + (i < 16 ? 0 : 100));
    assert.deepEqual([...u32(out)], want);
  });

  it('have nothing between a dot and its modifier', () => {
    for (const [instruction, said] of [
      ['add. u32 %r1, %r1, 1', "'u32' is not defined, in add."],
      ['add . u32 %r1, %r1, 1', "an operand expected before '. u32"],
    ] as const) {
      const text = `${HEAD}.entry k()\n{\n.reg .b32 %r<9>;\n${instruction};\nret;\n}\n`;
      const { load } = runPtx({ ptx: { text } });
      assert.ok(load.startsWith(`error invalid PTX: line 7: ${said}`), load);
    }
  });
});
