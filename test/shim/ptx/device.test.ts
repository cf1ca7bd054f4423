/** Kernels through the whole path: a program, the shim, the wire, vgpu-hostd, and back with the right numbers. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  startHost,
  startShell,
  until,
} from '../shim_host.js';

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

  for (const [target, profile] of [
    [50, 'h100-80gb'],
    [61, 'h100-80gb'],
    [75, 'h100-80gb'],
    [80, 'h100-80gb'],
    [90, 'h100-80gb'],
    [80, 'rtx-3090'],
    [100, 'b200'],
    [100, 'rtx-5090'],
  ] as const) {
    it(`gives right numbers for compute_${target} on ${profile}, faults as a GPU, and goes on in a new context`, async (t) => {
      const args = ['--profile', path.join(ROOT, `profiles/devices/${profile}.json`)];
      const host = await startHost({ listen: `unix:${scratch.path}/${profile}`, args });
      t.after(() => host.stop());
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

  it('runs clusters that the kernel requires, and that the launch asks for', async () => {
    // Each block looks at its neighbour's shared memory, and traps when its rank is not there.
    const kernel = (name: string, directive: string): string => `
.visible .entry ${name}() ${directive}
{
  .shared .align 4 .b32 word;
  .reg .b32 %r<9>;
  .reg .pred %p;
  mov.u32 %r0, %cluster_ctarank;
  st.shared.u32 [word], %r0;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  mov.u32 %r1, word;
  xor.b32 %r2, %r0, 1;
  mapa.shared::cluster.u32 %r3, %r1, %r2;
  ld.shared::cluster.u32 %r4, [%r3];
  setp.ne.u32 %p, %r4, %r2;
  @%p trap;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  ret;
}
`;
    const file = `${scratch.path}/clusters.ptx`;
    const head = '.version 8.4\n.target sm_90\n.address_size 64\n';
    writeFileSync(
      file,
      `${head}${kernel('required', '.explicitcluster .reqnctapercluster 2, 1, 1')}${kernel('asked', '')}`,
    );
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin', `load 0 ${file}`, 'function 1 0 required', 'function 2 0 asked']);
      await askAll(shell, ['launch 1 8 1 1 32 1 1 0 -']);
      assert.equal((await shell.ask('sync')).result, 0);
      await askAll(shell, [`launch 2 8 1 1 32 1 1 0 - ex 4 ${(1n << 32n) | 4n} 1`]);
      assert.equal((await shell.ask('sync')).result, 0);
      await askAll(shell, ['launch 2 8 1 1 32 1 1 0 -']);
      assert.equal((await shell.ask('sync')).result, 700, 'without a cluster the neighbour is not there');
    } finally {
      shell.kill();
    }
  });

  it('refuses the kernels of a module that it cannot read at their launch, and the JIT log says why', async () => {
    const file = `${scratch.path}/narrow.ptx`;
    writeFileSync(file, '.version 6.0\n.target sm_50\n.address_size 32\n.visible .entry narrow() { ret; }\n');
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin']);
      const answer = await shell.ask(`load 0 ${file} log 4096`);
      assert.equal(answer.result, 0);
      const why = 'addresses of 32 bits: not supported, so no kernel of the module can run';
      assert.ok(answer.values.join(' ').includes(why), answer.values.join(' '));
      await askAll(shell, ['function 1 0 narrow']);
      const launch = await shell.ask('launch 1 1 1 1 1 1 1 0 -');
      assert.equal(launch.result, 801, 'CUDA_ERROR_NOT_SUPPORTED at the launch');
      assert.equal((await shell.ask('sync')).result, 0, 'and nowhere else');
    } finally {
      shell.kill();
    }
  });

  it('refuses a module of a version that there is not, and one with a type that there is not', async () => {
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    const load = async (text: string): Promise<readonly [number, string]> => {
      const file = `${scratch.path}/refused.ptx`;
      writeFileSync(file, text);
      const { result, values } = await shell.ask(`load 0 ${file} log 4096`);
      return [result, values.slice(1).join(' ')];
    };
    try {
      await askAll(shell, ['begin']);
      assert.deepEqual(await load('.version 9.9\n.target sm_90\n.visible .entry k() { ret; }\n'), [
        222, // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        'line 1: there is no .version 9.9, the newest is 9.5',
      ]);
      const body = '.reg .u32 %r<3>; add.u33 %r0, %r1, %r2;';
      assert.deepEqual(await load(`.version 8.0\n.target sm_90\n.visible .entry k() { ${body} ret; }\n`), [
        218, // CUDA_ERROR_INVALID_PTX
        'line 3: add.u33 is no PTX: the type .u33',
      ]);
    } finally {
      shell.kill();
    }
  });

  for (const how of ['load', 'library'] as const)
    it(`says in the guest's VGPU_LOG why a kernel cannot run: ${how}`, async () => {
      const file = `${scratch.path}/logged.ptx`;
      const log = `${scratch.path}/log-${how}`;
      writeFileSync(
        file,
        `.version 8.4\n.target sm_90\n.visible .entry never() { frobnicate.${how}; ret; }\n.visible .entry other() { ret; }\n`,
      );
      const shell = startShell({ VGPU_HOST: host.address, VGPU_LOG: log }, 'code_shell');
      try {
        await askAll(shell, ['begin', `${how} 0 ${file}`]);
        await askAll(shell, [how === 'load' ? 'function 1 0 never' : 'kernel 1 0 never']);
        assert.equal((await shell.ask('launch 1 1 1 1 1 1 1 0 -')).result, 801);
        const said = readFileSync(log, 'utf8');
        assert.ok(
          said.includes(
            `: JIT log of a module: line 3: frobnicate.${how} is not supported, so the kernel never cannot run\n`,
          ),
          said,
        );
        assert.match(said, /: kernel never cannot run on this device: CUresult 801\n/);
      } finally {
        shell.kill();
      }
    });

  it('loads a module with an instruction that it does not know, names it in both logs, and runs its other kernel', async () => {
    const file = `${scratch.path}/unknown.ptx`;
    const head = '.version 8.4\n.target sm_90\n.address_size 64\n';
    writeFileSync(
      file,
      `${head}.visible .entry never()\n{\n  frobnicate.sync.aligned;\n  ret;\n}\n.visible .entry other() { ret; }\n`,
    );
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    try {
      await askAll(shell, ['begin']);
      const answer = await shell.ask(`load 0 ${file} log 4096`);
      assert.equal(answer.result, 0);
      const why = 'line 6: frobnicate.sync.aligned is not supported';
      assert.ok(answer.values.join(' ').includes(why), answer.values.join(' '));
      await askAll(shell, ['function 1 0 never', 'function 2 0 other', 'launch 2 1 1 1 1 1 1 0 -']);
      const launch = await shell.ask('launch 1 1 1 1 1 1 1 0 -');
      assert.equal(launch.result, 801, 'CUDA_ERROR_NOT_SUPPORTED at the launch');
      assert.equal((await shell.ask('sync')).result, 0, 'and nowhere else');
      const named = new RegExp(`${why}, so the kernel never cannot run`);
      await until('the log to name it', () => named.test(host.log()), 20_000);
      writeFileSync(file, `${head}.visible .entry never()\n{\n  add.u32;\n}\n`);
      const invalid = await shell.ask(`load 1 ${file} log 4096`);
      assert.equal(invalid.result, 218, 'CUDA_ERROR_INVALID_PTX');
      assert.match(invalid.values.join(' '), /line 6: add\.u32 takes/);
    } finally {
      shell.kill();
    }
  });
});
