/** Looks at a unit again and again: which start it is in, how often it started, and when waiting for it has no use. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LoadedUnit, UnitFacts } from '../../../agent/contracts/unit.js';
import { watchUnit } from '../../../agent/verdict/watch-unit.js';
import { FakeClock, firstStart, secondStart } from './stage.js';
import { unit } from './support.js';

type UnitWatch = ReturnType<typeof watchUnit>;

const everyMs = 250;

/** The events of a unit after each of the states that it was seen in, one at each look. */
async function told<T>(
  states: readonly [UnitFacts, ...UnitFacts[]],
  what: (watch: UnitWatch) => T,
  expected: { readonly invocationId: string | null; readonly restarts: number | null } = {
    invocationId: null,
    restarts: null,
  },
): Promise<{ readonly told: readonly T[]; readonly starts: readonly string[] }> {
  const clock = new FakeClock();
  const closing = new AbortController();
  const starts: string[] = [];
  const [first, ...later] = states;
  const begin = (id: string): void => {
    starts.push(id);
  };
  let now: UnitFacts = first;
  const effects = { clock, unit: async () => now };
  const watch = watchUnit(effects, first, expected, begin, closing.signal);
  const seen: T[] = [];
  const pass = (milliseconds: number) => clock.run(clock.sleep(milliseconds, closing.signal));
  await pass(everyMs / 2);
  seen.push(what(watch));
  for (const state of later) {
    now = state;
    await pass(everyMs);
    seen.push(what(watch));
  }
  closing.abort();
  await watch.done;
  return { told: seen, starts };
}

const at = (changes: Partial<LoadedUnit> = {}): LoadedUnit => unit(changes);

test('how it ended badly is kept when it is up again; an end that was no failure is none', async () => {
  const failure = (watch: UnitWatch): string | null => {
    const seen = watch.lastFailure();
    return seen?.kind === 'loaded' ? seen.result : null;
  };
  const { told: results } = await told(
    [at({ result: 'success' }), at({ result: '' }), at({ result: 'signal' }), at({ result: 'success' })],
    failure,
  );
  assert.deepEqual(results, [null, null, 'signal', 'signal']);
});

test("its counter tells the starts since we began; systemctl restart's zero takes none of them back", async () => {
  const counters = [5, 6, 0, 1, 2].map((restarts) => at({ restarts }));
  const [first, ...later] = counters;
  assert.ok(first !== undefined);
  const restarts = (watch: UnitWatch): number => watch.restarts();
  assert.deepEqual((await told([first, ...later], restarts)).told, [0, 1, 1, 1, 2]);
  const known = { invocationId: firstStart, restarts: 4 };
  assert.deepEqual((await told([first], restarts, known)).told, [1], 'one before the first look');
});

test('a new start is reported once, whatever the restart counter says', async () => {
  const ids = (...all: readonly (string | null)[]) => all.map((invocationId) => at({ invocationId }));
  const [first, ...later] = ids(firstStart, firstStart, null, secondStart, secondStart);
  assert.ok(first !== undefined);
  const both = (watch: UnitWatch) => [watch.restarts(), watch.invocationId()];
  const seen = await told([first, ...later], both, { invocationId: firstStart, restarts: 0 });
  assert.deepEqual(seen.starts, [secondStart]);
  assert.deepEqual(seen.told.at(2), [0, firstStart], 'between two starts it has none');
  assert.deepEqual(seen.told.at(-1), [1, secondStart]);
  const unknown = await told([first], both, { invocationId: null, restarts: 0 });
  assert.deepEqual(unknown, { told: [[0, firstStart]], starts: [firstStart] }, 'the first is no new one');
});

const trouble = (watch: UnitWatch): string | null => watch.trouble();

test('three new starts are a loop, by their names or by the counter', async () => {
  const named = ['1', '2', '3', '4'].map((id) => at({ invocationId: id.repeat(32) }));
  const counted = [0, 1, 2, 3].map((restarts) => at({ restarts }));
  for (const [first, ...later] of [named, counted]) {
    assert.ok(first !== undefined);
    assert.deepEqual((await told([first, ...later], trouble)).told, [null, null, null, 'restarting']);
  }
});

test('a unit has failed after four consecutive looks in which it was down', async () => {
  for (const activeState of ['inactive', 'deactivating']) {
    const down = at({ activeState });
    const seen = await told([down, down, down, at(), down, down, down, down, at()], trouble);
    assert.deepEqual(seen.told, [null, null, null, null, null, null, null, 'failed', null], activeState);
  }
  assert.deepEqual((await told([at({ activeState: 'failed' }), at()], trouble)).told, ['failed', null]);
  const gone: UnitFacts = { kind: 'absent', name: 'ollama.service' };
  assert.deepEqual((await told([at(), gone], trouble)).told, [null, 'failed']);
});

test('a stopped watch asks nothing, and a later answer does not count', async () => {
  const clock = new FakeClock();
  const closing = new AbortController();
  let asked = 0;
  const effects = {
    clock,
    unit: async (): Promise<UnitFacts> => {
      asked += 1;
      return { kind: 'absent', name: 'ollama.service' };
    },
  };
  const watch = watchUnit(effects, at(), { invocationId: firstStart, restarts: 0 }, () => {}, closing.signal);
  closing.abort();
  await watch.done;
  assert.equal(asked, 0);
  await watch.look();
  assert.equal(watch.unit().kind, 'loaded');
});
