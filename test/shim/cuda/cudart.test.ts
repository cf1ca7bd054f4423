import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { type Host, profileOfCuda, SHIM, scratchDirectory, startHost, VARIANT } from '../shim_host.js';
import { ROOT, runProgram } from './private_programs.js';

const run = promisify(execFile);

async function reasonToSkip(): Promise<string | false> {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  try {
    await run('nvcc', ['--version']);
    return false;
  } catch {
    return "no nvcc here: NVIDIA's runtime is not tested, only the driver API";
  }
}

const skip = await reasonToSkip();

for (const linking of ['static', 'shared'] as const) {
  describe(`NVIDIA's runtime, linked ${linking}`, { skip }, () => {
    const scratch = scratchDirectory();
    const program = path.join(scratch.path, 'program');
    let host: Host;

    before(async () => {
      const source = path.join(ROOT, 'test/shim/programs/runtime_properties.cu');
      await run('nvcc', ['-cudart', linking, '-o', program, source], { maxBuffer: 1 << 24 });
      host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels', 'refuse'] });
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });

    const start = (address: string) =>
      runProgram(program, [], {
        env: { VGPU_HOST: address, LD_LIBRARY_PATH: [SHIM, process.env['LD_LIBRARY_PATH'] ?? ''].join(':') },
        limit: 60_000,
      });

    it('starts, tells the device, copies and frees, and is refused a launch', async () => {
      const ended = await start(host.address);
      assert.equal(ended.code, 0, ended.stdout + ended.stderr);
      assert.match(ended.stdout, /^failures 0$/m, ended.stdout);
      assert.match(ended.stdout, /^device 1 9\.0 85017755648 13000 NVIDIA H100 80GB HBM3 \(simulated\)$/m);
      assert.deepEqual(ended.stdout.match(/^same .*$/gm), ['same 0', 'same 0']);
      assert.match(ended.stdout, /^type 2$/m);
      assert.match(ended.stdout, /^launch 801$/m);
      assert.match(ended.stdout, /^executed 0$/m, 'told once');
      assert.equal(ended.stderr, '');
    });

    it('starts, copies and frees with a driver of CUDA 13.5', async () => {
      const newer = await startHost({
        listen: `unix:${scratch.path}/newer`,
        args: ['--software-kernels', 'refuse', '--profile', profileOfCuda('13.5', scratch.path)],
      });
      try {
        const ended = await start(newer.address);
        assert.match(ended.stdout, /^failures 0$/m, ended.stdout + ended.stderr);
        assert.match(ended.stdout, /^device 1 9\.0 85017755648 13050 NVIDIA H100 80GB HBM3 \(simulated\)$/m);
      } finally {
        await newer.stop();
      }
    });

    it('says that there is no device when there is no host, in time', async () => {
      const ended = await start('unix:/nonexistent');
      assert.match(ended.stdout, /^count 100$/m);
      assert.ok(ended.milliseconds < 20_000, `${ended.milliseconds} ms`);
      assert.equal(ended.signal, null);
    });
  });
}
