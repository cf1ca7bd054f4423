/** The worker that runs when asked: never twice at a time, after a quiet moment, or at a time. */
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Pacer, pacer, steadyNow } from '../../../agent/service/pacer.js';

/** A pacer under a clock of the test's own. Each run takes `takes` milliseconds. */
class Bench {
  runs = 0;
  running = 0;
  most = 0;
  readonly stop = new AbortController();
  readonly pace: Pacer;

  constructor(takes = 0) {
    this.pace = pacer(async () => {
      this.runs += 1;
      this.running += 1;
      this.most = Math.max(this.most, this.running);
      if (takes > 0) await new Promise((resolve) => setTimeout(resolve, takes));
      this.running -= 1;
    }, this.stop.signal);
  }

  /** Lets time pass, and what follows from it happen. */
  async pass(milliseconds: number): Promise<number> {
    mock.timers.tick(milliseconds);
    for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
    return this.runs;
  }

  async isQuiet(): Promise<boolean> {
    let quiet = false;
    void this.pace.quiet().then(() => {
      quiet = true;
    });
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    return quiet;
  }
}

function paced(name: string, run: () => Promise<void>): void {
  test(name, async () => {
    mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
    const begun = performance.timeOrigin;
    const clock = mock.method(performance, 'now', () => Date.now() - begun);
    try {
      await run();
    } finally {
      clock.mock.restore();
      mock.timers.reset();
    }
  });
}

paced(
  'asked for now, it runs at once; asked again meanwhile, once more and never twice at a time',
  async () => {
    const bench = new Bench(5);
    bench.pace.now();
    for (let request = 0; request < 50; request += 1) bench.pace.now();
    assert.equal(bench.runs, 1);
    assert.equal(await bench.pass(5), 2);
    assert.equal(await bench.pass(5), 2);
    assert.equal(await bench.pass(50), 2);
    assert.equal(bench.most, 1);
  },
);

paced('it waits for a quiet moment of 10 ms', async () => {
  const bench = new Bench();
  bench.pace.soon();
  assert.equal(await bench.pass(9), 0);
  bench.pace.soon();
  assert.equal(await bench.pass(9), 0);
  assert.equal(await bench.pass(1), 1);
  assert.equal(await bench.pass(100), 1, 'once for both');
});

paced('it waits no longer than 80 ms, however often it is asked', async () => {
  const bench = new Bench();
  for (let at = 0; at < 80; at += 8) {
    bench.pace.soon();
    assert.equal(await bench.pass(8), at === 72 ? 1 : 0, `${at} ms`);
  }
  bench.pace.soon();
  assert.equal(await bench.pass(9), 1, 'the next quiet moment is counted from the next request');
  assert.equal(await bench.pass(1), 2);
});

paced('at a time: it runs then, unless another run comes before', async () => {
  const bench = new Bench();
  bench.pace.at(1_000_500);
  bench.pace.at(1_000_300);
  assert.equal(await bench.pass(299), 0);
  assert.equal(await bench.pass(1), 1);
  assert.equal(await bench.pass(1_000), 1, 'the later time took the place of the earlier one');
  bench.pace.at(Date.now() + 100);
  bench.pace.now();
  assert.equal(await bench.pass(200), 2);
  bench.pace.at(Date.now() - 5);
  assert.equal(await bench.pass(0), 3, 'a time that is past');
});

paced('a request for now takes the place of one for soon', async () => {
  const bench = new Bench();
  bench.pace.soon();
  bench.pace.now();
  assert.equal(await bench.pass(100), 1);
});

paced('it is quiet when nothing runs and nothing is asked for; a time does not count', async () => {
  const bench = new Bench(5);
  assert.equal(await bench.isQuiet(), true);
  bench.pace.at(Date.now() + 100);
  assert.equal(await bench.isQuiet(), true);
  bench.pace.soon();
  assert.equal(await bench.isQuiet(), false);
  let quiet = 0;
  void bench.pace.quiet().then(() => {
    quiet += 1;
  });
  await bench.pass(10);
  assert.deepEqual([bench.running, quiet], [1, 0]);
  bench.pace.soon();
  await bench.pass(5);
  assert.equal(quiet, 0, 'another run is asked for');
  await bench.pass(5);
  await bench.pass(5);
  assert.deepEqual([bench.runs, bench.running, quiet], [2, 0, 1]);
});

paced('after the end nothing runs any more', async () => {
  const bench = new Bench(5);
  bench.pace.soon();
  bench.pace.at(Date.now() + 20);
  bench.stop.abort();
  assert.equal(await bench.pass(1_000), 0);
  bench.pace.soon();
  bench.pace.at(Date.now());
  bench.pace.now();
  assert.equal(await bench.pass(1_000), 0);
});

paced('what is asked for while the last run ends is not begun after the end', async () => {
  const bench = new Bench(5);
  bench.pace.now();
  bench.pace.now();
  bench.stop.abort();
  await bench.pass(5);
  assert.equal(bench.runs, 1);
});

test('a run that fails is reported, and the next one runs', async () => {
  const reported: unknown[] = [];
  const report = mock.method(globalThis, 'setImmediate', (callback: () => void) => {
    try {
      callback();
    } catch (error) {
      reported.push(error);
    }
  });
  let runs = 0;
  const pace = pacer(async () => {
    runs += 1;
    if (runs === 1) throw new TypeError('a run that fails');
  }, new AbortController().signal);
  pace.now();
  await pace.quiet();
  pace.now();
  await pace.quiet();
  report.mock.restore();
  assert.equal(runs, 2);
  assert.deepEqual(reported.map(String), ['TypeError: a run that fails']);
});

test('a clock that is set back two hours, or on, moves no time that is waited for', async () => {
  let steps = 0;
  const wall = mock.method(Date, 'now', () => 1_000_000_000 + steps * 7_200_000);
  try {
    const stop = new AbortController();
    let runs = 0;
    const pace = pacer(async () => {
      runs += 1;
    }, stop.signal);
    // As the machines ask: a moment that was computed before the step, after it.
    const soon = steadyNow() + 20;
    steps = -1;
    pace.at(soon);
    await sleep(200);
    assert.equal(runs, 1);
    const later = steadyNow() + 60_000;
    steps = 1;
    pace.at(later);
    await sleep(50);
    assert.equal(runs, 1);
    stop.abort();
  } finally {
    wall.mock.restore();
  }
});
