/** A host of an older and of a newer wire than the guest, each a real build: both ends say both numbers and who is older. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it } from 'node:test';
import { olderSide, parseProbeReport } from '../../../agent/contracts/probe.js';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { askAll, builtFile, SHIM, scratchDirectory, startHost, startShell, until } from '../shim_host.js';

const header = readFileSync(path.join(ROOT, 'shim-src/wire/frame.h'), 'utf8');
const ours = Number(/define VGPU_WIRE_MAJOR (\d+)/.exec(header)?.[1]);

for (const [number, older, newer] of [
  [0, 'host', 'guest'],
  [2, 'guest', 'host'],
] as const) {
  describe(`a host of wire version ${number}, where the guest has ${ours}`, () => {
    it(`refuses the session; both say both numbers, and that the ${older} is older`, async (t) => {
      const scratch = scratchDirectory();
      const listen = `unix:${scratch.path}/s`;
      const host = await startHost({
        listen,
        args: ['--control', `${scratch.path}/control`],
        program: path.join(SHIM, 'programs', `vgpu-hostd-wire-${number}`),
      });
      const shell = startShell({ VGPU_HOST: listen, VGPU_LOG: 'stderr' });
      t.after(async () => {
        shell.kill();
        await host.stop();
        scratch.remove();
      });
      assert.equal((await shell.ask('init')).result, 100, 'CUDA_ERROR_NO_DEVICE');
      await until('the reason in the guest', () =>
        shell
          .stderr()
          .includes(
            `it speaks wire version ${number}.0, this guest speaks ${ours}.0: the ${older} is older, upgrade it`,
          ),
      );
      await host.logged(
        new RegExp(
          `it speaks wire version ${ours}\\.0, this host ${number}\\.0: the ${older} is older, upgrade it`,
        ),
      );
      assert.doesNotMatch(host.log() + shell.stderr(), new RegExp(`the ${newer} is older`));
      assert.doesNotMatch(host.log(), /worker \d/, 'nobody serves it');
      // The list of sessions is asked for by the agent, and has to be told why there is none.
      const asked = await runProgram(builtFile('vgpu-probe'), ['--sessions', '--host', listen]);
      assert.equal(asked.code, 1);
      assert.match(asked.stdout, /"code":"refused","status":1\b/, 'VGPU_STATUS_VERSION');
      const both = `it speaks wire version ${number}.0, this guest speaks ${ours}.0: the ${older} is older, upgrade it`;
      assert.equal(JSON.parse(asked.stdout).error.message, both);
      // The service in the guest uses the lines of vgpu-watch.
      const watch = spawn(builtFile('vgpu-watch'), { stdio: ['pipe', 'pipe', 'inherit'] });
      watch.stdin.end(`host ${listen}\n`);
      const [line] = await once(createInterface({ input: watch.stdout }), 'line');
      assert.equal(line, `host down ${both}`);
      // The verdict and the doctor use the report of vgpu-probe.
      const probed = await runProgram(builtFile('vgpu-probe'), ['--library', builtFile('libcuda.so.1')], {
        env: { VGPU_HOST: listen },
      });
      const report = parseProbeReport(probed.stdout);
      const word = 'problem' in report ? null : report.host;
      assert.deepEqual([word?.code, word?.guestWire, word?.hostWire], ['version', ours, number]);
      assert.equal(word === null ? null : olderSide(word), older);
      // The administrator's command is of the other number, too, and does not care.
      const status = spawnSync(builtFile('vgpu-hostd'), ['status', '--control', `${scratch.path}/control`]);
      assert.match(
        status.stdout.toString(),
        new RegExp(
          `, wire version ${number}\\.0, .*\\ndevice 0: .*\\nkernels: .*\\nsessions: .*[45] refused`,
        ),
      );
      assert.equal(host.running(), true);
    });
  });
}

describe('a host of the same wire version that is older than some calls', () => {
  it('serves a newer guest: what its programs did before these calls were added comes out right', async (t) => {
    const scratch = scratchDirectory();
    const host = await startHost({
      listen: `unix:${scratch.path}/s`,
      program: path.join(SHIM, 'programs', 'vgpu-hostd-fewer-calls'),
    });
    t.after(async () => {
      await host.stop();
      scratch.remove();
    });
    const kernels = path.join(ROOT, 'test/shim/kernels/ptx');
    const env = { VGPU_HOST: `unix:${scratch.path}/s`, LD_LIBRARY_PATH: SHIM };
    const ran = await runProgram(builtFile('programs/ptx_guest'), [kernels, '80'], { env });
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.match(ran.stdout, /^vector_add 0 wrong 0$/m);
    assert.match(ran.stdout, /^variables 0 0 bytes 4 counter 5 /m, 'variables of modules are found');
    const shell = startShell(env, 'code_shell');
    t.after(() => shell.kill());
    const text = path.join(ROOT, 'test/fixtures/code/kernels.ptx');
    const linked = path.join(scratch.path, 'linked');
    await askAll(shell, ['begin', `link 1 ${text} ${linked}`, `load 0 ${linked}`, 'function 1 0 add']);
    assert.equal(readFileSync(linked, 'utf8'), readFileSync(text, 'utf8'), 'the only input is the result');
    const newer = await runProgram(builtFile('programs/graph_conditions'), ['decides'], { env });
    assert.match(newer.stdout + newer.stderr, /\b801\b/, 'the host lacks conditional graphs');
  });
});

describe('the number of the wire', () => {
  it('is the one that the libraries carry, for the agent to compare', () => {
    const note = spawnSync('readelf', ['-p', '.note.vgpu', builtFile('libcuda.so.1')], { encoding: 'utf8' });
    if (note.error !== undefined) return;
    assert.match(note.stdout, new RegExp(`wire\\W+${ours}\\b`, 'i'));
  });
});
