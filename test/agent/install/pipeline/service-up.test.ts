import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UnitFacts } from '../../../../agent/contracts/unit.js';
import { type ServiceGoal, serviceUp } from '../../../../agent/install/pipeline/agent-service.js';
import { unitFacts } from '../../../../agent/systemd/unit-facts.js';

function unit(activeState: string, restarts = 0): UnitFacts {
  return unitFacts({
    name: 'vgpu-agent.service',
    unit: { LoadState: 'loaded', Id: 'vgpu-agent.service', ActiveState: activeState },
    service: { NRestarts: restarts },
    fragment: '',
    dropIns: [],
  });
}

type Moment = readonly [unit: UnitFacts, said: { state: string; problem: string } | null];

/** One of these moments for each look; the last one stays. Time passes only while it sleeps. */
async function wait(
  moments: readonly Moment[],
  signal = new AbortController().signal,
  goal: ServiceGoal = 'settled',
) {
  let now = 0;
  let at = 0;
  const present = (): Moment => moments[Math.min(at, moments.length - 1)] ?? [unit('inactive'), null];
  const effects = {
    unit: async () => present()[0],
    state: async () => present()[1],
    now: () => now,
    sleep: async (milliseconds: number) => {
      now += milliseconds;
      at += 1;
    },
  };
  await serviceUp(effects, goal, signal);
  return now;
}

test('the service is awaited until it says that it has settled', async () => {
  const settled: Moment = [unit('active'), { state: 'settled', problem: '' }];
  assert.equal(await wait([settled]), 0);
  const starting: Moment = [unit('activating'), null];
  const repairing: Moment = [unit('active'), { state: 'repairing', problem: '' }];
  assert.equal(await wait([starting, repairing, settled]), 200);
});

test('the service has begun when it is active and answers, settled or not', async () => {
  const { signal } = new AbortController();
  const silent: Moment = [unit('active'), null];
  const waiting: Moment = [unit('active'), { state: 'waiting', problem: '' }];
  assert.equal(await wait([[unit('activating'), null], silent, waiting], signal, 'begun'), 200);
  await assert.rejects(wait([[unit('failed'), null]], signal, 'begun'), /does not start it any more/);
});

test('a service that keeps ending is reported after three starts, not after a minute', async () => {
  const loop = [0, 0, 1, 2, 3, 4].map((restarts): Moment => [unit('activating', restarts), null]);
  await assert.rejects(wait(loop), /not up: it was started 3 times and ended each time/);
});

test('former restarts of a service that now stays do not count', async () => {
  const old: Moment = [unit('active', 17), { state: 'starting', problem: '' }];
  assert.equal(await wait([old, [unit('active', 17), { state: 'settled', problem: '' }]]), 100);
});

test('a service that failed, or stopped repairing, is reported at once with its reason', async () => {
  await assert.rejects(wait([[unit('failed'), null]]), /not up: systemd does not start it any more/);
  const degraded: Moment = [unit('active'), { state: 'degraded', problem: 'it cannot write /opt' }];
  await assert.rejects(wait([degraded]), /not up: it cannot write \/opt/);
});

test('a service that never settles is reported after a minute, with its last message', async () => {
  const waiting: Moment = [unit('active'), { state: 'waiting', problem: 'dpkg is at work' }];
  await assert.rejects(wait([waiting]), /after 60 s it says waiting: dpkg is at work/);
  await assert.rejects(wait([[unit('activating'), null]]), /after 60 s systemd says activating/);
});

test('Ctrl-C ends the waiting', async () => {
  const stop = new AbortController();
  stop.abort();
  await assert.rejects(wait([[unit('activating'), null]], stop.signal), { kind: 'interrupted' });
});

test('Ctrl-C ends the wait for the beginning, too, and names what stays', async () => {
  const stop = new AbortController();
  const starting: Moment = [unit('activating'), null];
  stop.abort();
  await assert.rejects(wait([starting], stop.signal, 'begun'), {
    kind: 'interrupted',
    message: 'stopped while waiting for the service; what was installed stays',
  });
});
