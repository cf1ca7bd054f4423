/** The keeper, without a clock or a file: what a look showed goes in, what is to be done comes out. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  beginKeeping,
  type Drift,
  type Found,
  failuresToDegraded,
  type KeeperEffect,
  type KeeperEvent,
  type KeeperState,
  keeperNext,
} from '../../../../agent/service/keeper/machine.js';

const drift: Drift = { kind: 'drift', causes: ['/lib/a'], what: ['link /lib/a (it dangles)'] };
const interrupted: Found = { kind: 'interrupted' };
const right: Found = { kind: 'right' };
const quick = { enabled: true, limits: { perHour: 30, backoffMs: 1_000, minimumMs: 0 } };

/** A keeper with a fake clock, of a consumer that is installed. */
class Bench {
  state: KeeperState;
  rules = quick;
  installed = true;
  declared = false;
  busy: string | null = null;
  now = 1_000_000;
  written: string[] = [];

  constructor() {
    this.state = beginKeeping('ollama', 'ollama.service', this.rules);
  }

  tell(event: KeeperEvent): readonly string[] {
    const next = keeperNext(this.state, event);
    this.state = next.state;
    for (const effect of next.effects) {
      if (effect.kind === 'write' && 'text' in effect.message) this.written.push(effect.message.text);
    }
    return next.effects.map(wordsOf);
  }

  found(found: Found): readonly string[] {
    const { busy, rules, now } = this;
    const wanted = this.installed || (this.state.first && this.declared);
    return this.tell({ kind: 'found', found, wanted, busy, rules, now });
  }

  /** Found, and no package manager is at work. */
  goOn(found: Found): readonly string[] {
    assert.deepEqual(this.found(found), ['ask-package-manager']);
    return this.tell({ kind: 'package-manager', who: null, found, now: this.now });
  }

  repaired(): readonly string[] {
    const did = { titles: ['link /lib/a'], causes: ['/lib/a'] };
    return this.tell({ kind: 'repaired', did, begun: this.now - 40, now: this.now });
  }

  failed(why = 'no space left'): readonly string[] {
    return this.tell({ kind: 'failed', why, causes: ['/lib/a'], now: this.now });
  }

  noticed(options: { readonly first?: boolean; readonly soon?: boolean } = {}): readonly string[] {
    return this.tell({ kind: 'noticed', first: false, soon: false, ...options, now: this.now });
  }
}

function wordsOf(effect: KeeperEffect): string {
  switch (effect.kind) {
    case 'look':
      return `look ${effect.when}`;
    case 'show':
      return effect.phase;
    case 'settled':
      return effect.right ? 'settled' : 'nothing to do';
    case 'count':
      return `count ${effect.name}`;
    case 'count-repair':
      return `repaired in ${effect.milliseconds}`;
    case 'write':
      return `write ${effect.message.kind}`;
    case 'repair':
      return `repair${effect.interrupted ? ' what was interrupted' : ''} since ${effect.since}`;
    default:
      return effect.kind;
  }
}

test('without drift the keeper is settled, and the judge runs', () => {
  assert.deepEqual(new Bench().found(right), ['settled', 'settled']);
});

test('drift is reported once and repaired; the repair time counts from when it was noticed', () => {
  const bench = new Bench();
  assert.deepEqual(bench.noticed(), ['look soon']);
  bench.now += 25;
  bench.noticed();
  assert.deepEqual(bench.goOn(drift), [
    'count drifts',
    'write drift',
    'repairing',
    `repair since ${bench.now - 25}`,
  ]);
  assert.deepEqual(bench.goOn(drift), ['repairing', `repair since ${bench.now - 25}`]);
  assert.deepEqual(bench.repaired(), ['repaired in 40', 'write repaired', 'look now']);
  assert.deepEqual(bench.written, ['drift: link /lib/a (it dangles)', 'repaired in 40 ms: link /lib/a']);
  assert.equal(bench.state.noticedAt, null);
});

test('the same drift after a repair is reported again', () => {
  const bench = new Bench();
  bench.goOn(drift);
  bench.repaired();
  assert.deepEqual(bench.goOn(drift).slice(0, 2), ['count drifts', 'write drift']);
});

test('a repair that finds nothing to do looks again and reports nothing', () => {
  const bench = new Bench();
  bench.goOn(drift);
  const nothing = { kind: 'repaired', did: null, begun: 0, now: bench.now } as const;
  assert.deepEqual(bench.tell(nothing), ['look now']);
});

test('a run that was cut short is cleared up, installed or not', () => {
  const bench = new Bench();
  bench.installed = false;
  assert.deepEqual(bench.goOn(interrupted), ['repairing', `repair what was interrupted since ${bench.now}`]);
});

test('without an installation the keeper is idle, unless agent.json declares one at the first look', () => {
  const bench = new Bench();
  bench.installed = false;
  assert.deepEqual(bench.found(drift), ['idle', 'nothing to do']);
  bench.noticed({ first: true });
  assert.deepEqual(bench.found(drift), ['idle', 'nothing to do']);
  bench.declared = true;
  assert.deepEqual(bench.goOn(drift).at(-1), `repair since ${bench.now}`);
  assert.deepEqual(bench.found(drift), ['idle', 'nothing to do']);
});

test('a request for an installation during a look is not lost', () => {
  const bench = new Bench();
  bench.noticed({ first: true });
  bench.tell({ kind: 'found', found: right, wanted: false, busy: null, rules: quick, now: bench.now });
  assert.equal(bench.state.first, true);
});

test('a plan that is refused is waited for, with its reason', () => {
  const bench = new Bench();
  const refused: Found = { kind: 'refused', problem: 'there is no ollama.service' };
  assert.deepEqual(bench.found(refused), ['waiting', 'nothing to do']);
});

test('a package manager that was at work before the look is waited for, and then all is looked at again', () => {
  const bench = new Bench();
  bench.busy = 'apt-get';
  assert.deepEqual(bench.found(drift), ['waiting', 'write packageManager', 'wait-for-package-manager']);
  const gone = { kind: 'package-manager-gone', found: drift, now: bench.now } as const;
  assert.deepEqual(bench.tell({ ...gone, tired: false }), ['look now']);
  assert.equal(bench.tell({ ...gone, tired: true }).at(-1), `repair since ${bench.now}`);
});

test('a package manager that began during the look is waited for too', () => {
  const bench = new Bench();
  bench.found(drift);
  const began = { kind: 'package-manager', who: 'dpkg', found: drift, now: bench.now } as const;
  assert.deepEqual(bench.tell(began), ['waiting', 'write packageManager', 'wait-for-package-manager']);
  assert.equal(bench.written.at(-1), 'waiting for the package manager: dpkg');
});

test('with repairs switched off drift is reported once, and not repaired, without waiting for the package manager', () => {
  const bench = new Bench();
  bench.rules = { ...quick, enabled: false };
  bench.busy = 'apt-get';
  assert.deepEqual(bench.found(drift), ['count drifts', 'write drift', 'waiting', 'nothing to do']);
  assert.deepEqual(bench.found(drift), ['waiting', 'nothing to do']);
});

test('the third repair of the same thing in a row waits', () => {
  const bench = new Bench();
  for (let time = 0; time < 2; time += 1) {
    assert.equal(bench.goOn(drift).at(-1), `repair since ${bench.now}`);
    bench.repaired();
  }
  assert.deepEqual(bench.goOn(drift), [
    'count drifts',
    'write drift',
    `look ${bench.now + 1_000}`,
    'waiting',
    'nothing to do',
  ]);
  bench.now += 1_000;
  assert.match(bench.goOn(drift).at(-1) ?? '', /^repair/);
});

test('at the limit of an hour the service is degraded, reports it once, and tries again after the hour', () => {
  const bench = new Bench();
  bench.rules = { enabled: true, limits: { perHour: 2, backoffMs: 0, minimumMs: 0 } };
  for (let time = 0; time < 2; time += 1) {
    bench.goOn(drift);
    bench.repaired();
  }
  const later = bench.now + 3_600_000;
  const held = ['count drifts', 'write drift', `look ${later}`, 'degraded'];
  assert.deepEqual(bench.goOn(drift), [...held, 'write repairLimit', 'nothing to do']);
  assert.deepEqual(bench.goOn(drift), [`look ${later}`, 'degraded', 'nothing to do']);
  assert.match(bench.written.at(-1) ?? '', /^\/lib\/a: the limit of 2 repairs in an hour is reached/);
  bench.now = later;
  assert.match(bench.goOn(drift).at(-1) ?? '', /^repair/);
});

test('failures: tried again after pauses that double, then every hour until a person asks', () => {
  const bench = new Bench();
  bench.rules = { enabled: true, limits: { perHour: 100, backoffMs: 0, minimumMs: 0 } };
  const pauses: number[] = [];
  for (let time = 1; time < failuresToDegraded; time += 1) {
    const [counted, look = '', phase, told] = bench.failed();
    assert.deepEqual([counted, phase, told], ['count failedRepairs', 'waiting', 'write repairFailed']);
    pauses.push(Number(look.slice('look '.length)) - bench.now);
  }
  assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000]);
  assert.deepEqual(bench.failed(), [
    'count failedRepairs',
    `look ${bench.now + 3_600_000}`,
    'degraded',
    'write repairLimit',
  ]);
  assert.match(
    bench.written.at(-1) ?? '',
    /^\/lib\/a could not be repaired: no space left; it failed 5 times in a row, so the next try is in 60 minutes; repair it by hand/,
  );
  assert.deepEqual(bench.noticed(), []);
  bench.now += 3_600_000;
  assert.match(bench.goOn(drift).at(-1) ?? '', /^repair/);
  bench.failed();
  assert.deepEqual(bench.tell({ kind: 'retry' }), ['look now']);
  assert.deepEqual(bench.noticed({ soon: true }), ['look now']);
});

test('a repair that succeeds makes earlier failures past', () => {
  const bench = new Bench();
  for (let time = 1; time < failuresToDegraded; time += 1) bench.failed();
  bench.repaired();
  assert.equal(bench.failed().includes('waiting'), true);
});

test('a repair that failed counts for the limits, too', () => {
  const bench = new Bench();
  bench.rules = { enabled: true, limits: { perHour: 1, backoffMs: 0, minimumMs: 0 } };
  bench.goOn(drift);
  bench.failed();
  assert.ok(bench.goOn(drift).includes('degraded'));
});

const two: Drift = {
  kind: 'drift',
  causes: ['/lib/a', '/lib/b'],
  what: ['link /lib/a (it dangles)', 'x (y)'],
};
const keeperOf = { profile: 'ollama', unit: 'ollama.service' };
const effectsOf = (state: KeeperState, event: KeeperEvent): readonly KeeperEffect[] =>
  keeperNext(state, event).effects;
const messageIn = (effects: readonly KeeperEffect[]): unknown =>
  effects.flatMap((effect) => (effect.kind === 'write' ? [effect.message] : []))[0];
const problemIn = (effects: readonly KeeperEffect[]): unknown =>
  effects.flatMap((effect) => (effect.kind === 'show' ? [effect.problem] : []))[0];

test('a drift is written with every change and every path', () => {
  const begun = beginKeeping('ollama', 'ollama.service', quick);
  const event = { kind: 'package-manager', who: null, found: two, now: 5 } as const;
  assert.deepEqual(messageIn(effectsOf(begun, event)), {
    kind: 'drift',
    ...keeperOf,
    text: 'drift: link /lib/a (it dangles); x (y)',
    fields: { CHANGES: 2, PATHS: '/lib/a /lib/b' },
  });
});

test('a repair is written with its time, its changes and its paths', () => {
  const begun = beginKeeping('ollama', 'ollama.service', quick);
  const did = { titles: ['link /lib/a', 'ldconfig'], causes: ['/lib/a', '/lib/b'] };
  assert.deepEqual(messageIn(effectsOf(begun, { kind: 'repaired', did, begun: 10, now: 50.4 })), {
    kind: 'repaired',
    ...keeperOf,
    text: 'repaired in 40 ms: link /lib/a, ldconfig',
    fields: { CHANGES: 2, MILLISECONDS: 40, PATHS: '/lib/a /lib/b' },
  });
});

test('a failure is written with its subject and the time of the next try; without a path the subject is the repair', () => {
  const begun = beginKeeping('ollama', 'ollama.service', quick);
  const failed = { kind: 'failed', why: 'no space left', now: 5 } as const;
  const text = '/lib/a, /lib/b could not be repaired: no space left; the next try is in 1 s';
  const effects = effectsOf(begun, { ...failed, causes: two.causes });
  assert.deepEqual(messageIn(effects), {
    kind: 'repairFailed',
    ...keeperOf,
    text,
    fields: { PATHS: '/lib/a, /lib/b', FAILURES: 1 },
  });
  assert.equal(problemIn(effects), text);
  const unknown = keeperNext(begun, { ...failed, causes: [] });
  assert.match(
    String(problemIn(unknown.effects)),
    /^cannot inspect or repair the files for ollama\.service: no space left/,
  );
  assert.deepEqual(unknown.state.repairs, begun.repairs, 'a repair of nothing counts for no path');
});

test('the reason for a delayed repair is reported with the time of the next one', () => {
  const bench = new Bench();
  for (let time = 0; time < 2; time += 1) {
    bench.goOn(two);
    bench.tell({ kind: 'repaired', did: { titles: ['x'], causes: two.causes }, begun: 0, now: bench.now });
  }
  const event = { kind: 'package-manager', who: null, found: two, now: bench.now } as const;
  const until = new Date(bench.now + 1_000).toISOString();
  assert.equal(
    problemIn(effectsOf(bench.state, event)),
    `repeated changes of /lib/a, /lib/b; the next repair is at ${until} at the earliest`,
  );
});

test('with repairs switched off the number of changes is reported', () => {
  const off = { ...quick, enabled: false };
  const begun = beginKeeping('ollama', 'ollama.service', off);
  const event = { kind: 'found', found: two, wanted: true, busy: null, rules: off, now: 5 } as const;
  assert.equal(problemIn(effectsOf(begun, event)), 'repairs are switched off; 2 changes would correct it');
});

test('a request by a person resets limits, failures and earlier reports', () => {
  const tired: KeeperState = {
    ...beginKeeping('ollama', 'ollama.service', quick),
    failures: failuresToDegraded,
    toldDrift: '/lib/a',
    toldLimit: true,
  };
  const { state, effects } = keeperNext(tired, { kind: 'retry' });
  assert.deepEqual(
    [state.failures, state.toldDrift, state.toldLimit, state.first, effects],
    [0, '', false, true, [{ kind: 'look', when: 'now' }]],
  );
});

test('after a success former failures and their messages are forgotten', () => {
  const told: KeeperState = {
    ...beginKeeping('ollama', 'ollama.service', quick),
    failures: 3,
    toldDrift: '/lib/a',
    toldLimit: true,
    noticedAt: 7,
  };
  const event = { kind: 'found', found: right, wanted: true, busy: null, rules: quick, now: 5 } as const;
  const { failures, toldDrift, toldLimit, noticedAt, first } = keeperNext(told, event).state;
  assert.deepEqual([failures, toldDrift, toldLimit, noticedAt, first], [0, '', false, null, false]);
});

test('a later look keeps the result of the first', () => {
  const begun = beginKeeping('ollama', 'ollama.service', quick);
  const noticed = { kind: 'noticed', soon: false, now: 5 } as const;
  assert.equal(keeperNext(begun, { ...noticed, first: false }).state.first, false);
  const first = keeperNext(begun, { ...noticed, first: true }).state;
  assert.equal(keeperNext(first, { ...noticed, first: false }).state.first, true);
});
