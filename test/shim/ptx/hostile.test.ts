/** Modules that a guest should not send: what is wrong is named, nothing crashes, nothing is taken without bound. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile } from '../shim_host.js';
import { compiles } from './compiled.js';
import { runPtx } from './machine.js';

const KERNELS = path.join(ROOT, 'test/shim/kernels');
const HEAD = '.version 8.4\n.target sm_80\n.address_size 64\n';

const long = process.env['VGPU_TEST_LONG'] === '1';

/** The message in the log about a kernel with this body. The body's first line is the fifth of the module. */
function refusal(body: string, head = HEAD): string {
  const text = `${head}.entry k(.param .u64 p)\n{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>;\n${body}\n}\n`;
  const { load, refused } = runPtx({ ptx: { text } });
  return refused.length > 0 ? refused.join('\n') : load;
}

describe('modules that are wrong', () => {
  it('are refused with line and instruction', () => {
    assert.match(
      refusal('add.u32 %r1, %r2;'),
      /^error invalid PTX: line 7: add\.u32 takes 3 operands, not 2/,
    );
    assert.match(refusal('add.u32 %r1, %r2, %r99;'), /line 7: '%r99' is not defined, in add\.u32/);
    assert.match(
      refusal('\n\nfrobnicate.u32 %r1;'),
      /^line 9: frobnicate\.u32 is not supported, so the kernel k cannot run$/,
    );
    assert.match(
      refusal('tex.2dms.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2,%r3,%r3}];'),
      /^line 7: tex\.2dms\S* is not supported, so the kernel k cannot run$/,
    );
    assert.match(refusal('bra nowhere;'), /line 7: no label 'nowhere'/);
    assert.match(refusal('mov.u32 %r1, 99999999999999999999999;'), /line 7: the number .* is too large/);
    assert.match(
      refusal('add.u64 %rd1, %r1, %rd2;'),
      /^line 7: add\.u64 is not supported: a register that is too narrow/,
    );
    assert.match(refusal('ld.param.u64 %rd1, [p+4];'), /outside of the parameters/);
    // A guarded one would otherwise be carried out for registers of one byte, which there are not.
    assert.match(
      refusal('.reg .b16 %h<3>; @%p1 cvta.global.u8 %h1, %h2;'),
      /^line 7: cvta\.global\.u8 is not supported: \.u32 or \.u64 expected/,
    );
    assert.match(
      refusal('', '.version 8.4\n.target sm_100\n.address_size 64\n'),
      /the module is for sm_100, this device is sm_90/,
    );
    assert.match(
      refusal('add.u33 %r1, %r2, %r3;'),
      /^error invalid PTX: line 7: add\.u33 is no PTX: the type \.u33/,
    );
    assert.match(refusal('fence.s7;'), /^error invalid PTX: line 7: fence\.s7 is no PTX: the type \.s7/);
    assert.match(refusal('', '.target sm_80\n'), /no \.version/);
    assert.match(refusal('', `${HEAD}.address_size 32\n`), /addresses of 32 bits/);
  });

  // As `ptxas -arch` of CUDA 13.0 accepts and refuses them.
  for (const [target, ...devices] of [
    ['sm_86', 86, 89, 90, 100, 103, 110, 120, 121],
    ['sm_90', 90, 100, 103, 110, 120, 121],
    ['sm_90a', 90],
    ['sm_100', 100, 103, 110, 120, 121],
    ['sm_100a', 100],
    ['sm_100f', 100, 103],
    ['sm_103f', 103],
    ['sm_120a', 120],
    ['sm_120f', 120, 121],
    ['sm_90b'],
  ] as const) {
    it(`for ${target} are loaded for ${devices.join(', ') || 'no device'} and for no other`, () => {
      const text = `.version 9.0\n.target ${target}\n.address_size 64\n.entry k() { ret; }\n`;
      for (const device of [80, 86, 89, 90, 100, 103, 110, 120, 121]) {
        const { load } = runPtx({ ptx: { text }, device });
        if (devices.some((one) => one === device)) assert.match(load, /^ok /, `${device}`);
        else assert.ok(load.startsWith('error ') && load.includes(target), `${device}: ${load}`);
      }
    });
  }

  it('have a version that there is', () => {
    const load = (version: string): string =>
      runPtx({ ptx: { text: `.version ${version}\n.target sm_20\n.entry k() { ret; }\n` } }).load;
    for (const version of ['1.0', '1.5', '2.3', '3.2', '4.3', '5.1', '6.5', '7.8', '8.8', '9.5'])
      assert.match(load(version), /^ok /, version);
    for (const version of ['0.9', '1.6', '2.4', '3.3', '4.4', '5.2', '6.6', '7.9', '8.9', '9.9', '10.0'])
      assert.equal(
        load(version),
        `error unknown version: line 1: there is no .version ${Number(version)}, the newest is 9.5`,
      );
  });

  it('have .noftz with atomic sums and bounds of 16-bit floats, and with no others', () => {
    const halves = '.reg .b16 %h<3>; .reg .f64 %d<2>; ';
    const wrong: readonly (readonly [string, string])[] = [
      ['atom.global.add.f16 %h1, [%rd1], %h2', '.noftz is missing'],
      ['atom.global.max.bf16 %h1, [%rd1], %h2', '.noftz is missing'],
      ['red.global.add.bf16x2 [%rd1], %r2', '.noftz is missing'],
      ['atom.global.max.noftz.bf16 %h1, [%rd1], %h2', 'a vector is missing: .v2, .v4 or .v8'],
      ['red.shared.add.noftz.f32 [%r1], %f2', '.noftz with this type'],
      ['atom.global.add.noftz.f64 %d1, [%rd1], %d1', '.noftz with this type'],
      ['cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [%r1], 16', '.noftz is missing'],
      [
        'cp.reduce.async.bulk.global.shared::cta.bulk_group.min.noftz.bf16 [%rd1], [%r1], 16',
        '.noftz with this operation or type',
      ],
    ];
    for (const [instruction, why] of wrong)
      assert.equal(
        refusal(`${halves}${instruction};`),
        `error invalid PTX: line 7: ${instruction.split(' ')[0]} is no PTX: ${why}`,
      );
    for (const instruction of [
      'atom.global.add.noftz.f16 %h1, [%rd1], %h2',
      'red.global.max.noftz.v2.bf16 [%rd1], {%h1, %h2}',
      'cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd1], [%r1], 16',
    ])
      assert.match(refusal(`${halves}${instruction};`), /^ok /, instruction);
  });

  it('keep those kernels that can run, and the launch of another says why it cannot', () => {
    const text = `${HEAD}.func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r<2>; frobnicate.u32 %r1; ret; }
.entry good(.param .u64 p) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 7; ret; }
.entry bad(.param .u64 p) { .reg .b32 %r<2>; mov.u32 %r1, %mystery; ret; }
.entry calls(.param .u64 p) { .reg .b32 %r<2>; .param .b32 x, y; call (y), f, (x); ret; }
.entry after(.param .u64 p) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [p]; st.global.u32 [%rd1+4], 8; ret; }
`;
    const launch = (kernel: string) => ({ kernel, block: [1], args: ['b1'] });
    for (const lazy of [false, true]) {
      const outcome = runPtx({
        ptx: { text },
        lazy,
        buffers: [8],
        launches: ['good', 'bad', 'calls', 'after'].map(launch),
      });
      assert.match(outcome.load, /^ok kernels=4 /);
      const said = [
        "line 6: mov.u32 is not supported: the special register '%mystery', so the kernel bad cannot run",
        'line 4: frobnicate.u32 is not supported (in the function f), so the kernel calls cannot run',
      ];
      assert.deepEqual(outcome.refused, lazy ? [] : said);
      const [good, bad, calls, after] = outcome.launches;
      assert.match(good ?? '', /^ok /);
      assert.match(bad ?? '', /^error unsupported: .*line 6: mov\.u32 is not supported/);
      assert.match(calls ?? '', /^error unsupported: .*line 4: frobnicate\.u32 is not supported/);
      assert.match(after ?? '', /^ok /);
      assert.deepEqual([...(outcome.buffers[0] ?? [])], [7, 0, 0, 0, 8, 0, 0, 0]);
    }
  });

  it('place the variables that a body declares before the body is decoded', () => {
    const text = `${HEAD}.global .u32 first = 3;
.entry k(.param .u64 p) { .reg .b64 %rd<2>; .reg .b32 %r<3>; .global .u32 own[2] = {4, 5};
ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [own+4]; ld.global.u32 %r2, [first];
st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r2; ret; }
`;
    for (const lazy of [false, true]) {
      const { buffers } = runPtx({
        ptx: { text },
        lazy,
        buffers: [8],
        launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
      });
      assert.deepEqual([...(buffers[0] ?? [])], [5, 0, 0, 0, 3, 0, 0, 0]);
    }
  });

  it('cannot take memory or stack without bound', () => {
    const many = (text: string, count: number): string => Array.from({ length: count }, () => text).join('');
    assert.match(refusal('.reg .b32 %x<4000000000>;'), /^line 7: 4000000000 registers/);
    assert.match(refusal(many('.reg .b64 %y<1000000>; ', 3)), /^line 7: more than/);
    assert.match(refusal(many('{', 100_000)), /the text ends within k/);
    assert.match(refusal(many('{', 100) + many('}', 100)), /braces are nested deeper/);
    assert.match(refusal('', `${HEAD}.global .b8 big[99999999999];\n`), /^error /);
    assert.match(refusal('', `${HEAD}.global .b8 big[100000][100000][100000];\n`), /^error /);
    assert.match(refusal('', `${HEAD}.shared .b8 big[1000000];\n`), /shared variables of more than/);
    assert.match(refusal('.local .b8 big[99999999];'), /local memory/);
    const f = (name: string, body: string): string =>
      `.func ${name}() {\n.reg .b64 %a; .local .b8 room[400000]; mov.u64 %a, room; st.local.b8 [%a], 1; ${body}ret; }\n`;
    const deep = f('one', '') + f('two', 'call one; ');
    assert.match(refusal('call one;', HEAD + deep), /^ok /);
    assert.match(
      refusal('call two;', HEAD + deep),
      /^more than 512 KiB of local memory a thread, with the functions that are called, so the kernel k cannot run$/,
    );
    assert.match(refusal('', `${HEAD}.global .u32 deep = ${many('{', 10_000)}1;\n`), /nested too deep/);
    assert.match(refusal(`/* ${'x'.repeat(100)}`), /^error invalid PTX/);
    assert.match(refusal(`${many('@%p1 bra a; ', 20_000)}a: ret;`), /^ok /);
  });

  for (const compile of ['never', 'always', 'check'] as const) {
    const skip = compile !== 'never' && compiles;
    it(`and only meet at barriers end with their time, compile ${compile}`, { skip }, () => {
      // Enough instructions that the loop is compiled.
      const work = 'add.u32 %r1, %r1, 1; '.repeat(8);
      const text = `${HEAD}.entry k() { .reg .b32 %r<2>; mov.u32 %r1, 0; again: barrier.sync 0; ${work}bra again; }\n`;
      const { launches, compiled } = runPtx({
        ptx: { text },
        compile,
        before: ['limit 100'],
        launches: [{ kernel: 'k', grid: [2], block: [64], args: [] }],
      });
      assert.match(launches[0] ?? '', /^error timeout: .*the kernel ran longer than it may/);
      if (compile !== 'never') assert.ok(compiled.functions > 0);
      if (compile === 'check') assert.ok(compiled.compared > 0);
    });
  }

  const seeds = readdirSync(path.join(KERNELS, 'ptx'))
    .filter((name) => /^(control|grid|mma)\.compute_80/.test(name))
    .map((name) => path.join(KERNELS, 'ptx', name));
  const program = builtFile('programs/ptx_fuzz');

  it('of any kind, changed at random, do no harm', () => {
    for (const [files, rounds] of [
      [[path.join(KERNELS, 'seed.ptx')], long ? 1500 : 700],
      [[path.join(KERNELS, 'seed_hopper.ptx')], long ? 1500 : 700],
      [seeds, 150],
    ] as const) {
      const run = spawnSync(program, [`${rounds}`, '20', ...files], { encoding: 'utf8', timeout: 280_000 });
      assert.equal(run.status, 0, `${run.signal ?? ''} ${run.stderr.slice(0, 2000)}`);
      const loaded = Number(/loaded (\d+)/.exec(run.stdout)?.[1]);
      assert.ok(loaded > rounds / 50, `too few reach the machine: ${run.stdout}`);
    }
  });

  it('and changed at random are compiled to the same, and LLVM reads each text', { skip: compiles }, () => {
    const env = { ...process.env, PTX_COMPILE: 'check' };
    for (const files of [[path.join(KERNELS, 'seed.ptx'), path.join(KERNELS, 'seed_hopper.ptx')], seeds]) {
      for (let seed = 1; seed <= (long ? 50 : 1); seed++) {
        const run = spawnSync(program, [long ? '100' : '20', `${seed}`, ...files], {
          encoding: 'utf8',
          timeout: 600_000,
          env,
        });
        assert.equal(run.status, 0, `seed ${seed}: ${run.signal ?? ''} ${run.stderr.slice(0, 2000)}`);
        assert.match(run.stdout, /compiled [1-9]\d* compared [1-9]/, `seed ${seed}`);
      }
    }
  });
});
