import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Done,
  type Limits,
  mayDo,
  noted,
  nothingDone,
  type Permission,
} from '../../../agent/service/limiter.js';

/** The actions so far, recorded and asked as in the service. */
class Limiter {
  #done: Done = nothingDone;
  readonly #limits: Limits;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  ask(causes: readonly string[], now: number): Permission {
    return mayDo(this.#done, this.#limits, causes, now);
  }

  note(causes: readonly string[], now: number): void {
    this.#done = noted(this.#done, this.#limits, causes, now);
  }
}

const limits = { perHour: 100, backoffMs: 1000, minimumMs: 0 };

test('the same cause is repaired twice at once, then after pauses that double', () => {
  const limiter = new Limiter(limits);
  const pauses: number[] = [];
  let now = 0;
  for (let time = 0; time < 6; time += 1) {
    const permission = limiter.ask(['/a'], now);
    if (permission.kind === 'later') {
      pauses.push(permission.at - now);
      now = permission.at;
    } else pauses.push(0);
    assert.equal(limiter.ask(['/a'], now).kind, 'now');
    limiter.note(['/a'], now);
  }
  assert.deepEqual(pauses, [0, 0, 1000, 2000, 4000, 8000]);
});

test('another cause does not wait for it', () => {
  const limiter = new Limiter(limits);
  for (let time = 0; time < 5; time += 1) limiter.note(['/a'], time);
  assert.equal(limiter.ask(['/b'], 10).kind, 'now');
  assert.equal(limiter.ask(['/b', '/a'], 10).kind, 'later');
});

test('ten quiet minutes begin again', () => {
  const limiter = new Limiter(limits);
  for (let time = 0; time < 9; time += 1) limiter.note(['/a'], time);
  assert.equal(limiter.ask(['/a'], 600_010).kind, 'now');
});

test('no pause is longer than five minutes', () => {
  const limiter = new Limiter(limits);
  for (let time = 0; time < 40; time += 1) limiter.note(['/a'], time);
  assert.deepEqual(limiter.ask(['/a'], 39), { kind: 'later', at: 39 + 300_000 });
});

test('the ceiling of an hour holds for all causes together, and lapses with the hour', () => {
  const limiter = new Limiter({ ...limits, perHour: 3 });
  for (const [index, cause] of ['/a', '/b', '/c'].entries()) limiter.note([cause], index * 1000);
  assert.deepEqual(limiter.ask(['/d'], 5000), { kind: 'exhausted', at: 3_600_000, times: 3 });
  assert.equal(limiter.ask(['/d'], 3_600_000).kind, 'now');
});

test('two restarts keep their distance, whatever their cause', () => {
  const limiter = new Limiter({ ...limits, minimumMs: 30_000 });
  limiter.note(['host'], 0);
  assert.deepEqual(limiter.ask(['found'], 1), { kind: 'later', at: 30_000 });
});
