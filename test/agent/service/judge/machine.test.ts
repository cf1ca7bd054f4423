/** The judge, without a clock, a bus or a consumer: events in, decisions out. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Reason, Verdict } from '../../../../agent/contracts/verdict.js';
import { freezeMs, judgeNext } from '../../../../agent/service/judge/machine.js';
import { shownVerdict } from '../../../../agent/service/judge/shown.js';
import {
  beginJudging,
  type JudgeEffect,
  type JudgeEvent,
  type JudgeState,
  type LiveSeen,
  type RestartRules,
  type Seen,
} from '../../../../agent/service/judge/state.js';
import { cpuVerdict, verdict as sample } from '../../cli/output/samples.js';

const rules: RestartRules = {
  enabled: true,
  whileServing: false,
  busy: false,
  idleMs: 600_000,
  limits: { perHour: 6, backoffMs: 5_000, minimumMs: 30_000 },
};
const active = (invocationId: string): Exclude<Seen, string> => ({
  invocationId,
  activeState: 'active',
  traced: false,
});
const gpu = (invocationId: string): Verdict => ({ ...sample, reason: null, mode: 'gpu', invocationId });
const cpu = (invocationId: string, reason: Reason): Verdict => ({ ...cpuVerdict, reason, invocationId });

const noSession: LiveSeen = { kind: 'told', sessions: 0, launches: 0, works: false };

/** A judge with a fake clock and a consumer that answers what it is told to. */
class Bench {
  state: JudgeState = beginJudging('ollama', 'ollama.service', rules);
  now = 1_000_000;
  rules = rules;
  did: string[] = [];

  tell(event: JudgeEvent): readonly JudgeEffect[] {
    const next = judgeNext(this.state, event);
    this.state = next.state;
    for (const effect of next.effects) this.did.push(wordsOf(effect));
    return next.effects;
  }

  look(seen: Seen): readonly string[] {
    return this.after(() => this.tell({ kind: 'seen', seen, rules: this.rules, now: this.now }));
  }

  judged(verdict: Verdict, start = active(verdict.invocationId ?? ''), live = noSession): readonly string[] {
    return this.after(() => this.tell({ kind: 'judged', verdict, live, start, now: this.now }));
  }

  again(verdict: Verdict): readonly string[] {
    return this.after(() => this.tell({ kind: 'judged-again', verdict, live: noSession, now: this.now }));
  }

  looked(verdict: Verdict, live: LiveSeen): readonly string[] {
    return this.after(() => this.tell({ kind: 'looked', verdict, live, now: this.now }));
  }

  serving(busy: string | null): readonly string[] {
    return this.after(() => this.tell({ kind: 'serving', busy, now: this.now }));
  }

  host(
    kind: 'down' | 'up',
    reason = 'it closed the connection',
    movedTo: string | null = null,
  ): readonly string[] {
    const host = kind === 'up' ? { kind, device: 'GPU', simulated: true } : { kind, reason };
    return this.after(() => this.tell({ kind: 'host', host, movedTo, now: this.now }));
  }

  preferred(endpoint: string | null): readonly string[] {
    return this.after(() => this.tell({ kind: 'preferred', endpoint }));
  }

  /** Ready, the files right, and the start `id` judged. */
  settledOn(verdict: Verdict): this {
    const start = active(verdict.invocationId ?? '');
    this.tell({ kind: 'settled', outdated: null, start });
    this.tell({ kind: 'ready' });
    this.look(start);
    this.judged(verdict);
    return this;
  }

  after(what: () => unknown): readonly string[] {
    this.did = [];
    what();
    return this.did;
  }
}

function wordsOf(effect: JudgeEffect): string {
  switch (effect.kind) {
    case 'look':
      return `look ${effect.when}`;
    case 'show':
      return `show ${effect.verdict === null ? 'nothing' : `${effect.verdict.mode} ${effect.verdict.reason ?? ''}`.trim()}`;
    case 'show-due':
      return effect.due === null ? 'nothing is due' : `due: ${effect.due.waitsFor}`;
    case 'restart':
      return `restart for ${effect.cause}`;
    case 'write':
      return `write ${effect.message.kind}`;
    case 'say':
      return `say ${effect.text}`;
    default:
      return effect.kind;
  }
}

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

const probed = { kind: 'probe', text: 'a GPU', weight: 'for', source: 'vgpu-probe' } as const;
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

test('driver-too-old: the host coming back is no reason for a restart', () => {
  const bench = new Bench().settledOn(cpu('a', 'driver-too-old'));
  bench.host('down');
  bench.host('up');
  assert.ok(!bench.look(active('a')).includes('ask-serving'));
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

const messagesOf = (effects: readonly JudgeEffect[]): readonly unknown[] =>
  effects.flatMap((effect) => (effect.kind === 'write' ? [effect.message] : []));

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

test('while the host is away a finding is no reason for a restart, and an answer about serving neither', () => {
  const bench = new Bench().settledOn(gpu('a'));
  bench.host('down');
  bench.look(active('b'));
  bench.judged(cpu('b', 'model-on-cpu'));
  assert.equal(bench.state.pending, null);
  assert.deepEqual(bench.serving(null), []);
});

const told = (sessions: number, launches: number, works = false): LiveSeen => ({
  kind: 'told',
  sessions,
  launches,
  works,
});
const silent: LiveSeen = { kind: 'unknown', message: 'no answer' };

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

test('a consumer that has ended and waits for its next start is not on the GPU', () => {
  const bench = new Bench().settledOn(gpu('a'));
  const waiting = { ...active('a'), activeState: 'activating', ended: true };
  assert.deepEqual(bench.look(waiting), ['show undetermined unit-restarting', 'write verdict']);
  assert.deepEqual(bench.look(active('b')), ['show gpu', 'write verdict', 'confirm']);
});

test('a finding that is past by the next look is no reason for a restart any more', () => {
  const bench = new Bench().settledOn(cpu('a', 'model-on-cpu'));
  bench.looked(cpu('a', 'model-on-cpu'), told(1, 5));
  const [due] = bench.serving(null);
  assert.match(due ?? '', /^due: the host has a live session/);
  assert.deepEqual(bench.looked(gpu('a'), told(1, 5)).slice(0, 2), ['nothing is due', 'show gpu']);
});

const working: LiveSeen = { kind: 'told', sessions: 1, launches: 9, works: true };
const other = 'tcp:10.0.0.2:14833';

/** The cause and reason of the restart that is due. */
function dueOf({ state }: Bench): string {
  return state.pending === null ? 'nothing' : `${state.pending.cause}: ${state.pending.reason}`;
}

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
