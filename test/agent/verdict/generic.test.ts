/** A unit without a profile: no log is read, the host's sessions decide. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostSession } from '../../../agent/contracts/sessions.js';
import { forUnit } from '../../../agent/profile/instance.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { confirm, createStage, firstStart, type Stage } from './stage.js';
import {
  answered,
  judgeLog,
  libraries,
  noDevice,
  observation,
  places,
  processFacts,
  report,
  unit,
} from './support.js';

const profile = forUnit(loadProfile('generic', places), 'web.service');
const session: HostSession = {
  session: 1,
  age: 10,
  memory: 0,
  launches: 1,
  calls: 9,
  refused: 0,
  lastRefusal: 0,
  carrier: 'rings',
  claimed: { library: 'libcuda', pid: 100, pidNamespace: 0, program: 'web' },
};

function stageOf(sessions: readonly HostSession[]): Stage {
  const stage = createStage(profile);
  tell(stage, sessions);
  return stage;
}

function tell(stage: Stage, sessions: readonly HostSession[]): void {
  const turnedAway = { count: 0, status: null, age: 0 };
  stage.sessions = {
    kind: 'told',
    report: { host: 'h', simulated: false, sessions, turnedAway, refusedKernels: null, memory: null },
    seconds: 5,
  };
}

async function judged(stage: Stage, restarted: boolean): Promise<readonly [string, string | null, number]> {
  const begun = stage.clock.now();
  const options = stage.options({ invocationId: firstStart, cursor: restarted ? 'c' : null });
  const { mode, reason } = await stage.clock.run(confirm(options, stage.effects));
  return [mode, reason, stage.clock.now() - begun];
}

test('a consumer that has been running is judged at once', async () => {
  const [mode, reason, ms] = await judged(stageOf([session]), false);
  assert.deepEqual([mode, reason], ['gpu', null]);
  assert.ok(ms < 1_500, `${ms}`);
  assert.deepEqual((await judged(stageOf([]), false)).slice(0, 2), ['undetermined', 'no-session']);
});

test('a consumer that was just started is given time to begin its work', async () => {
  const stage = stageOf([]);
  stage.clock.at(3_000, () => tell(stage, [session]));
  const [mode, , ms] = await judged(stage, true);
  assert.equal(mode, 'gpu');
  assert.ok(ms >= 3_000 && ms < 6_000, `${ms}`);
  const [idle, reason, waited] = await judged(stageOf([]), true);
  assert.deepEqual([idle, reason], ['undetermined', 'no-session']);
  assert.ok(waited >= 15_000 && waited < 20_000, `${waited}`);
});

const seen = (changes: Partial<Observation>): Observation =>
  observation({ profile, log: judgeLog(profile, []), ...changes });

test('the cause of a missing GPU is reported before the missing session', () => {
  const reasonOf = (changes: Partial<Observation>): readonly [string, string | null] => {
    const { mode, reason } = decideVerdict(seen(changes));
    return [mode, reason];
  };
  const lost = { probe: noDevice, host: { kind: 'unreachable', message: 'ENOENT', word: null } } as const;
  assert.deepEqual(reasonOf(lost), ['cpu', 'host-unreachable']);
  const hidden = unit({ environment: { CUDA_VISIBLE_DEVICES: '-1' } });
  assert.deepEqual(reasonOf({ unit: hidden }), ['cpu', 'devices-hidden-by-environment']);
  const foreign = processFacts({ libraries: libraries('nvidia') });
  assert.deepEqual(reasonOf({ processes: [{ role: 'main', facts: foreign }] }), [
    'degraded',
    'foreign-library-loaded',
  ]);
  assert.deepEqual(reasonOf({ probe: answered({ library: '/usr/lib/libcuda.so.1' }) }), [
    'degraded',
    'foreign-library-loaded',
  ]);
  assert.deepEqual(reasonOf({ probe: answered(report()) }), ['undetermined', 'no-session']);
});

test('a host that does not tell its sessions leaves it open, and is named', () => {
  const sessions = { kind: 'unknown', message: 'this host is too old to tell its sessions' } as const;
  const verdict = decideVerdict(seen({ present: { loaded: { kind: 'unasked' }, sessions } }));
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'no-session']);
  assert.match(verdict.summary, /too old to tell/);
});
