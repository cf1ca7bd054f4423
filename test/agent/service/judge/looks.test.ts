/** Looks between two full verdicts, and how old an answer may be. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import { shownVerdict } from '../../../../agent/service/judge/shown.js';
import { active, Bench, cpu, gpu, rules, silent, told } from './bench.js';

test('a look contradicts the start: shown at once, without a line in the journal, and judged in full', () => {
  const bench = new Bench().settledOn(gpu('a'));
  const looked = bench.looked(cpu('a', 'model-on-cpu'), told(1, 0));
  assert.deepEqual(looked, ['show cpu model-on-cpu', 'write verdict', 'look soon']);
  assert.equal(bench.looked(gpu('a'), told(1, 1, true))[0], 'show gpu', 'newest evidence wins, both ways');
});

test('looks that keep changing have a verdict in full made every 30 s at most', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked(cpu('a', 'model-on-cpu'), told(0, 0));
  bench.now += 29_999;
  assert.ok(!bench.looked(gpu('a'), told(0, 0)).includes('look soon'));
  bench.now += 1;
  assert.ok(bench.looked(cpu('a', 'model-on-cpu'), told(0, 0)).includes('look soon'));
});

test('a verdict that rests on a question without an answer is made again, every 30 s at most', () => {
  for (const reason of ['journal-unavailable', 'host-slow'] as const) {
    const unknown: Verdict = { ...gpu('a'), mode: 'undetermined', reason };
    const bench = new Bench().settledOn(unknown);
    const soon = (): boolean => bench.looked(unknown, told(0, 0)).includes('look soon');
    assert.equal(soon(), true);
    bench.now += 29_999;
    assert.equal(soon(), false);
    bench.now += 1;
    assert.equal(soon(), true);
  }
});

test('while a question has no answer the pauses double, up to an hour, until another verdict or start', () => {
  const unknown = (start: string): Verdict => ({
    ...gpu(start),
    mode: 'undetermined',
    reason: 'journal-unavailable',
  });
  const bench = new Bench().settledOn(unknown('a'));
  const pauses = (start: string, count: number): number[] => {
    const found: number[] = [];
    for (let waited = 0; found.length < count; waited += 30) {
      if (bench.looked(unknown(start), told(0, 0)).includes('look soon')) {
        found.push(waited);
        waited = 0;
      }
      bench.now += 30_000;
    }
    return found;
  };
  assert.deepEqual(pauses('a', 9), [0, 30, 60, 120, 240, 480, 960, 1920, 3600]);
  bench.settledOn(unknown('b'));
  assert.deepEqual(pauses('b', 3).slice(1), [30, 60]);
});

test('a look at a start that is not the judged one says nothing', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(bench.looked(cpu('b', 'model-on-cpu'), told(0, 0)), []);
});

test('a host that has told and does not for more than 15 s: undetermined, with the last verdict and its time', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked({ ...gpu('a'), look: { id: 7, at: '2026-01-01T00:00:00.000Z' } }, told(1, 5, true));
  bench.now += 15_000;
  assert.equal(bench.looked(gpu('a'), silent)[0], 'show gpu');
  bench.now += 1;
  const old = { ...gpu('a'), look: { id: 8, at: '2026-01-01T00:00:15.000Z' } };
  assert.equal(bench.looked(old, silent)[0], 'show undetermined evidence-stale');
  const { summary, simulated } = shownVerdict(bench.state) ?? {};
  assert.match(summary ?? '', /does not report its sessions: no answer\. The last verdict was gpu at 2026-/);
  assert.equal(simulated, false);
  assert.equal(bench.looked(gpu('a'), told(1, 6, true))[0], 'show gpu');
});

test('a host that never tells its sessions leaves the verdict to the log', () => {
  const bench = new Bench();
  bench.tell({ kind: 'settled', outdated: null, start: active('a') });
  bench.tell({ kind: 'ready' });
  bench.look(active('a'));
  bench.judged(gpu('a'), active('a'), silent);
  bench.now += 60_000;
  assert.equal(bench.looked(gpu('a'), silent)[0], 'show gpu');
});

test('the host was restarted with restarts off: not-restarted ends as soon as kernels run there', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.rules = { ...rules, enabled: false };
  bench.host('down');
  assert.ok(bench.host('up').includes('show degraded consumer-not-restarted'));
  bench.look(active('a'));
  assert.equal(bench.looked(gpu('a'), told(1, 0))[0], 'show degraded consumer-not-restarted');
  assert.deepEqual(bench.looked(gpu('a'), told(1, 3, true)), ['nothing is due', 'show gpu', 'write verdict']);
});

test('a finding that is past by the next look is no reason for a restart any more', () => {
  const bench = new Bench().settledOn(cpu('a', 'model-on-cpu'));
  bench.looked(cpu('a', 'model-on-cpu'), told(1, 5));
  const [due] = bench.serving(null);
  assert.match(due ?? '', /^due: the host has a live session/);
  assert.deepEqual(bench.looked(gpu('a'), told(1, 5)).slice(0, 2), ['nothing is due', 'show gpu']);
});
