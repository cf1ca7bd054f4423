/** The order of a trace's steps, and that the service is put back whatever fails. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RestartOutcome } from '../../../../agent/install/apply/effects.js';
import { type TraceRequest, takeBackTrace, trace } from '../../../../agent/install/pipeline/trace.js';
import type { DoctorWorkplace } from '../../../../agent/install/pipeline/workplace.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { observation } from '../../verdict/support.js';
import { facts, tracerManifest, unit } from '../plan/support.js';

const profile = loadProfile('ollama');
const machine = facts({
  unit: unit(),
  manifest: tracerManifest,
});
const text = 'time=1.000000 pid=7 event=process program=/usr/bin/ollama\n';

interface Script {
  readonly begin?: () => Promise<void>;
  readonly restart?: RestartOutcome;
  readonly observe?: () => Promise<void>;
  readonly disarm?: () => Promise<void>;
  readonly approve?: boolean;
  /** The client that the unit serves, each time that it is asked; null: none. */
  readonly serving?: () => string | null;
}

function fails(what: string): () => Promise<never> {
  return async () => {
    throw new VgpuError(`${what} failed`, { kind: 'failed', operation: what });
  };
}

/** Only what a trace asks of it. */
function workplace(script: Script) {
  const did: string[] = [];
  const step = (name: string, work: (() => Promise<void>) | undefined) => async (): Promise<void> => {
    did.push(name);
    await work?.();
  };
  const part: Partial<DoctorWorkplace> = {
    locked: async (command, task) => {
      did.push(`lock ${command}`);
      try {
        return await task();
      } finally {
        did.push('unlock');
      }
    },
    recoverTrace: async () => false,
    serving: async () => script.serving?.() ?? null,
    inspect: async () => machine,
    mark: async () => ({
      cursor: null,
      outputFile: null,
      invocationId: null,
      looking: {
        seen: () => [],
        look: async () => {},
        forget: () => {},
        stop: () => {},
        done: Promise.resolve(),
      },
    }),
    observe: async () => {
      did.push('observe');
      await script.observe?.();
      return observation();
    },
    tracing: {
      begin: step('begin', script.begin),
      restart: async () => {
        did.push('restart');
        return script.restart ?? { kind: 'restarted', job: 'done' };
      },
      live: async () => [],
      read: () => {
        did.push('read');
        return { text, cut: false };
      },
      vendors: async () => new Map(),
      disarm: step('disarm', script.disarm),
      forget: step('forget', undefined),
    },
  };
  return { work: part as DoctorWorkplace, did };
}

function request(script: Script, stop = new AbortController()): TraceRequest {
  return {
    profile,
    timeoutMs: null,
    signal: stop.signal,
    approve: async () => script.approve ?? true,
    asks: false,
  };
}

async function run(script: Script, stop?: AbortController) {
  const { work, did } = workplace(script);
  const said: string[] = [];
  const outcome = await trace(work, request(script, stop), (event) => {
    if (event.kind === 'note') said.push(event.text);
  }).then(
    (traced) => traced.facts.kind,
    (error: unknown) => String(error),
  );
  return { outcome, said, did: did.join(', ') };
}

describe('a trace', () => {
  test('is read after the restart that puts everything back, all under the lock', async () => {
    const { outcome, did } = await run({});
    assert.equal(outcome, 'traced');
    assert.equal(did, 'lock trace, begin, restart, observe, disarm, restart, read, forget, unlock');
  });

  test('that was not requested changes nothing', async () => {
    assert.deepEqual(await run({ approve: false }), {
      outcome: 'not-traced',
      said: [],
      did: 'lock trace, unlock',
    });
  });

  test('of a unit with open requests is refused when no one is asked', async () => {
    const { outcome, did } = await run({ serving: () => '1 loaded, 1 connected' });
    assert.match(outcome, /serves requests, and a trace restarts it: 1 loaded, 1 connected/);
    assert.equal(did, '');
  });

  test('that cannot begin restarts nothing', async () => {
    const { outcome, did } = await run({ begin: fails('begin') });
    assert.match(outcome, /begin failed/);
    assert.equal(did, 'lock trace, begin, disarm, forget, unlock');
  });

  test('after a failed traced start the unit is restored, and the reason is reported', async () => {
    const { outcome, said, did } = await run({ restart: { kind: 'failed', message: 'no such luck' } });
    assert.match(outcome, /could not be started with the tracer: no such luck/);
    assert.deepEqual(said, ['no such luck'], 'the second restart failed, too');
    assert.equal(did, 'lock trace, begin, restart, disarm, restart, forget, unlock');
  });

  test('that is stopped while it waits is put back, and says so', async () => {
    const stop = new AbortController();
    const observe = async (): Promise<void> => {
      stop.abort();
      throw new VgpuError('stopped while waiting', { kind: 'interrupted', operation: 'confirm' });
    };
    const { outcome, did } = await run({ observe }, stop);
    assert.match(outcome, /stopped on request; the trace was removed completely/);
    assert.equal(did, 'lock trace, begin, restart, observe, disarm, restart, forget, unlock');
  });

  test('that cannot be undone keeps its record for the next command, and says so', async () => {
    const stop = new AbortController();
    const { outcome, did } = await run(
      {
        observe: async () => stop.abort(),
        disarm: fails('disarm'),
      },
      stop,
    );
    assert.match(outcome, /disarm failed/);
    assert.ok(!did.includes('forget'), did);
  });
});

test('a command that only looks leaves a trace alone that is at work, and tells of it', async () => {
  const part: Partial<DoctorWorkplace> = {
    traceLeft: async () => true,
    locked: async () => {
      throw new VgpuError('vgpu-agent trace (process 7) is at work', { kind: 'refused', operation: 'lock' });
    },
  };
  const said: string[] = [];
  const took = await takeBackTrace(part as DoctorWorkplace, (event) => {
    if (event.kind === 'note') said.push(event.text);
  });
  assert.equal(took, false);
  assert.deepEqual(said, ['the service is being traced: vgpu-agent trace (process 7) is at work']);
});
