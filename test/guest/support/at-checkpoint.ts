/**
 * Preloaded into the agent (NODE_OPTIONS=--import). Interrupts the agent at one of the checkpoints that apply/ marks
 * (agent/install/apply/effects.ts). Environment:
 *
 * - VGPU_TEST_TRACE=FILE: appends the name of every checkpoint to FILE, one each line
 * - VGPU_TEST_AT=N: the N-th checkpoint, counted from 1, carries out VGPU_TEST_DO
 * - VGPU_TEST_DO: `kill` (SIGKILL to this process), `pause:FILE` (waits until FILE exists), `run:COMMAND` (a
 *   shell runs to its end)
 *
 * Everything is synchronous, so that no other code of the agent runs meanwhile.
 */
import { spawnSync } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { appendFileSync, existsSync } from 'node:fs';

const trace = process.env['VGPU_TEST_TRACE'];
const at = Number(process.env['VGPU_TEST_AT'] ?? '0');
const [verb, argument = ''] = splitOnce(process.env['VGPU_TEST_DO'] ?? 'kill');
let seen = 0;

channel('vgpu.checkpoint').subscribe((message) => {
  seen += 1;
  if (trace !== undefined) appendFileSync(trace, `${nameOf(message)}\n`);
  if (seen === at) act();
});

function act(): void {
  switch (verb) {
    case 'kill':
      process.kill(process.pid, 'SIGKILL');
      // The signal is delivered when the call returns to user mode; the loop never continues.
      for (;;) sleep(1000);
    case 'pause':
      appendFileSync(`${argument}.reached`, '');
      while (!existsSync(argument)) sleep(10);
      return;
    case 'run':
      spawnSync('/bin/sh', ['-c', argument], { stdio: ['ignore', 'inherit', 'inherit'] });
      return;
    default:
      throw new Error(`VGPU_TEST_DO=${verb}: kill, pause:FILE or run:COMMAND`);
  }
}

function sleep(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

function splitOnce(text: string): [string, string | undefined] {
  const colon = text.indexOf(':');
  return colon < 0 ? [text, undefined] : [text.slice(0, colon), text.slice(colon + 1)];
}

function nameOf(message: unknown): string {
  return typeof message === 'object' && message !== null && 'name' in message
    ? String(message.name)
    : 'unnamed';
}
