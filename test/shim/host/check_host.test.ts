/** vgpu-hostd --check: its findings are in its log, and the program continues. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { askAll, builtFile, scratchDirectory, startHost, startShell, until } from '../shim_host.js';

/** Neighbours exchange words without a barrier, and no thread writes the last word of shared memory. */
const PTX = `.version 6.0
.target sm_50
.address_size 64
.visible .entry careless()
{
  .reg .b32 %r<8>;
  .shared .align 4 .b8 s[1024];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, s;
  mad.lo.u32 %r2, %r1, 4, %r2;
  st.shared.u32 [%r2], %r1;
  xor.b32 %r3, %r1, 32;
  mov.u32 %r4, s;
  mad.lo.u32 %r4, %r3, 4, %r4;
  ld.shared.u32 %r5, [%r4];
  ld.shared.u32 %r6, [s+1020];
  ret;
}
`;

async function logOf(args: readonly string[]): Promise<string> {
  const scratch = scratchDirectory();
  const host = await startHost({ listen: `unix:${scratch.path}/s`, args });
  const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
  try {
    writeFileSync(path.join(scratch.path, 'careless.ptx'), PTX);
    await askAll(shell, [
      'begin',
      `load 0 ${scratch.path}/careless.ptx`,
      'function 1 0 careless',
      'launch 1 1 1 1 64 1 1 0 00',
      'sync',
    ]);
  } finally {
    shell.kill();
    await until('the session to end', () => /ended/.test(host.log()), 20_000);
    await host.stop();
    scratch.remove();
  }
  return host.log();
}

describe('vgpu-hostd --check', () => {
  it('tells people the kernel, the line, the threads and the address', async () => {
    const log = await logOf(['--check', 'race,init']);
    assert.match(
      log,
      /race: kernel careless, line 1[15] of its PTX \((ld|st)\.shared\.u32\): block 0,0,0 thread 3?[0-9]+,0,0 (reads|writes) 4 bytes at 0x[0-9a-f]+ of shared memory that thread \d+,0,0 (wrote|read) at line 1[15], with no barrier between/,
    );
    assert.match(
      log,
      /init: kernel careless, line 16 of its PTX \(ld\.shared\.u32\): block 0,0,0 thread 0,0,0 reads 4 bytes at 0x3fc of shared memory that was never written/,
    );
  });

  it('tells programs the same with --json', async () => {
    const log = await logOf(['--check', 'init', '--json']);
    const found = log
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .find((entry) => entry['event'] === 'check' && entry['line'] === 16);
    assert.ok(found, log);
    const { session, message, ...rest } = found;
    assert.equal(typeof session, 'number');
    assert.match(String(message), /^init: kernel careless/);
    assert.deepEqual(rest, {
      event: 'check',
      check: 'init',
      kernel: 'careless',
      instruction: 'ld.shared.u32',
      space: 'shared',
      line: 16,
      block: [0, 0, 0],
      thread: [0, 0, 0],
      address: 1020,
      bytes: 4,
    });
    assert.doesNotMatch(log, /race: /);
  });

  it('looks at nothing unless asked', async () => {
    assert.doesNotMatch(await logOf([]), /race: |init: /);
  });

  for (const [args, complaint] of [
    [['--device', 'software', '--check', 'races'], '--check "races" is neither race nor init nor race,init'],
    [['--device', 'software', '--check', 'race,'], '--check "race," is neither race nor init nor race,init'],
    [['--device', 'cuda', '--check', 'race'], '--check needs --device software'],
  ] as const) {
    it(`refuses ${args.slice(1).join(' ')}`, () => {
      const { status, stderr } = spawnSync(builtFile('vgpu-hostd'), args, {
        encoding: 'utf8',
        timeout: 20_000,
      });
      assert.equal(status, 2);
      assert.ok(stderr.includes(complaint), stderr);
    });
  }
});
