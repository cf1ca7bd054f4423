import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keepOn } from '../../../agent/service/served.js';

test('work that fails begins again after pauses that double, and is complained of once', async () => {
  const begun: number[] = [];
  const complaints: string[] = [];
  const stop = new AbortController();
  const work = async (): Promise<void> => {
    begun.push(performance.now());
    if (begun.length < 4) throw new Error(`spawn journalctl EAGAIN`);
  };
  await keepOn(work, (why) => complaints.push(why), stop.signal, 20);
  assert.equal(begun.length, 4);
  const [first = 0, second = 0, third = 0, fourth = 0] = begun;
  assert.ok(second - first >= 19 && third - second >= 39 && fourth - third >= 79);
  assert.deepEqual(complaints, ['spawn journalctl EAGAIN']);
});

test('the end of the service ends the pause', async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 20);
  const begun = performance.now();
  await keepOn(
    async () => {
      throw new Error('again');
    },
    () => {},
    stop.signal,
    60_000,
  );
  assert.ok(performance.now() - begun < 5_000);
});
