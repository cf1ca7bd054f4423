/** The earlier log of a start is read before the start is judged without its log. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import type { JournalReader } from '../../../agent/systemd/types.js';
import type { ConfirmEffects } from '../../../agent/verdict/observation.js';
import { confirm, createStage, firstStart, probeRun, type Stage } from './stage.js';
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

/** Its journal has another line of this start each `everyMs`, and no end. */
function endlessJournal(everyMs = 10): { readonly stage: Stage; readonly effects: ConfirmEffects } {
  const stage = longJournal();
  const { clock, journal } = stage;
  const [first] = journal.entries;
  if (first === undefined) throw new Error('the fixture has no line');
  const endless: JournalReader = {
    tail: () => journal.tail(),
    follow: (place) => journal.follow(place),
    async *read({ signal }) {
      yield* journal.entries;
      while (!signal.aborted) {
        await clock.sleep(everyMs, signal);
        yield { ...first, message: 'another request' };
      }
    },
  };
  return { stage, effects: { ...stage.effects, journal: endless } };
}

test('reading the journal and the probe may take longer than the consumer gets, unless a time was named', async () => {
  for (const patient of [{ ageMs: 3_600_000 }, { patienceMs: 2_000 }]) {
    const stage = longJournal();
    const { clock, journal } = stage;
    journal.reading = () => clock.sleep(20_000, new AbortController().signal);
    stage.probe = async (signal) => {
      await clock.sleep(25_000, signal);
      return probeRun();
    };
    stage.sessions = { kind: 'unknown', message: 'no host' };
    const verdict = await clock.run(confirm(stage.options(patient), stage.effects));
    assert.equal(verdict.mode, 'gpu', JSON.stringify(verdict, null, 1));
    assert.ok(clock.now() < 26_500, `${clock.now()} ms`);
  }
});

test('a consumer that does not speak is not waited for longer because the journal is slow', async () => {
  const stage = createStage();
  stage.journal.reading = () => stage.clock.sleep(4_000, new AbortController().signal);
  await stage.clock.run(confirm(stage.options({ patienceMs: 2_000 }), stage.effects));
  assert.ok(stage.clock.now() < 5_100, `${stage.clock.now()} ms`);
});

test('a journal without end is read for a minute', async () => {
  const { stage, effects } = endlessJournal();
  stage.sessions = { kind: 'unknown', message: 'no host' };
  const verdict = await stage.clock.run(confirm(stage.options({ ageMs: 3_600_000 }), effects));
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'journal-unavailable']);
  assert.ok(stage.clock.now() >= 60_000 && stage.clock.now() < 61_000, `${stage.clock.now()} ms`);
});

test('status reads a long journal for five seconds, and says what the host and the probe know', async () => {
  const { stage, effects } = endlessJournal(0.1);
  const looked = async (): Promise<Verdict> =>
    stage.clock.run(confirm(stage.options({ patienceMs: 2_000 }), effects));
  const known = await looked();
  assert.ok(stage.clock.now() < 6_000, `${stage.clock.now()} ms`);
  assert.equal(known.mode, 'gpu', 'the host lists its kernels');
  stage.sessions = { kind: 'unknown', message: 'no host' };
  const begun = stage.clock.now();
  const verdict = await looked();
  assert.ok(stage.clock.now() - begun < 6_000, `${stage.clock.now() - begun} ms`);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'journal-unavailable']);
  assert.match(verdict.summary, /\d{5} entries of this start were read in the time, and there are more/);
});

test('a journal without end does not outlast --timeout, and half of it says nothing', async () => {
  const { stage, effects } = endlessJournal();
  stage.sessions = { kind: 'unknown', message: 'no host' };
  const options = stage.options({ timeoutMs: 2_000 });
  const verdict = await stage.clock.run(confirm(options, effects));
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'journal-unavailable']);
  assert.match(verdict.summary, /entries of this start were read in the time, and there are more/);
  assert.ok(stage.clock.now() < 2_500, `${stage.clock.now()} ms`);
});

test('a journal without end does not outlast Ctrl-C', async () => {
  const { stage, effects } = endlessJournal();
  const stop = new AbortController();
  stage.clock.at(1_000, () => stop.abort());
  const confirming = stage.clock.run(confirm(stage.options({ signal: stop.signal }), effects));
  await assert.rejects(confirming, (error) => error instanceof VgpuError && error.kind === 'interrupted');
  assert.ok(stage.clock.now() < 1_100, `${stage.clock.now()} ms`);
});
