/**
 * A thread that waits in a call stops no other thread of its session (programs/blocked_calls.c), with --device cuda.
 * The other thread asks a hundred times before it lets the first one go on: where each question waits for a turn of
 * a second, as it did, or forever, the limit is reached.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  builtFile,
  type Host,
  isIdle,
  SHIM,
  scratchDirectory,
  startChain,
  until,
  VARIANT,
} from '../shim_host.js';

const CASES: Readonly<Record<string, string>> = {
  context: 'that waits for a context',
  stream: 'that waits for a stream',
  event: 'that waits for an event',
  read: 'that waits for a copy from the device',
  stream_read: 'that waits for a copy on a stream',
  rows: 'that waits for rows',
  written: 'that copied behind work that waits',
  stream_written: 'that copied to a stream that waits',
  rows_written: 'that sent rows behind work that waits',
  much: 'that copies more than the host keeps behind work that waits',
  much_pinned: 'that copies so much of pinned memory',
  much_stream: 'that copies so much to a stream that waits',
};

for (const transport of ['ring', 'socket'] as const) {
  describe(`with --device cuda over a ${transport}, no other thread is stopped by one`, () => {
    const scratch = scratchDirectory();
    let host: Host;
    before(async () => {
      host = await startChain(scratch.path);
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });
    for (const [name, sentence] of Object.entries(CASES)) {
      it(sentence, async () => {
        const env = { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM };
        const { code, stdout, stderr } = await runProgram(builtFile('programs/blocked_calls'), [name], {
          env: transport === 'socket' ? { ...env, VGPU_TRANSPORT: 'socket' } : env,
          limit: VARIANT === 'shim' ? 30_000 : 120_000,
        });
        assert.deepEqual({ code, output: stdout + stderr }, { code: 0, output: '' });
        await until('the session to end', () => isIdle(host), 20_000);
        assert.doesNotMatch(host.log(), /Sanitizer|violation/);
      });
    }
  });
}
