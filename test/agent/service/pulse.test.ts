/** The regular timer, with a clock that the test moves. */
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { pulse } from '../../../agent/service/own-process.js';

function pulsing(
  watchdog: string | undefined,
  checkMinutes: () => number,
  run: (counts: Counts) => void,
): void {
  mock.timers.enable({ apis: ['setInterval'] });
  try {
    const counts = { ticks: 0, checks: 0, stop: () => {} };
    counts.stop = pulse({
      watchdog,
      checkMinutes,
      tick() {
        counts.ticks += 1;
      },
      check() {
        counts.checks += 1;
      },
    });
    run(counts);
    counts.stop();
  } finally {
    mock.timers.reset();
  }
}

interface Counts {
  readonly ticks: number;
  readonly checks: number;
  readonly stop: () => void;
}

test('the watchdog is answered twice in its time', () => {
  pulsing(
    '30000000',
    () => 30,
    (counts) => {
      mock.timers.tick(14_999);
      assert.equal(counts.ticks, 0);
      mock.timers.tick(1);
      assert.equal(counts.ticks, 1);
    },
  );
});

test('without a watchdog there is a tick every five seconds', () => {
  for (const watchdog of [undefined, '0']) {
    pulsing(
      watchdog,
      () => 30,
      (counts) => {
        mock.timers.tick(4_999);
        assert.equal(counts.ticks, 0);
        mock.timers.tick(5_001);
        assert.equal(counts.ticks, 2);
      },
    );
  }
});

test('a full look comes every so many minutes, and a change of that number counts at once', () => {
  let minutes = 2;
  pulsing(
    '60000000',
    () => minutes,
    (counts) => {
      mock.timers.tick(90_000);
      assert.equal(counts.checks, 0);
      mock.timers.tick(30_000);
      assert.equal(counts.checks, 1);
      mock.timers.tick(90_000);
      assert.equal(counts.checks, 1);
      minutes = 1;
      mock.timers.tick(30_000);
      assert.equal(counts.checks, 2);
    },
  );
});

test('nothing happens after it was stopped', () => {
  pulsing(
    undefined,
    () => 30,
    (counts) => {
      counts.stop();
      mock.timers.tick(60_000);
      assert.equal(counts.ticks, 0);
    },
  );
});
