/** Several consumers in one service: who is kept, and how they are told as one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Consumer, Manifest } from '../../../agent/contracts/manifest.js';
import { createConfigReader } from '../../../agent/guest/agent-conf.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { Board, consumerBoard } from '../../../agent/service/board.js';
import { loadDesired } from '../../../agent/service/desired.js';
import { overview } from '../../../agent/service/overview.js';
import { turns } from '../../../agent/service/served.js';
import { cpuVerdict, verdict } from '../cli/output/samples.js';

const read = createConfigReader();
const consumer = (profile: string, unit: string): Consumer => ({ profile, unit, links: [] });
const manifest = (...consumers: readonly Consumer[]): Manifest => ({
  schema: 2,
  agent: '0',
  storeId: '0',
  endpoint: 'unix:/x',
  consumers,
  items: [],
});
const both = manifest(
  consumer('ollama', 'ollama@1.service'),
  consumer('llama-server', 'llama-server.service'),
);

function kept(config: object | null, installed: Manifest | null): unknown {
  const text = config === null ? null : JSON.stringify({ schema: 1, ...config });
  const loaded = loadDesired(() => text, installed, read, loadProfile);
  if (loaded.kind === 'refused') return loaded.problem;
  const { consumers, declared, unreadable } = loaded.desired;
  return [consumers.map((one) => `${one.name} ${one.unit}`), declared, unreadable.length];
}

const all = ['ollama ollama@1.service', 'llama-server llama-server.service'];
for (const [what, config, installed, expected] of [
  ['without a file all that are installed are kept', null, both, [all, false, 0]],
  ['"installed" is the same', { consumers: 'installed' }, both, [all, false, 0]],
  [
    'a list is kept, whatever is installed',
    { consumers: ['ollama'] },
    both,
    [['ollama ollama.service'], true, 0],
  ],
  [
    'a list names instances',
    { consumers: [{ profile: 'ollama', unit: 'ollama@2.service' }, { profile: 'llama-server' }] },
    null,
    [['ollama ollama@2.service', 'llama-server llama-server.service'], true, 0],
  ],
  [
    'where nothing is, the usual one is looked at and not installed',
    null,
    null,
    [['ollama ollama.service'], false, 0],
  ],
  [
    'a profile that is gone stops only its own consumer',
    null,
    manifest(consumer('mine', 'mine.service'), consumer('ollama', 'ollama.service')),
    [['ollama ollama.service'], false, 1],
  ],
] as const) {
  test(what, () => assert.deepEqual(kept(config, installed), expected));
}

for (const [config, problem] of [
  [{ consumers: [] }, /consumers: .*fewer than 1/],
  [{ consumers: 'all' }, /consumers/],
  [{ consumers: [{ profile: 'ollama', unit: '../x' }] }, /consumers\[0\]\.unit: "\.\.\/x" was given/],
  [{ consumers: ['olama'] }, /Profiles: .*ollama/],
  [{ profile: 'ollama' }, /profile: unknown key/],
] as const) {
  test(`refused: ${JSON.stringify(config)}`, () => assert.match(String(kept(config, null)), problem));
}

function twoConsumers(): {
  board: Board;
  one: ReturnType<typeof consumerBoard>;
  two: ReturnType<typeof consumerBoard>;
} {
  const board = new Board();
  board.setConsumers([
    { profile: 'ollama', unit: 'ollama.service' },
    { profile: 'llama-server', unit: 'llama-server.service' },
  ]);
  return {
    board,
    one: consumerBoard(board, 'ollama', 'ollama.service'),
    two: consumerBoard(board, 'llama-server', 'llama-server.service'),
  };
}

test('the summary is that of the worst consumer: its phase, its verdict, its problem with the name', () => {
  const { board, one, two } = twoConsumers();
  one.update({ phase: 'settled', verdict });
  two.update({ phase: 'degraded', verdict: cpuVerdict, problem: 'given up' });
  const { phase, verdict: shown, problem, unit } = overview(board.now);
  assert.deepEqual(
    [phase, shown?.mode, problem, unit],
    ['degraded', 'cpu', 'llama-server.service: given up', 'ollama.service'],
  );
});

test('with one consumer the problem and the due restart do not have its name', () => {
  const board = new Board();
  board.setConsumers([{ profile: 'ollama', unit: 'ollama.service' }]);
  const due = { reason: 'the host is back', waitsFor: 'it serves' };
  consumerBoard(board, 'ollama', 'ollama.service').update({ problem: 'waits', pendingRestart: due });
  const { problem, pendingRestart } = overview(board.now);
  assert.deepEqual([problem, pendingRestart], ['waits', due]);
});

test('the counters of all consumers are added up, and those of one stay when another is removed', () => {
  const { board, one, two } = twoConsumers();
  one.count('restarts');
  two.count('restarts');
  two.repaired(12);
  assert.deepEqual([overview(board.now).counters.restarts, board.now.repairMilliseconds], [2, 12]);
  board.setConsumers([{ profile: 'llama-server', unit: 'llama-server.service' }]);
  assert.deepEqual([overview(board.now).counters.restarts, one.now.phase], [1, 'idle']);
  one.update({ phase: 'settled' });
  assert.deepEqual(
    board.now.consumers.map((each) => each.phase),
    ['starting'],
  );
});

test('turns are taken one after the other, and a failed one does not block the next', async () => {
  const turn = turns();
  const said: string[] = [];
  const task = (name: string, ms: number) => async (): Promise<void> => {
    said.push(`${name} begins`);
    await new Promise((resolve) => setTimeout(resolve, ms));
    said.push(`${name} ends`);
    if (name === 'a') throw new Error('a');
  };
  const first = assert.rejects(turn(task('a', 5)), /a/);
  await turn(task('b', 0));
  await first;
  assert.deepEqual(said, ['a begins', 'a ends', 'b begins', 'b ends']);
});
