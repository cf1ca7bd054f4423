/** Which start is judged, and when. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { active, Bench, gpu } from './bench.js';

test('nothing is judged before the files were looked at and the service is ready', () => {
  const bench = new Bench();
  assert.deepEqual(bench.look(active('a')), []);
  bench.tell({ kind: 'settled', outdated: null, start: active('a') });
  assert.deepEqual(bench.look(active('a')), []);
  bench.tell({ kind: 'ready' });
  assert.deepEqual(bench.look(active('a')), ['confirm']);
});

test('a start is judged once; a second look sends no request', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(bench.look(active('a')), []);
  assert.deepEqual(bench.look(active('b')), ['confirm']);
});

test('a doubt has the same start judged again, and the same verdict is written once', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(
    bench.after(() => bench.tell({ kind: 'doubt' })),
    ['look soon'],
  );
  assert.deepEqual(bench.look(active('a')), ['confirm']);
  assert.deepEqual(bench.judged(gpu('a')), ['show gpu']);
});

test('a start that is on its way, or is traced, is left alone', () => {
  const bench = new Bench().settledOn(gpu('a'));
  for (const activeState of ['activating', 'deactivating']) {
    assert.deepEqual(bench.look({ ...active('b'), activeState }), []);
  }
  assert.deepEqual(bench.look({ ...active('b'), traced: true }), []);
});

test('a start that ended while it was judged is judged again', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.look(active('b'));
  assert.deepEqual(bench.judged(gpu('b'), active('c')), ['show gpu', 'write verdict', 'look soon']);
});

test('without an installation or a unit there is no verdict', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(bench.look('absent'), ['show nothing']);
  assert.deepEqual(bench.look('idle'), ['show nothing']);
});

test('a change of the unit, a request by a person, and readiness have the unit looked at soon', () => {
  for (const kind of ['unit-changed', 'doubt', 'ready', 'retry'] as const) {
    const bench = new Bench();
    assert.deepEqual(
      bench.after(() => bench.tell({ kind })),
      ['look soon'],
    );
  }
  const bench = new Bench();
  assert.deepEqual(bench.host('up'), ['look soon'], 'a host that was never lost');
  assert.deepEqual(
    bench.after(() => bench.tell({ kind: 'settled', outdated: null, start: null })),
    ['look soon'],
  );
});

test('a consumer that has ended and waits for its next start is not on the GPU', () => {
  const bench = new Bench().settledOn(gpu('a'));
  const waiting = { ...active('a'), activeState: 'activating', ended: true };
  assert.deepEqual(bench.look(waiting), ['show undetermined unit-restarting', 'write verdict']);
  assert.deepEqual(bench.look(active('b')), ['show gpu', 'write verdict', 'confirm']);
});
