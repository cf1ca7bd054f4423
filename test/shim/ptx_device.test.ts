/** Kernels through the whole path: a program, the shim, the wire, vgpu-hostd, and back with the right numbers. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from './private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  startHost,
  startShell,
  until,
} from './shim_host.js';

const run = promisify(execFile);

describe('a simulated GPU that computes', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  for (const target of [50, 61, 75, 80, 90]) {
    it(`gives right numbers for compute_${target}, faults as a GPU, and goes on in a new context`, async () => {
      const { stdout } = await run(
        builtFile('programs/ptx_guest'),
        [path.join(ROOT, 'test/shim/kernels/ptx'), `${target}`],
        { env: { ...process.env, LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address }, timeout: 60_000 },
      );
      // chained: out[i] = i + out[i - 1] + 1
      assert.deepEqual(stdout.trim().split('\n'), [
        'begin 0',
        'load 0',
        'vector_add 0 wrong 0',
        'variables 0 0 bytes 4 counter 5 out 101',
        `allocates 0 last ${(3 * 63 * 64) / 2}`,
        'fault 700 again 700',
        `afterwards 0 0 last ${(300 * 299) / 2 + 299}`,
      ]);
      assert.match(
        host.log(),
        /kernel reads_beyond: illegal address: line \d+ of its PTX, block 0,0,0 thread \d+,0,0/,
      );
    });
  }

  it('loads a module with an instruction that it does not know, names it in the log, and runs no kernel of it', async () => {
    const file = `${scratch.path}/unknown.ptx`;
    writeFileSync(
      file,
      '.version 8.4\n.target sm_90\n.address_size 64\n.visible .entry never()\n{\n  wgmma.fence.sync.aligned;\n  ret;\n}\n',
    );
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin', `load 0 ${file}`, 'function 1 0 never', 'launch 1 1 1 1 1 1 1 0 -']);
      assert.equal((await shell.ask('sync')).result, 801, 'CUDA_ERROR_NOT_SUPPORTED');
      const named = /a module: line 6: wgmma\.fence\.sync\.aligned: this instruction is not supported/;
      await until('the log to name it', () => named.test(host.log()), 20_000);
      writeFileSync(
        file,
        '.version 8.4\n.target sm_90\n.address_size 64\n.visible .entry never()\n{\n  add.u32;\n}\n',
      );
      assert.equal((await shell.ask(`load 1 ${file}`)).result, 218, 'CUDA_ERROR_INVALID_PTX');
    } finally {
      shell.kill();
    }
  });
});
