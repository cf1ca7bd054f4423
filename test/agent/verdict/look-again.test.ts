/** Looks at a start that was observed: the newest evidence decides, whether or not the journal has a line. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostSession } from '../../../agent/contracts/sessions.js';
import { lookAgain, type Watched, withKnownLog } from '../../../agent/verdict/confirm.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { LogFindings } from '../../../agent/verdict/log/findings.js';
import type { Observation, SessionsAnswer } from '../../../agent/verdict/observation.js';
import { createStage, ready, refused, type Stage } from './stage.js';
import { findingsOf, observation, processFacts } from './support.js';

const never = new AbortController().signal;
const session: HostSession = {
  ...{
    session: 1,
    age: 1,
    memory: 4_000,
    launches: 9,
    calls: 9,
    refused: 0,
    lastRefusal: 0,
    carrier: 'rings',
  },
  claimed: { library: 'libcuda', pid: 100, pidNamespace: 0, program: 'ollama' },
};

function hostTells(...sessions: readonly HostSession[]): SessionsAnswer {
  const none = { turnedAway: { count: 0, status: null, age: 0 }, refusedKernels: null, memory: null };
  return { kind: 'told', seconds: 600, report: { host: 'h', simulated: false, sessions, ...none } };
}

function loaded(stage: Stage, gpuBytes: number): void {
  const body = JSON.stringify({ models: [{ name: 'a', size: 4_000, size_vram: gpuBytes }] });
  stage.http = { kind: 'answered', status: 200, body };
}

/** A start that was on the GPU by its log, which says nothing more. */
function begun(): { readonly stage: Stage; watched: Watched; look(): Promise<string> } {
  const stage = createStage();
  stage.http = ready;
  stage.processes = [processFacts(), processFacts({ pid: 140 })];
  stage.sessions = hostTells();
  const first = observation({
    log: findingsOf('0.32.9_gpu-mode_debug0'),
    unit: stage.unit,
    readiness: { kind: 'answered', url: 'http://x/api/version', afterMs: 1 },
  });
  const scene = {
    stage,
    watched: { observation: first, silentSince: null } as Watched,
    async look() {
      scene.watched = await stage.clock.run(lookAgain(scene.watched, stage.effects, never));
      const { mode, reason } = decideVerdict(scene.watched.observation);
      return reason === null ? mode : `${mode} ${reason}`;
    },
  };
  return scene;
}

test('entries that were removed from the journal are known from before, unless newer ones tell of a load', () => {
  const log = findingsOf('0.32.9_gpu-mode_debug0');
  const before = observation({ log });
  const load = {
    outcome: 'cpu',
    layers: null,
    cacheOnCpu: false,
    failed: false,
    short: null,
    quotes: [],
  } as const;
  const cut = (changes: Partial<LogFindings> = {}): Observation =>
    observation({
      log: { ...log, mode: 'undetermined', reason: 'no-discovery-line', devices: [], load: null, ...changes },
      journalCut: true,
    });
  const said = (now: Observation, known: Observation | null): string => {
    const { mode, reason } = decideVerdict(withKnownLog(now, known));
    return reason === null ? mode : `${mode} ${reason}`;
  };
  assert.equal(said(cut(), before), 'gpu');
  const unknown = 'undetermined journal-cut';
  assert.equal(said(cut(), null), unknown);
  assert.equal(said(cut({ load }), before), unknown);
  assert.equal(said(cut(), { ...before, invocationId: 'b'.repeat(32) }), unknown);
  assert.equal(said(cut(), { ...before, journalCut: true }), unknown);
  assert.equal(said(cut(), { ...before, journalError: 'no answer' }), unknown);
});

const pause = (stage: Stage): Promise<void> => stage.clock.run(stage.clock.sleep(5_000, never));

test('the journal is silent, and the model lies on the CPU; then it lies on the GPU', async () => {
  const scene = begun();
  assert.equal(await scene.look(), 'gpu');
  loaded(scene.stage, 0);
  assert.equal(await scene.look(), 'cpu model-on-cpu');
  loaded(scene.stage, 4_000);
  scene.stage.sessions = hostTells(session);
  assert.equal(await scene.look(), 'gpu');
});

test('each look has a number that increases, and its time', async () => {
  const scene = begun();
  await scene.look();
  const first = decideVerdict(scene.watched.observation).look;
  await scene.look();
  const second = decideVerdict(scene.watched.observation).look;
  assert.ok(first !== undefined && second !== undefined && second.id > first.id);
  assert.match(second.at, /^\d{4}-\d\d-\d\dT/);
});

test('a consumer that stops answering is not on the GPU after two looks, and is again with its first answer', async () => {
  const scene = begun();
  scene.stage.http = refused;
  assert.equal(await scene.look(), 'gpu', 'a busy one may miss a question');
  await pause(scene.stage);
  assert.equal(await scene.look(), 'degraded readiness-timeout');
  scene.stage.http = ready;
  assert.equal(await scene.look(), 'gpu');
});

test('one whose kernels go on while it does not answer is at work', async () => {
  const scene = begun();
  scene.stage.http = refused;
  for (let launches = 10; launches < 14; launches += 1) {
    scene.stage.sessions = hostTells({ ...session, launches });
    assert.equal(await scene.look(), 'gpu');
    await pause(scene.stage);
  }
});
