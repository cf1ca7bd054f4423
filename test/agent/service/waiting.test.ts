/** Waits that end early: with the service, or when the host answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Board } from '../../../agent/service/board.js';
import { hostKnown, pause } from '../../../agent/service/pacer.js';

const never = new AbortController().signal;
const long = 60_000;

function boardOf(endpoint: string, answers: boolean | null): Board {
  const board = new Board();
  board.update({ host: { endpoint, answers, simulated: false, detail: '' } });
  return board;
}

/** Whether it has ended; what was settled before is heard of first. */
async function isOver(wait: Promise<void>): Promise<boolean> {
  let over = false;
  wait.then(() => {
    over = true;
  });
  await new Promise(setImmediate);
  return over;
}

/** A wait of 20 ms: a timer may end a millisecond early, and seconds late on a busy machine. */
async function assertTwenty(wait: () => Promise<void>): Promise<void> {
  const began = performance.now();
  await wait();
  const milliseconds = performance.now() - began;
  assert.ok(milliseconds >= 19 && milliseconds < long / 6, `${milliseconds} ms`);
}

test('a pause ends with its time', async () => {
  await assertTwenty(() => pause(20, never));
});

test('a pause ends with the service, and at once when the service has ended before', async () => {
  const stop = new AbortController();
  const paused = pause(long, stop.signal);
  stop.abort();
  await paused;
  await pause(long, stop.signal);
});

test('there is nothing to wait for without a host, or with one that has answered', async () => {
  await hostKnown(boardOf('', null), long, never);
  await hostKnown(boardOf('unix:/run/vgpu/host.sock', true), long, never);
});

test('the service waits until the host answers, not for other news of it', async () => {
  const board = boardOf('unix:/run/vgpu/host.sock', null);
  const waited = hostKnown(board, long, never);
  board.update({ host: { ...board.now.host, answers: false } });
  assert.equal(await isOver(waited), false);
  board.update({ host: { ...board.now.host, answers: true } });
  await waited;
});

test('a host that never answers is waited for no longer than said, and not beyond the end', async () => {
  const board = boardOf('unix:/run/vgpu/host.sock', false);
  await assertTwenty(() => hostKnown(board, 20, never));
  const stop = new AbortController();
  const waited = hostKnown(board, long, stop.signal);
  stop.abort();
  await waited;
});
