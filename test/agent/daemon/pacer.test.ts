import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pacer } from '../../../agent/daemon/pacer.js';

test('a pacer runs once for many requests, again for one that comes meanwhile, and never twice at a time', async () => {
  const stop = new AbortController();
  let running = 0;
  let runs = 0;
  let most = 0;
  const pace = pacer(async () => {
    running += 1;
    most = Math.max(most, running);
    runs += 1;
    if (runs === 1) for (let request = 0; request < 50; request += 1) pace.now();
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
  }, stop.signal);
  for (let request = 0; request < 50; request += 1) pace.soon();
  await pace.quiet();
  assert.deepEqual([runs, most], [2, 1]);
  stop.abort();
});
