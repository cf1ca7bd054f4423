/** A detached container's log, which no journal of the unit has, and that of `docker compose up`, which has a name in each line. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import type { ConfirmEffects } from '../../../agent/verdict/observation.js';
import { confirm, createStage, firstStart, ready, type Stage, secondStart } from './stage.js';
import { fixtureText, unit } from './support.js';

const gpuLog = fixtureText('0.32.9_gpu-mode_debug0');
const cpuLog = fixtureText('0.32.9_count0_debug0');

/** Containers one after the other, the first of them at 300 ms, each with its log. */
function withContainers(stage: Stage, ...logs: readonly string[]): ConfirmEffects {
  return {
    ...stage.effects,
    async *containerLogs(signal) {
      for (const [at, log] of logs.entries()) {
        await stage.clock.sleep(300, signal);
        if (signal.aborted) return;
        const bytes = async function* () {
          yield Buffer.from(log.slice(0, 1_000));
          yield Buffer.from(log.slice(1_000));
        };
        yield { source: `docker logs web${at + 1}`, bytes: bytes() };
      }
      while (!signal.aborted) await stage.clock.sleep(1_000, signal);
    },
  };
}

function judged(stage: Stage, effects: ConfirmEffects, changes = {}): Promise<Verdict> {
  stage.http = ready;
  return stage.clock.run(confirm(stage.options(changes), effects));
}

test("a detached container is judged by the engine's log of it", async () => {
  const stage = createStage();
  const verdict = await judged(stage, withContainers(stage, gpuLog));
  assert.equal(verdict.mode, 'gpu');
  const line = verdict.evidence.find(({ kind }) => kind === 'log-line');
  assert.match(line?.source ?? '', /^docker logs web1, line \d+ of this start$/);
});

test('a container that replaced another is judged by its own log', async () => {
  const stage = createStage();
  // Until the second has spoken, nothing answers.
  const effects = withContainers(stage, gpuLog, cpuLog);
  stage.clock.at(900, () => {
    stage.http = ready;
  });
  const verdict = await stage.clock.run(confirm(stage.options(), effects));
  assert.notEqual(verdict.mode, 'gpu');
  assert.ok(verdict.evidence.every(({ source }) => !source?.startsWith('docker logs web1')));
});

test('a new start of the unit has its container read from the beginning', async () => {
  const stage = createStage();
  stage.clock.at(400, () => {
    stage.unit = unit({ invocationId: secondStart });
  });
  stage.clock.at(1_500, () => {
    stage.http = ready;
  });
  const verdict = await stage.clock.run(
    confirm(stage.options({ invocationId: firstStart }), withContainers(stage, gpuLog)),
  );
  assert.deepEqual([verdict.mode, verdict.invocationId], ['gpu', secondStart]);
});

test('the names that compose puts before each line are no words of the consumer', async () => {
  for (const composed of [true, false]) {
    const stage = createStage();
    const named = gpuLog.split('\n').map((line) => `\u001b[2Kollama-1  | ${line}`);
    stage.say(200, named);
    const { mode } = await judged(stage, stage.effects, { composed });
    assert.equal(mode, composed ? 'gpu' : 'undetermined');
  }
});
