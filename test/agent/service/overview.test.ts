/** Several consumers as one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Mode } from '../../../agent/contracts/verdict.js';
import { statusView } from '../../../agent/install/pipeline/status-view.js';
import { Board, consumerBoard, type Phase } from '../../../agent/service/board.js';
import { overview } from '../../../agent/service/overview.js';
import { verdict } from '../cli/output/samples.js';
import { settled } from '../install/plan/settled.js';
import { ollama } from '../verdict/support.js';

const units = ['a.service', 'b.service'] as const;

function boards() {
  const board = new Board();
  board.setConsumers(units.map((unit) => ({ profile: 'ollama', unit })));
  const [a, b] = units.map((unit) => consumerBoard(board, 'ollama', unit));
  assert.ok(a !== undefined && b !== undefined);
  return { board, a, b };
}

test('the worst phase counts, whichever consumer has it', () => {
  const worstFirst: readonly Phase[] = ['degraded', 'repairing', 'waiting', 'starting', 'settled', 'idle'];
  for (const [at, worse] of worstFirst.entries()) {
    for (const better of worstFirst.slice(at)) {
      const { board, a, b } = boards();
      a.update({ phase: better });
      b.update({ phase: worse });
      assert.equal(overview(board.now).phase, worse, `${better} and ${worse}`);
    }
  }
});

test('the worst verdict counts: CPU, then degraded, then undetermined', () => {
  const worstFirst: readonly Mode[] = ['cpu', 'degraded', 'undetermined', 'gpu'];
  for (const [at, worse] of worstFirst.entries()) {
    for (const better of worstFirst.slice(at)) {
      const { board, a, b } = boards();
      a.update({ verdict: { ...verdict, mode: better } });
      b.update({ verdict: { ...verdict, mode: worse } });
      assert.equal(overview(board.now).verdict?.mode, worse, `${better} and ${worse}`);
    }
  }
});

test('without consumers the overview is empty', () => {
  const { profile, unit, phase, problem, verdict: none, view, drift } = overview(new Board().now);
  assert.deepEqual(
    [profile, unit, phase, problem, none, view, drift],
    ['', '', 'starting', null, null, null, []],
  );
});

test('the view shows the state of each consumer, and each difference once', () => {
  const { board, a, b } = boards();
  const view = {
    ...statusView(ollama, settled(), null, null),
    drift: [
      { change: 'link /lib/a', reason: 'it dangles' },
      { change: 'link /lib/a', reason: 'it is another' },
    ],
  };
  a.update({ view, phase: 'waiting', problem: 'a lock' });
  b.update({ view: { ...view, drift: view.drift.slice(0, 1) }, phase: 'settled' });
  const shown = overview(board.now);
  assert.deepEqual(shown.drift, view.drift);
  assert.deepEqual(
    shown.view?.consumers.map(({ service }) => service),
    [
      { state: 'waiting', problem: 'a lock', pendingRestart: null },
      { state: 'settled', problem: null, pendingRestart: null },
    ],
  );
});
