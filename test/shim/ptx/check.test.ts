/** Checks of kernels: races in shared memory, reads of memory that was never written; and no finding in correct kernels. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Job, type Outcome, runPtx, u32 } from './machine.js';

/** A kernel k(out) over shared memory `s`, with %r1 = thread, %r2 = &s[thread], %rd1 = out + 4 * thread. */
const kernel = (body: string, local = ''): string => `.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .pred %p<8>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<8>;
  .shared .align 16 .b8 s[4096];
  ${local}
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  mov.u32 %r2, s;
  mad.lo.u32 %r2, %r1, 4, %r2;
${body}
  ret;
}
`;
const lineOf = (text: string, part: string): number =>
  text.split('\n').findIndex((l) => l.includes(part)) + 1;

const run = (text: string, block: number, more: Partial<Job> = {}): Outcome => {
  const outcome = runPtx({
    ptx: { text },
    buffers: [4096],
    before: ['check race,init'],
    launches: [{ kernel: 'k', block: [block], args: ['b1'] }],
    ...more,
  });
  assert.match(outcome.load, /^ok/);
  for (const launch of outcome.launches) assert.match(launch, /^ok/);
  return outcome;
};
const clean = (text: string, block = 128): void => assert.deepEqual(run(text, block).findings, []);

/** Each thread writes its word and reads that of the thread 32 (or `by`) further on, with `between` them. */
const exchange = (between: string, by = 32, count = 128): string =>
  kernel(`  st.shared.u32 [%r2], %r1;
  ${between}
  add.u32 %r3, %r1, ${by};
  rem.u32 %r3, %r3, ${count};
  mov.u32 %r4, s;
  mad.lo.u32 %r4, %r3, 4, %r4;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%rd1], %r5;`);

describe('a check for races', () => {
  it('tells a read that no barrier parts from the write, with both lines, threads and the address', () => {
    // the warps run one after the other: the last one reads what the first has written
    const text = exchange('');
    const { findings, launches } = run(text, 128);
    const read = lineOf(text, 'ld.shared'),
      write = lineOf(text, 'st.shared');
    assert.ok(
      findings.includes(
        `race k ld.shared.u32 shared line ${read} block 0,0,0 thread 96,0,0 bytes 4 address 0x0 ` +
          `read after write line ${write} thread 0,0,0`,
      ) ||
        findings.includes(
          `race k st.shared.u32 shared line ${write} block 0,0,0 thread 32,0,0 bytes 4 address 0x80 ` +
            `write after read line ${read} thread 0,0,0`,
        ),
      findings.join('\n'),
    );
    assert.equal(launches.length, 1);
  });

  it('is content with a barrier', () => {
    clean(exchange('bar.sync 0;'));
  });

  it('wants a barrier before memory is used again, too', () => {
    const twice = (second: string): string =>
      kernel(`  mov.u32 %r6, 0;
again:
  st.shared.u32 [%r2], %r6;
  bar.sync 0;
  xor.b32 %r3, %r1, 64;
  mov.u32 %r4, s;
  mad.lo.u32 %r4, %r3, 4, %r4;
  ld.shared.u32 %r5, [%r4];
  ${second}
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p1, %r6, 3;
  @%p1 bra again;
  st.global.u32 [%rd1], %r5;`);
    clean(twice('bar.sync 0;'));
    assert.match(run(twice(''), 128).findings.join('\n'), /race k st\.shared\.u32 .* write after read line/);
  });

  it('wants bar.warp.sync between the lanes of a warp', () => {
    const racy = run(exchange('', 1, 32), 32).findings;
    assert.match(racy.join('\n'), /race k ld\.shared\.u32 .* read after write/);
    clean(exchange('bar.warp.sync 0xffffffff;', 1, 32), 32);
  });

  it('tells different values written to one place, not the same value', () => {
    const all = (value: string): string => kernel(`  st.shared.u32 [s], ${value};`);
    assert.match(run(all('%r1'), 64).findings.join('\n'), /race k st\.shared\.u32 .* write after write/);
    clean(all('7'), 64);
  });

  it('leaves atomics alone, and what a lock guards', () => {
    clean(
      kernel(`  setp.ne.u32 %p1, %r1, 0;
  @!%p1 st.shared.v2.u32 [s], {0, 0};
  bar.sync 0;
  atom.shared.add.u32 %r3, [s], %r1;
  red.shared.max.u32 [s+4], %r1;`),
    );
    clean(
      kernel(`  setp.ne.u32 %p1, %r1, 0;
  @!%p1 st.shared.v2.u32 [s], {0, 0};
  bar.sync 0;
take:
  atom.shared.cas.b32 %r3, [s], 0, 1;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra take;
  ld.shared.u32 %r4, [s+4];
  add.u32 %r4, %r4, 1;
  st.shared.u32 [s+4], %r4;
  atom.shared.exch.b32 %r3, [s], 0;
  bar.sync 0;
  ld.shared.u32 %r4, [s+4];
  st.global.u32 [%rd1], %r4;`),
    );
  });

  it('follows barriers of some warps, and threads that only arrive', () => {
    const pipeline = (arrive: string): string =>
      kernel(`  setp.ge.u32 %p1, %r1, 64;
  @%p1 bra consume;
  st.shared.u32 [%r2], %r1;
  ${arrive}
  ret;
consume:
  bar.sync 1, 128;
  add.u32 %r4, %r2, -256;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%rd1], %r5;`);
    clean(pipeline('bar.arrive 1, 128;'));
    // a thread that arrives before it writes has promised nothing
    const early = pipeline('').replace(
      'st.shared.u32 [%r2], %r1;',
      'bar.arrive 1, 128;\n  st.shared.u32 [%r2], %r1;',
    );
    assert.match(run(early, 128).findings.join('\n'), /race k ld\.shared\.u32 .* read after write/);
  });

  it('tells each place once, no more than asked for, and counts the rest', () => {
    const text = exchange('');
    const { findings } = run(text, 128, {
      before: ['check race', 'most 1'],
      launches: [1, 2].map(() => ({ kernel: 'k', block: [128], args: ['b1'] })),
    });
    assert.equal(findings.filter((line) => line.startsWith('race')).length, 1);
    const rest = findings.filter((line) => line.startsWith('rest '));
    assert.equal(rest.length, 1, findings.join('\n'));
    assert.ok(Number(rest[0]?.slice(5)) > 30, rest[0]);
  });

  it('prints nothing without VGPU_LOG', () => {
    assert.deepEqual(run(exchange(''), 128, { before: [] }).findings, []);
  });
});

describe('a check for reads of memory never written', () => {
  it('tells them of shared memory', () => {
    const text = kernel('  ld.shared.u32 %r3, [%r2+64];\n  st.global.u32 [%rd1], %r3;');
    assert.deepEqual(run(text, 1).findings, [
      `init k ld.shared.u32 shared line ${lineOf(text, 'ld.shared')} block 0,0,0 thread 0,0,0 bytes 4 address 0x40`,
    ]);
    clean(kernel('  st.shared.u32 [%r2], %r1;\n  ld.shared.u32 %r3, [%r2];'));
  });

  it('tells them of shared memory in every block, whatever the one before has left', () => {
    const text = kernel(`  mov.u32 %r3, %ctaid.x;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r4, [%r2];
  st.global.u32 [%rd1], %r4;`);
    const { findings } = run(text, 32, { launches: [{ kernel: 'k', grid: [3], block: [32], args: ['b1'] }] });
    assert.match(findings.join('\n'), /^init k ld\.shared\.u32 shared line \d+ block 1,0,0 thread 0,0,0/);
  });

  it('tells them of local memory, by the byte', () => {
    const local = (stores: string): string =>
      kernel(
        `  mov.u64 %rd3, depot;
  cvta.local.u64 %rd4, %rd3;
  ${stores}
  ld.v2.u32 {%r3, %r4}, [%rd4+8];
  st.global.u32 [%rd1], %r3;`,
        '.local .align 8 .b8 depot[32];',
      );
    clean(local('st.local.u32 [depot+8], %r1;\n  st.local.u32 [depot+12], %r1;'));
    assert.match(
      run(local('st.local.u32 [depot+8], %r1;\n  st.local.u16 [depot+12], 1;'), 32).findings.join('\n'),
      /^init k ld\.v2\.u32 local line \d+ block 0,0,0 thread 0,0,0 bytes 8 address 0x8/,
    );
  });

  it('reports reads of device memory that was never written', () => {
    const text = `${kernel('  ld.global.u32 %r3, [%rd1];\n  st.global.u32 [%rd1+2048], %r3;')}
.visible .entry w(.param .u64 out)
{
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], 5;
}
`;
    const launch = (name: string) => ({ kernel: name, block: [1], args: ['b1'] });
    const fresh = { buffers: [{ fresh: 4096 }] };
    assert.match(
      run(text, 1, { ...fresh, launches: [launch('k')] }).findings.join('\n'),
      /^init k ld\.global\.u32 global line \d+ block 0,0,0 thread 0,0,0 bytes 4 address 0x[0-9a-f]+$/,
    );
    const after = run(text, 1, { ...fresh, launches: [launch('w'), launch('k')] });
    assert.deepEqual(after.findings, []);
    assert.equal(u32(after.buffers[0] ?? Buffer.alloc(0))[512], 5);
  });
});

describe('checks of the whole collection of kernels', () => {
  // these tests again, each job under both checks: a finding fails its test
  for (const file of ['kernels', 'matrix']) {
    it(`raise no false alarm over ${file}`, () => {
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      const again = spawnSync(
        process.execPath,
        [
          '--test',
          '--test-reporter=tap',
          ...(process.env['VGPU_TEST_LONG'] ? [] : ['--test-name-pattern=/compute_(61|80)/']),
          fileURLToPath(new URL(`${file}.test.js`, import.meta.url)),
        ],
        { env: { ...env, VGPU_PTX_CHECK: 'race,init' }, encoding: 'utf8', timeout: 600_000 },
      );
      assert.equal(again.status, 0, again.stdout.slice(-4000));
      assert.ok(Number(/^# pass (\d+)$/m.exec(again.stdout)?.[1]) > 4, again.stdout.slice(-400));
    });
  }
});
