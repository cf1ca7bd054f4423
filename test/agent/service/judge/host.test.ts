/** The host is lost, comes back, freezes, or another one takes its place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import { freezeMs } from '../../../../agent/service/judge/machine.js';
import { shownVerdict } from '../../../../agent/service/judge/shown.js';
import { active, Bench, cpu, dueOf, gpu, other, rules, working } from './bench.js';

test('the host is back while the next start is looked at: the verdict on the one before is not shown as it was', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.look(active('b'));
  bench.host('up');
  const shown = shownVerdict(bench.state);
  assert.deepEqual([shown?.invocationId, shown?.mode], ['a', 'degraded']);
});

test('a start that lived through the loss of its host is restarted although it looks as if it were still loading', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(bench.look(active('b')), ['confirm']);
  bench.host('down');
  bench.host('up');
  const loading: Verdict = { ...gpu('b'), mode: 'undetermined', reason: 'no-work-yet' };
  assert.ok(bench.judged(loading).includes('ask-serving'));
});

test('the host is lost: degraded at once, without asking the consumer', () => {
  const bench = new Bench().settledOn(gpu('a'));
  assert.deepEqual(bench.host('down'), ['show degraded host-unreachable', 'write verdict']);
  bench.tell({ kind: 'doubt' });
  assert.deepEqual(bench.look(active('a')), []);
});

test('when the host answers again, the service that lost it is restarted once, when it has no requests', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  assert.deepEqual(bench.host('up'), ['show degraded consumer-not-restarted', 'write verdict', 'look soon']);
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  assert.deepEqual(bench.serving('1 loaded, 1 connected'), [
    'due: it serves requests: 1 loaded, 1 connected',
    'write restartDeferred',
  ]);
  assert.deepEqual(
    bench.after(() => bench.tell({ kind: 'tick' })),
    ['look soon'],
  );
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  assert.deepEqual(bench.serving('2 loaded, 9 connected'), [
    'due: it serves requests: 2 loaded, 9 connected',
  ]);
  bench.look(active('a'));
  assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for host']);
  const told = { kind: 'restarted', result: 'done', reason: 'r', cause: 'host', start: active('b') } as const;
  assert.deepEqual(
    bench.after(() => bench.tell(told)),
    ['count-restart', 'write consumerRestarted'],
  );
  assert.deepEqual(bench.again(gpu('b')), [
    'show gpu',
    'write verdict',
    'say ollama.service after the restart: GPU (simulated)',
    'look soon',
  ]);
  assert.deepEqual(bench.look(active('b')), []);
});

test('a service that a user restarted meanwhile is not restarted again for the host', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.host('up');
  assert.deepEqual(bench.look(active('b')), ['confirm']);
  assert.deepEqual(bench.judged(gpu('b')), ['show gpu', 'write verdict']);
});

for (const [frozenFor, restarts] of [
  [freezeMs - 1, false],
  [freezeMs, true],
] as const) {
  test(`a host that froze for ${frozenFor} ms costs ${restarts ? 'the session' : 'nothing'}`, () => {
    const bench = new Bench().settledOn(gpu('a'));
    bench.host('down', 'no answer within the limit');
    bench.now += frozenFor;
    bench.host('up');
    assert.deepEqual(bench.look(active('a')), [restarts ? 'ask-serving' : 'confirm']);
  });
}

test('a connection that was closed costs the session, however short it was away', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.now += 1;
  bench.host('up');
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
});

for (const reason of [
  'host-unreachable',
  'host-slow',
  'no-work-yet',
  'host-foreign',
  'host-version',
  'no-device',
  'driver-init-failed',
  'compute-capability-unreadable',
  'discovery-timeout',
  'probe-crashed',
  'no-discovery-line',
  'journal-cut',
  'memory-round-trip-failed',
] as const) {
  test(`${reason}: the host may have been the cause, so a start that lost it is restarted when it is back`, () => {
    const bench = new Bench().settledOn(cpu('a', reason));
    bench.host('down');
    bench.host('up');
    assert.ok(bench.look(active('a')).includes('ask-serving'));
  });
}

test('driver-too-old: the host coming back is no reason for a restart', () => {
  const bench = new Bench().settledOn(cpu('a', 'driver-too-old'));
  bench.host('down');
  bench.host('up');
  assert.ok(!bench.look(active('a')).includes('ask-serving'));
});

test('while the host is away a finding is no reason for a restart, and an answer about serving neither', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.look(active('b'));
  bench.judged(cpu('b', 'model-on-cpu'));
  assert.equal(bench.state.pending, null);
  assert.deepEqual(bench.serving(null), []);
});

test('another host of the list is in use: restarted once, although it has a live session, and with its name', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked(gpu('a'), working);
  bench.host('down');
  assert.deepEqual(bench.look(active('a')), [], 'nothing is restarted while no host is in use');
  bench.host('up', '', other);
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  assert.equal(
    dueOf(bench),
    `host: the host in use is ${other} now, and the sessions at the former host are lost`,
  );
  assert.ok(bench.serving(null).includes('restart for host'));
  assert.deepEqual(bench.look(active('b')), ['confirm']);
  bench.judged(gpu('b'), active('b'), working);
  assert.deepEqual([bench.look(active('b')), dueOf(bench)], [[], 'nothing']);
});

test('a move after a short freeze costs the session all the same', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down', 'no answer within the limit');
  bench.now += 1_000;
  bench.host('up', '', other);
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
});

test('a consumer that systemd has started at the next host already is not restarted again', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.look(active('b'));
  bench.judged(gpu('b'), active('b'), working);
  bench.host('up', '', other);
  assert.deepEqual(bench.look(active('b')), ['ask-serving']);
  bench.looked(gpu('b'), working);
  assert.deepEqual([bench.serving(null), dueOf(bench)], [[], 'nothing']);
  assert.equal(shownVerdict(bench.state)?.mode, 'gpu');
});

test('back to the preferred host: not while it is busy, once when it is not', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked(gpu('a'), working);
  assert.deepEqual(bench.preferred(other), ['look soon']);
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  assert.match(bench.serving(null).join(), /^due: the host has a live session of ollama\.service/);
  bench.now += rules.idleMs;
  bench.looked(gpu('a'), working);
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  assert.equal(dueOf(bench), `preferred: the preferred host ${other} answers again`);
  assert.ok(bench.serving(null).includes('restart for preferred'));
  bench.host('up', '', other);
  bench.look(active('b'));
  bench.judged(gpu('b'), active('b'), working);
  assert.deepEqual([bench.look(active('b')), dueOf(bench)], [[], 'nothing']);
});

test('a preferred host that goes before the restart is none', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked(gpu('a'), working);
  bench.preferred(other);
  bench.look(active('a'));
  bench.serving(null);
  assert.deepEqual(bench.preferred(null), ['nothing is due', 'look soon']);
  assert.deepEqual([bench.look(active('a')), dueOf(bench)], [[], 'nothing']);
});

test('a move to a third host ends the wish for the preferred one', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.preferred(other);
  bench.host('down');
  bench.host('up', '', 'vsock:2:1');
  assert.equal(bench.state.preferred, null);
});
