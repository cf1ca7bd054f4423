/** The earlier log of a start is read before the start is judged without its log. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { confirm, createStage, firstStart, type Stage } from './stage.js';
import { fixtureText } from './support.js';

const gpuLog = fixtureText('0.32.9_gpu-mode_debug0').split('\n');
const slowMs = 3_000;

/** A consumer at work on the GPU, whose journal takes three seconds to read. */
function longJournal(): Stage {
  const stage = createStage();
  const { clock, journal } = stage;
  journal.reading = () => clock.sleep(slowMs, new AbortController().signal);
  for (const line of gpuLog) journal.add(line, firstStart);
  const models = [{ name: 'a', size: 4_000, size_vram: 4_000 }];
  stage.http = { kind: 'answered', status: 200, body: JSON.stringify({ models }) };
  stage.sessions = {
    kind: 'told',
    report: {
      ...{ host: 'h', simulated: false, refusedKernels: null, memory: null },
      turnedAway: { count: 0, status: null, age: 0 },
      sessions: [
        {
          ...{
            session: 3,
            age: 1_000,
            memory: 4_000,
            launches: 9,
            calls: 9,
            refused: 0,
            lastRefusal: 0,
            carrier: 'rings',
          },
          claimed: { library: 'libcuda', pid: 100, pidNamespace: 0, program: 'ollama' },
        },
      ],
    },
    seconds: 2,
  };
  return stage;
}

test('a long journal is read to its end, although the host already tells that kernels run', async () => {
  const stage = longJournal();
  const verdict = await stage.clock.run(confirm(stage.options(), stage.effects));
  assert.equal(verdict.mode, 'gpu');
  assert.ok(
    verdict.evidence.some(({ kind }) => kind === 'log-line'),
    JSON.stringify(verdict.evidence),
  );
  assert.ok(stage.clock.now() < slowMs + 1_000, `${stage.clock.now()} ms`);
});

test('a journal that cannot be read is not waited for', async () => {
  const stage = longJournal();
  stage.journal.failure = new Error('no journal');
  const verdict = await stage.clock.run(confirm(stage.options(), stage.effects));
  assert.equal(verdict.mode, 'gpu');
  assert.ok(stage.clock.now() < slowMs, `${stage.clock.now()} ms`);
});
