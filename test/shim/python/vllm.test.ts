/**
 * vLLM's server through `vgpu-agent run`, kernels skipped, on a simulated GPU and with --device cuda over the stand-in
 * driver: starts with a small random model, answers its API, stops. Its V2 runner reads from the GPU how many tokens
 * were sampled, and without kernels that is none; the older runner counts on the CPU and answers.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { startStandIn } from '../host/stand_in.js';
import { type Host, isIdle, scratchDirectory, sleep, startHost, until } from '../shim_host.js';
import { findPython, long, skipPython, startAsRun } from './python_steps.js';

const run = promisify(execFile);
const python = findPython('VGPU_TEST_VLLM', 'vllm-pip', 'import importlib.metadata as m; m.version("vllm")');
const skip =
  skipPython ||
  (python === undefined && 'no vLLM (scripts/fetch-packages vllm-pip)') ||
  (!long && '--long only');

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  assert.ok(typeof address === 'object' && address !== null);
  return address.port;
}

type Start = (listen: string) => Promise<Host>;
const hosts: Readonly<Record<string, Start>> = {
  'on a simulated GPU': (listen) => startHost({ listen, args: ['--software-kernels=skip'] }),
  'with --device cuda': (listen) => startStandIn('maps', { listen, env: { VGPU_INPROCESS_SKIP: '1' } }),
};

for (const [where, start] of Object.entries(hosts)) servesVllm(where, start);

function servesVllm(where: string, start: Start): void {
  describe(`vLLM, its kernels skipped, ${where}`, { skip }, () => {
    const scratch = scratchDirectory();
    const model = path.join(scratch.path, 'model');
    const started: ChildProcess[] = [];
    let host: Host;
    before(async () => {
      await run(python ?? '', [path.join(ROOT, 'test/shim/programs/vllm_model.py'), model]);
      host = await start(`unix:${scratch.path}/s`);
    });
    after(async () => {
      for (const child of started) child.kill();
      await host.stop();
      scratch.remove();
    });

    /** The URL of a server that answers, and how to stop the server. */
    async function serve(env: Readonly<Record<string, string>>) {
      const port = await freePort();
      const options = ['--max-model-len', '256', '--max-num-seqs', '4', '--gpu-memory-utilization', '0.05'];
      const server = ['serve', model, '--port', String(port), '--enforce-eager', ...options];
      const child = startAsRun(
        [python ?? '', '-m', 'vllm.entrypoints.cli.main', ...server],
        host,
        scratch.path,
        {
          HF_HUB_OFFLINE: '1',
          VLLM_NO_USAGE_STATS: '1',
          HOME: scratch.path,
          ...env,
        },
      );
      started.push(child);
      let log = '';
      for (const output of [child.stdout, child.stderr])
        output?.setEncoding('utf8').on('data', (text: string) => {
          log += text;
        });
      const end = once(child, 'exit');
      const url = `http://127.0.0.1:${port}`;
      while (
        !(await fetch(`${url}/health`)
          .then(({ ok }) => ok)
          .catch(() => false))
      ) {
        assert.equal(child.exitCode, null, log.slice(-6000));
        await sleep(500);
      }
      const stop = async (): Promise<void> => {
        child.kill('SIGTERM');
        assert.deepEqual(await end, [0, null], log.slice(-3000));
        await until('the sessions to end', () => isIdle(host), 20_000);
      };
      return { url, stop };
    }

    it('starts with the V2 runner, whose kernels read pinned memory, names its model, stops', async () => {
      const { url, stop } = await serve({});
      assert.match(await (await fetch(`${url}/v1/models`)).text(), /"owned_by":"vllm"/);
      await stop();
    });

    it('completes a prompt over a socket, with the older runner that vgpu-agent chooses, stops', async () => {
      const { url, stop } = await serve({ VGPU_TRANSPORT: 'socket' });
      const answer = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model, prompt: 'hello', max_tokens: 5, ignore_eos: true }),
      });
      assert.match(await answer.text(), /"completion_tokens":5\b/);
      await stop();
    });
  });
}
