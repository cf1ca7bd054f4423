// The live confirmation: children that live for milliseconds, and what they had loaded.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { watchProcesses } from '../../../agent/verdict/watch-processes.js';
import { child, gpuLog, plainChild, plainMain, run } from './live.js';
import { createStage, firstStart, ready } from './stage.js';
import { libraries, processFacts, searched, unit } from './support.js';

test('children that live for 60 ms are seen, and what they had loaded is remembered', async () => {
  const stage = createStage();
  stage.unit = unit({ invocationId: firstStart, environment: searched });
  stage.processes = [plainMain];
  stage.probe = async () => ({ kind: 'not-run', message: 'x' });
  stage.clock.at(400, () => {
    stage.processes = [plainMain, plainChild];
  });
  stage.clock.at(460, () => {
    stage.processes = [plainMain];
  });
  stage.say(700, gpuLog);
  stage.http = ready;
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  assert.ok(
    verdict.evidence.some(
      ({ kind, text }) =>
        kind === 'maps' && /its child llama-server has the libcuda of vgpu-agent/.test(text),
    ),
  );
});

test('a child that was seen with its libraries and then empty, in its end, keeps them', async () => {
  const stage = createStage();
  stage.unit = unit({ invocationId: firstStart, environment: searched });
  stage.processes = [plainMain, plainChild];
  stage.probe = async () => ({ kind: 'not-run', message: 'x' });
  stage.clock.at(200, () => {
    stage.processes = [plainMain, { ...plainChild, libraries: [] }];
  });
  stage.say(500, gpuLog);
  stage.http = ready;
  assert.equal((await run(stage)).mode, 'gpu');
});

test('children that end before the restart is reported done are seen by who looked before it', async () => {
  const stage = createStage();
  stage.unit = unit({ invocationId: firstStart, environment: searched });
  const old = processFacts({ pid: 50, startTicks: '10', libraries: libraries('nvidia') });
  stage.processes = [old];
  stage.probe = async () => ({ kind: 'not-run', message: 'x' });
  const looking = watchProcesses(stage.effects, new AbortController().signal);
  stage.clock.at(100, () => {
    stage.processes = [plainMain, plainChild];
  });
  stage.clock.at(160, () => {
    stage.processes = [plainMain];
  });
  await stage.clock.run(stage.clock.sleep(300, new AbortController().signal));
  for (const line of gpuLog) stage.journal.add(line, firstStart);
  stage.http = ready;
  const verdict = await run(stage, { looking });
  assert.equal(verdict.mode, 'gpu');
  assert.deepEqual(
    verdict.evidence.filter(({ kind }) => kind === 'maps').map(({ source }) => source),
    ['/proc/100/maps', '/proc/140/maps'],
  );
  await looking.done;
});

test('a child with a foreign libcuda degrades, though the main process has ours', async () => {
  const stage = createStage();
  stage.clock.at(200, () => {
    stage.processes = [processFacts(), { ...child, libraries: libraries('nvidia') }];
  });
  stage.say(500, gpuLog);
  stage.http = ready;
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['degraded', 'foreign-library-loaded']);
});
