// Settings that keep Debian's llama-server off the GPU, with its log in the journal and without: never a false GPU verdict.
// Its children as a router too. `real-llama.test.ts` has its life on the GPU.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeGguf } from '../../shim/support/make-gguf.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { llamaGuest, unit, whyNoLlama } from '../support/real-llama.js';
import { assertVerdict, tell } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoLlama();
const profile = ['--profile', 'llama-server'] as const;
const dropIn = `/etc/systemd/system/${unit}.d/90-test.conf`;
const silent = 'LogLevelMax=warning';
const server = '/usr/bin/llama-server --ctx-size 256 --parallel 1';
const single = `${server} --model /opt/models/toy.gguf`;
const router = `${server} --models-dir /opt/models`;

test("the verdict follows the settings of Debian's llama-server", { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755);
  const model = makeGguf({ type: 'q4_0', seed: 20_260_101, sentence: ['one', 'two', 'three'] });
  writeFileSync(join(directory, 'toy.gguf'), model);
  const guest = await llamaGuest(t, directory, 'toy');
  await assertVerdict(guest, await tell(guest, 'install', '--yes', ...profile), { mode: 'gpu' });

  const order = JSON.stringify({ model: 'toy', prompt: 'one two', n_predict: 8 });
  /** It tells its port in its log only, which may be silenced. */
  const port = `$(ss -tlnpH | grep '"llama-server",pid='"$(systemctl show -P MainPID ${unit})" | grep -o '127.0.0.1:[0-9]*' | head -n 1)`;
  const asked = `curl -fsS -m 30 -d '${order}' "http://${port}/completion"`;

  for (const [command, lines, mode, reason] of [
    [single, ['Environment=LLAMA_ARG_DEVICE=none'], 'cpu', 'devices-hidden-by-environment'],
    [single, ['Environment=LLAMA_ARG_N_GPU_LAYERS=0'], 'cpu', 'library-forced-to-cpu'],
    [single, ['Environment=LLAMA_ARG_OVERRIDE_TENSOR=.*=CPU'], 'degraded', 'library-forced-to-cpu'],
    [`${single} --n-gpu-layers 99`, ['Environment=LLAMA_ARG_N_GPU_LAYERS=0'], 'gpu', null],
    [single, ['Environment=LLAMA_ARG_DEVICE=none', silent], 'cpu', 'devices-hidden-by-environment'],
    [single, [silent], 'gpu', null],
    [router, [], 'gpu', null],
    [router, ['Environment=LLAMA_ARG_DEVICE=none'], 'cpu', 'devices-hidden-by-environment'],
    [router, ['Environment=LLAMA_ARG_N_GPU_LAYERS=0'], 'cpu', 'library-forced-to-cpu'],
  ] as const) {
    const how = [command.slice(server.length + 1), ...lines].join(', ');
    await t.test(`${how}: ${mode}${reason === null ? '' : `, ${reason}`}`, async () => {
      const unitLines = ['ExecStart=', `ExecStart=${command}`, 'Environment=HF_HOME=/tmp/hf', ...lines];
      await guest.write(dropIn, `[Service]\n${unitLines.join('\n')}\n`);
      await guest.must(
        'sh',
        '-c',
        `systemctl daemon-reload; systemctl reset-failed ${unit}; systemctl restart ${unit}`,
      );
      await until('an answer', 60_000, async () =>
        (await guest.run('bash', '-c', asked)).code === 0 ? true : undefined,
      );
      const told = await tell(guest, 'verify', ...profile);
      const verdict = await assertVerdict(guest, told, reason === null ? { mode } : { mode, reason });
      if (reason !== null) assert.match(verdict.summary, /LLAMA_ARG_/);
    });
  }
});
