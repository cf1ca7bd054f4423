/** The host's state on the board, and in the journal when it goes and comes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Board } from '../../../agent/service/board.js';
import { hostWatch } from '../../../agent/service/helper.js';
import type { JournalMessage } from '../../../agent/systemd/journal-writer.js';

/** A watch with a clock of the test's own. */
function watched() {
  const board = new Board();
  const written: JournalMessage[] = [];
  const clock = { now: 1_000 };
  const record = { write: (message: JournalMessage) => void written.push(message), say: () => {} };
  const watch = hostWatch(board, record, () => clock.now);
  watch.moved('unix:/run/vgpu/host.sock');
  return { board, written, clock, watch };
}

const up = { kind: 'up', device: 'NVIDIA H200', simulated: true } as const;
const down = { kind: 'down', reason: 'it closed the connection' } as const;
const endpoint = 'unix:/run/vgpu/host.sock';

test('with another address the facts about the former host do not count', () => {
  const { board, watch, written } = watched();
  watch.host(down);
  watch.moved('vsock:2:1');
  const { host } = board.now;
  assert.deepEqual(host, { endpoint: 'vsock:2:1', answers: null, simulated: false, detail: 'not asked yet' });
  watch.host(up);
  assert.deepEqual(
    written.map(({ kind }) => kind),
    ['hostLost'],
  );
});

test('a host that answers for the first time is shown, and nothing is written', () => {
  const { board, watch, written } = watched();
  watch.host(up);
  assert.deepEqual(board.now.host, { endpoint, answers: true, simulated: true, detail: 'NVIDIA H200' });
  assert.deepEqual([written, board.now.hostLosses], [[], 0]);
});

test('a host that is lost is counted, shown and written with the reason', () => {
  const { board, watch, written } = watched();
  watch.host(up);
  watch.host(down);
  assert.deepEqual(board.now.host, { endpoint, answers: false, simulated: true, detail: down.reason });
  assert.equal(board.now.hostLosses, 1);
  assert.deepEqual(written, [
    {
      kind: 'hostLost',
      profile: null,
      unit: null,
      text: `the host at ${endpoint} does not answer: it closed the connection`,
      fields: { ENDPOINT: endpoint },
    },
  ]);
});

test('a host that is back is written once, with how long it was away', () => {
  const { board, watch, written, clock } = watched();
  watch.host(down);
  clock.now += 2_540;
  watch.host(up);
  watch.host(up);
  assert.equal(board.now.host.answers, true);
  assert.deepEqual(written.slice(1), [
    {
      kind: 'hostBack',
      profile: null,
      unit: null,
      text: `the host at ${endpoint} answers again after 2.5 s: NVIDIA H200`,
      fields: { ENDPOINT: endpoint, SECONDS: '2.5' },
    },
  ]);
});
