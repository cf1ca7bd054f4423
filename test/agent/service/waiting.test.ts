/** Waits that end early: with the service, or when the host answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Board } from '../../../agent/service/board.js';
import { hostKnown, pause } from '../../../agent/service/waiting.js';

const never = new AbortController().signal;
const long = 60_000;

function boardOf(endpoint: string, answers: boolean | null): Board {
  const board = new Board();
  board.update({ host: { endpoint, answers, simulated: false, detail: '' } });
  return board;
}

/** Milliseconds that it takes. */
async function timeOf(wait: Promise<void>): Promise<number> {
  const begun = performance.now();
  await wait;
  return performance.now() - begun;
}

test('a pause ends with its time, with the service, and at once when the service has ended before', async () => {
  assert.ok((await timeOf(pause(20, never))) >= 15);
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
  let known = false;
  const waited = hostKnown(board, long, never).then(() => {
    known = true;
  });
  board.update({ host: { ...board.now.host, answers: false } });
  await pause(5, never);
  assert.equal(known, false);
  board.update({ host: { ...board.now.host, answers: true } });
  await waited;
});

test('a host that never answers is waited for no longer than said, and not beyond the end', async () => {
  const board = boardOf('unix:/run/vgpu/host.sock', false);
  assert.ok((await timeOf(hostKnown(board, 20, never))) >= 15);
  const stop = new AbortController();
  const waited = hostKnown(board, long, stop.signal);
  stop.abort();
  await waited;
});
