import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Board, consumerBoard } from '../../../agent/service/board.js';
import { overview } from '../../../agent/service/overview.js';

test('the board gives listeners the former and the new state', () => {
  const board = new Board();
  const seen: string[] = [];
  board.setConsumers([{ profile: 'ollama', unit: 'ollama.service' }]);
  board.listen((now, before) => {
    const { phase, counters } = overview(now);
    seen.push(`${overview(before).phase}>${phase} ${counters.drifts}`);
  });
  const mine = consumerBoard(board, 'ollama', 'ollama.service');
  mine.update({ phase: 'settled' });
  mine.count('drifts');
  assert.deepEqual(seen, ['starting>settled 0', 'settled>settled 1']);
});
