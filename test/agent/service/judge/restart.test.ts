/** Which findings lead to a restart, once each, and what it waits for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import { active, Bench, cpu, gpu, messagesOf, probed, rules, told } from './bench.js';

test('while the host is away nothing is restarted for it, but former files are a reason', () => {
  const bench = new Bench().settledOn(cpu('a', 'no-device'));
  bench.host('down');
  bench.tell({ kind: 'settled', outdated: 'it has a former library', start: active('a') });
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  const other = new Bench().settledOn(gpu('a'));
  other.host('down');
  other.host('up');
  other.look(active('a'));
  other.host('down');
  assert.deepEqual(other.look(active('a')), ['due: the host does not answer', 'write restartDeferred']);
});

for (const reason of [
  'consumer-not-restarted',
  'probe-disagrees',
  'host-unreachable',
  'model-on-cpu',
] as const) {
  test(`${reason}: restarted once, and not again for the same finding`, () => {
    const bench = new Bench().settledOn(cpu('a', reason));
    assert.equal(bench.did.at(-1), 'ask-serving');
    assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for found']);
    bench.tell({ kind: 'restarted', result: 'done', reason: 'r', cause: 'found', start: active('b') });
    bench.again(cpu('b', reason));
    bench.now += 3_600_000;
    assert.deepEqual(bench.look(active('b')), []);
  });
}

for (const reason of ['driver-too-old', 'library-forced-to-cpu', 'no-discovery-line'] as const) {
  test(`${reason}: a restart would change nothing`, () => {
    assert.equal(new Bench().settledOn(cpu('a', reason)).did.at(-1), 'write verdict');
  });
}

test('after a restart by a user the same finding is tried again', () => {
  const bench = new Bench().settledOn(cpu('a', 'model-on-cpu'));
  bench.serving(null);
  bench.tell({ kind: 'restarted', result: 'done', reason: 'r', cause: 'found', start: active('b') });
  bench.again(cpu('b', 'model-on-cpu'));
  bench.now += 600_000;
  bench.look(active('c'));
  assert.equal(bench.judged(cpu('c', 'model-on-cpu')).at(-1), 'ask-serving');
});

test('former files: restarted for them, but not a consumer that does not run', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.tell({
    kind: 'settled',
    outdated: 'former library',
    start: { ...active('a'), activeState: 'failed' },
  });
  assert.deepEqual(bench.look(active('a')), []);
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
});

test('a consumer that stopped in the meantime is not started', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  const stopped = { ...active('a'), activeState: 'inactive' };
  assert.deepEqual(bench.look(stopped), ['confirm']);
  assert.deepEqual(bench.judged(cpu('a', 'unit-failed'), stopped), [
    'show cpu unit-failed',
    'write verdict',
    'nothing is due',
  ]);
});

test('restarts keep their distance, and their ceiling of an hour', () => {
  const bench = new Bench().settledOn(gpu('a'));
  const due = (): readonly string[] => {
    bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
    return bench.look(active('a'));
  };
  const until = (ms: number): string => new Date(bench.now + ms).toISOString();
  due();
  bench.serving(null);
  bench.now += 10_000;
  assert.deepEqual(due(), [
    `look ${bench.now + 20_000}`,
    `due: the last restart was a moment ago; not before ${until(20_000)}`,
    'write restartDeferred',
  ]);
  for (let time = 0; time < 5; time += 1) {
    bench.now += 400_000;
    bench.look(active('a'));
    bench.serving(null);
    due();
  }
  assert.match(due().join('\n'), /due: the limit of 6 restarts in an hour is reached/);
  bench.tell({ kind: 'retry' });
  bench.look(active('a'));
  assert.equal(bench.judged(gpu('a')).at(-1), 'ask-serving');
});

test('with restarts switched off a due restart is reported once and not made', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.rules = { ...rules, enabled: false };
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  const off = 'due: restarts are switched off in agent.json';
  assert.deepEqual(bench.look(active('a')), [off, 'write restartDeferred']);
  assert.deepEqual(bench.look(active('a')), [off]);
});

test('with permission to restart at any time open requests are no reason to wait', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.rules = { ...rules, whileServing: true };
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  bench.look(active('a'));
  assert.deepEqual(bench.serving('1 loaded'), ['nothing is due', 'restart for outdated']);
});

test('a restart that is due lapses with the start that it is about', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  bench.look(active('a'));
  bench.serving('busy');
  assert.deepEqual(bench.look(active('b')), ['nothing is due', 'confirm']);
  assert.deepEqual(
    bench.after(() => bench.tell({ kind: 'tick' })),
    [],
  );
});

for (const reason of ['probe-crashed', 'driver-init-failed', 'discovery-timeout'] as const) {
  test(`${reason}, and the probe finds the GPU: the start is restarted, once for all starts with that finding`, () => {
    const found = (id: string): Verdict => ({ ...cpu(id, reason), mode: 'degraded', evidence: [probed] });
    const bench = new Bench().settledOn(found('a'));
    assert.ok(bench.did.includes('ask-serving'));
    assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for found']);
    const [start, result, cause] = [active('b'), 'done', 'found'];
    bench.tell({ kind: 'restarted', result, reason: '', cause, start });
    bench.again(found('b'));
    assert.ok(!bench.look(start).includes('ask-serving'));
  });

  test(`${reason}, and the probe fails too: no restart`, () => {
    const bench = new Bench().settledOn(cpu('a', reason));
    assert.ok(!bench.did.includes('ask-serving'));
  });
}

test('a restart that waits is written once with its cause; a new end of the wait is not written again', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.rules = { ...rules, limits: { perHour: 1, backoffMs: 5_000, minimumMs: 30_000 } };
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  bench.look(active('a'));
  bench.serving(null);
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  const look = { kind: 'seen', seen: active('a'), rules: bench.rules } as const;
  const [told] = messagesOf(bench.tell({ ...look, now: bench.now + 1_000 }));
  const until = new Date(bench.now + 3_600_000).toISOString();
  assert.deepEqual(told, {
    kind: 'restartDeferred',
    profile: 'ollama',
    unit: 'ollama.service',
    text: `a restart is due (former library) and waits: the limit of 1 restart in an hour is reached; not before ${until}`,
    fields: { CAUSE: 'outdated' },
  });
  assert.deepEqual(messagesOf(bench.tell({ ...look, now: bench.now + 2_000 })), []);
});

test('a restart is written with its result and its cause', () => {
  const bench = new Bench().settledOn(cpu('a', 'model-on-cpu'));
  const restarted = {
    kind: 'restarted',
    result: 'failed',
    reason: 'it is on the CPU',
    cause: 'found',
  } as const;
  assert.deepEqual(messagesOf(bench.tell({ ...restarted, start: null })), [
    {
      kind: 'consumerRestarted',
      profile: 'ollama',
      unit: 'ollama.service',
      text: 'restarted (failed): it is on the CPU',
      fields: { CAUSE: 'found' },
    },
  ]);
  assert.equal(bench.state.judged?.invocationId, 'a', 'of a start that is not known the former one is kept');
});

test('the first reason for a restart stays: another finding does not replace it', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  bench.tell({ kind: 'settled', outdated: 'another library', start: active('a') });
  bench.tell({ kind: 'doubt' });
  bench.look(active('a'));
  bench.judged(cpu('a', 'model-on-cpu'));
  assert.deepEqual([bench.state.pending?.reason, bench.state.triedFor], ['former library', null]);
  assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for outdated']);
  assert.deepEqual(bench.serving(null), [], 'an answer that comes late restarts nothing');
});

test('former files and a live session: the restart waits, and is made when no kernel ran for so long', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.looked(gpu('a'), told(1, 5, true));
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  assert.deepEqual(bench.look(active('a')), ['ask-serving']);
  const due =
    'due: the host has a live session of ollama.service; sudo vgpu-agent restart ends it and makes the restart now';
  assert.deepEqual(bench.serving(null), [due, 'write restartDeferred']);
  bench.now += 599_999;
  bench.looked(gpu('a'), told(1, 5, true));
  assert.deepEqual(bench.serving(null), [due]);
  bench.now += 1;
  assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for outdated']);
});

test('a kernel, a new session and their end each make the session live again', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  for (const seen of [told(1, 5, true), told(1, 6, true), told(2, 6, true)]) {
    bench.now += 600_000;
    bench.looked(gpu('a'), seen);
    assert.match(bench.serving(null)[0] ?? '', /^due: the host has (a|2) live session/);
  }
  bench.looked(gpu('a'), told(0, 0));
  assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for outdated']);
});

test('restart.busy, and a host whose sessions are lost, restart a consumer with a live session', () => {
  const busy = new Bench().settledOn(gpu('a'));
  busy.rules = { ...rules, busy: true };
  busy.looked(gpu('a'), told(1, 5, true));
  busy.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  busy.look(active('a'));
  assert.deepEqual(busy.serving(null), ['nothing is due', 'restart for outdated']);
  const lost = new Bench().settledOn(gpu('a'));
  lost.looked(gpu('a'), told(1, 5, true));
  lost.host('down');
  lost.host('up');
  lost.look(active('a'));
  assert.deepEqual(lost.serving(null), ['nothing is due', 'restart for host']);
});

test('a person wants the restart that is due now: whatever it waits for, it is made; without one nothing is', () => {
  const bench = new Bench().settledOn(gpu('a'));
  const now = (): readonly string[] => bench.after(() => bench.tell({ kind: 'restart-now' }));
  assert.deepEqual(now(), []);
  bench.rules = { ...rules, enabled: false };
  bench.tell({ kind: 'settled', outdated: 'former library', start: active('a') });
  bench.look(active('a'));
  assert.deepEqual(now(), ['look soon']);
  assert.deepEqual(bench.look(active('a')), ['nothing is due', 'restart for outdated']);
});

test('a wrapper takes the variables away at each start: one restart, and none further', () => {
  const bench = new Bench().settledOn(cpu('a', 'no-device'));
  const why = (pid: number): string => `process ${pid} (ollama) was started before LD_PRELOAD was set for it`;
  bench.tell({ kind: 'settled', outdated: why(100), start: active('a') });
  bench.look(active('a'));
  assert.deepEqual(bench.serving(null), ['nothing is due', 'restart for outdated']);
  // The keeper looks while systemd still makes the restart, and again afterwards.
  const pending = (): unknown => bench.state.pending?.cause ?? null;
  bench.tell({ kind: 'settled', outdated: why(200), start: active('b') });
  assert.equal(pending(), null);
  bench.tell({ kind: 'restarted', result: 'done', reason: why(100), cause: 'outdated', start: active('b') });
  bench.again(cpu('b', 'environment-removed'));
  // In between the wrapper itself, which has them, was the main process.
  bench.tell({ kind: 'settled', outdated: null, start: active('b') });
  bench.tell({ kind: 'settled', outdated: why(201), start: active('b') });
  bench.now += 3_600_000;
  assert.deepEqual(bench.look(active('b')), []);
  bench.tell({ kind: 'settled', outdated: why(300), start: active('c') });
  assert.equal(pending(), null, 'nor after a restart by somebody else');
  bench.tell({ kind: 'settled', outdated: 'process 300 (ollama) still uses /x', start: active('c') });
  assert.equal(pending(), 'outdated', 'another fault is another matter');
});

test('a consumer whose kernels run at the host is not restarted for a finding', () => {
  const bench = new Bench();
  bench.tell({ kind: 'settled', outdated: null, start: active('a') });
  bench.tell({ kind: 'ready' });
  bench.look(active('a'));
  const found = cpu('a', 'probe-disagrees');
  assert.ok(!bench.judged(found, active('a'), told(1, 7, true)).includes('ask-serving'));
});
