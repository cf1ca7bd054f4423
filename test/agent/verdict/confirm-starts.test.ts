// The live confirmation: which lines are of this start, and units that end.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuLog, gpuLog, run } from './live.js';
import { createStage, firstStart, ready, secondStart } from './stage.js';
import { unit } from './support.js';

test("a line of the former start does not count: this one's says cpu", async () => {
  const stage = createStage();
  for (const line of gpuLog) stage.journal.add(line, secondStart);
  stage.http = ready;
  stage.say(300, cpuLog);
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'cpu');
});

test('a line of the former start does not count: this one says nothing', async () => {
  const stage = createStage();
  stage.journal.add('Started ollama.service - Ollama Service.', firstStart, 1);
  for (const line of gpuLog) stage.journal.add(line, secondStart);
  stage.http = ready;
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'no-discovery-line']);
  assert.ok(stage.clock.now() < 10_000);
});

test('a start whose first lines are not in the journal any more is undetermined, and the reason says so', async () => {
  // As verify asks, and as status does.
  for (const patience of [{}, { patienceMs: 2_000 }]) {
    const stage = createStage();
    stage.http = ready;
    stage.journal.add('[GIN] 2026/11/26 - 23:00:00 | 200 | GET "/api/version"', firstStart);
    const verdict = await run(stage, patience);
    assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'journal-cut']);
    assert.match(
      verdict.summary,
      /the journal no longer has that part \(the journal has 1 line of this start, but not the first ones; journald removed/,
    );
  }
});

test('a start without its first lines whose consumer does not answer is awaited until it is 30 s old, at least 15 s', async () => {
  const stage = createStage();
  stage.http = { kind: 'failed', message: 'no answer within 1000 ms' };
  stage.journal.add('[GIN] 2026/11/26 - 23:00:00 | 200 | GET "/api/version"', firstStart);
  for (const [ageMs, atMost] of [
    [5_000, 26_000],
    [25_000, 16_000],
  ] as const) {
    const begun = stage.clock.now();
    const verdict = await run(stage, { libraryDirectories: 3, ageMs });
    assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'readiness-timeout']);
    assert.match(verdict.summary, /no answer within 1000 ms/);
    assert.ok(stage.clock.now() - begun < atMost, `${stage.clock.now() - begun} ms`);
  }
});

test('a line whose start the journal does not know does not count', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.say(300, gpuLog, null);
  assert.equal((await run(stage)).mode, 'undetermined');
});

test('a start that is running already is judged from what the journal holds', async () => {
  const stage = createStage();
  for (const line of cpuLog) stage.journal.add(line, secondStart);
  for (const line of gpuLog) stage.journal.add(line, firstStart);
  stage.http = ready;
  const verdict = await run(stage, { invocationId: null });
  assert.equal(verdict.mode, 'gpu');
  assert.ok(stage.clock.now() < 500);
});

test('after a restart only what comes after the cursor is read', async () => {
  const stage = createStage();
  stage.journal.add('old', secondStart);
  const cursor = await stage.journal.tail();
  stage.http = ready;
  stage.say(100, gpuLog);
  assert.equal((await run(stage, { cursor })).mode, 'gpu');
});

test('entries of a start that systemd has not told of yet are kept for it', async () => {
  const stage = createStage();
  stage.http = ready;
  // The journal brings the new start 200 ms before the unit's state does.
  stage.say(300, gpuLog, secondStart);
  stage.clock.at(500, () => {
    stage.unit = unit({ invocationId: secondStart, restarts: 1 });
  });
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  assert.equal(verdict.invocationId, secondStart);
});

test('a crash in between makes the former line old', async () => {
  const stage = createStage();
  stage.say(200, gpuLog);
  stage.clock.at(400, () => {
    stage.unit = unit({ invocationId: secondStart, restarts: 1 });
    stage.http = ready;
  });
  stage.say(700, cpuLog, secondStart);
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'cpu');
  assert.equal(verdict.invocationId, secondStart);
});

test('a unit that crashes again and again is restarting', async () => {
  const stage = createStage();
  for (let count = 1; count < 9; count += 1) {
    const id = String(count).repeat(32);
    stage.clock.at(count * 3_100, () => {
      stage.unit = unit({
        invocationId: id,
        restarts: count,
        activeState: 'activating',
        subState: 'auto-restart',
        result: 'signal',
      });
    });
    stage.say(count * 3_100 + 100, [...gpuLog.slice(0, 5), 'Error: bind: address already in use'], id);
  }
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'unit-restarting']);
  const said = verdict.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
  assert.ok(said.includes('Error: bind: address already in use'), 'what it said last is told');
  assert.ok(stage.clock.now() < 12_000);
});

test('a unit that failed, or stays down, is reported without waiting for the limit', async () => {
  for (const activeState of ['failed', 'inactive']) {
    const stage = createStage();
    stage.clock.at(500, () => {
      stage.unit = unit({
        activeState,
        subState: 'dead',
        result: 'exit-code',
        mainPid: 0,
        invocationId: firstStart,
      });
    });
    const verdict = await run(stage);
    assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'unit-failed']);
    assert.ok(stage.clock.now() < 3_000);
    assert.equal(verdict.next, 'systemctl status ollama.service');
  }
});

test('a missing unit is reported at once', async () => {
  const stage = createStage();
  stage.unit = { kind: 'absent', name: 'ollama.service' };
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'unit-failed']);
  assert.ok(stage.clock.now() < 1_000);
});
