/** The order of the pipeline's effects, against a workplace that writes down what is asked of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineFacts } from '../../../../agent/contracts/facts.js';
import type { Plan, ReadyPlan } from '../../../../agent/contracts/plan.js';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import type { RestartOutcome } from '../../../../agent/install/apply/effects.js';
import type { ServiceGoal } from '../../../../agent/install/pipeline/agent-service.js';
import { type InstallRequest, install, uninstall } from '../../../../agent/install/pipeline/install.js';
import type { Workplace } from '../../../../agent/install/pipeline/workplace.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { cpuVerdict, emptyPlan, plan, verdict } from '../../cli/output/samples.js';

const profile = loadProfile('ollama');

interface Script {
  readonly serviceFails?: ServiceGoal;
  /** Aborts the request while the service begins. */
  readonly serviceStops?: AbortController;
  readonly plan?: Plan;
  readonly verdict?: Verdict;
  readonly confirm?: () => Promise<Verdict>;
  readonly restart?: RestartOutcome;
  readonly apply?: () => never;
}

/** Only what the pipeline touches of the facts: the pipeline hands them on, it does not look into them. */
function someFacts(): MachineFacts {
  const part = { unit: { kind: 'absent', name: 'ollama.service' } };
  return part as unknown as MachineFacts;
}

function workplace(script: Script = {}) {
  const did: string[] = [];
  const restart: RestartOutcome = script.restart ?? { kind: 'restarted', job: 'done' };
  const work: Workplace = {
    profile: () => profile,
    profiles: () => [profile],
    manifest: async () => null,
    inspect: async () => {
      did.push('inspect');
      return someFacts();
    },
    planInstall: () => script.plan ?? plan,
    planUninstall: () => script.plan ?? plan,
    locked: async (command, task) => {
      did.push(`lock ${command}`);
      try {
        return await task();
      } finally {
        did.push('unlock');
      }
    },
    recover: async () => {
      did.push('recover');
      return { kind: 'nothing' };
    },
    traceLeft: async () => false,
    recoverTrace: async () => false,
    apply: async (todo, options) => {
      did.push(`apply ${todo.changes.length}${options.keepUndo ? ' keeping the undo log' : ''}`);
      script.apply?.();
      const empty = todo.changes.length === 0;
      return {
        changes: todo.changes.length,
        restart: empty ? { kind: 'not-planned' } : restart,
        undoKept:
          options.keepUndo && todo.changes.some(({ kind }) => kind !== 'restart' && kind !== 'service'),
      };
    },
    rollback: async (unit) => {
      did.push(`roll back and restart ${unit}`);
      return restart;
    },
    settle: async () => {
      did.push('settle');
    },
    serviceUp: async (_unit, goal) => {
      did.push(`wait for the service: ${goal}`);
      script.serviceStops?.abort();
      if (script.serviceStops !== undefined)
        throw new VgpuError('stopped', { kind: 'interrupted', operation: 'wait for the service' });
      if (script.serviceFails === goal)
        throw new VgpuError('not up', { kind: 'failed', operation: 'wait for the service' });
    },
    unit: async (name) => ({ kind: 'absent', name }),
    mark: async () => {
      did.push('mark');
      return {
        cursor: 's=1',
        outputFile: null,
        invocationId: null,
        looking: {
          seen: () => [],
          look: async () => {},
          forget: () => {},
          stop: () => did.push('stop looking'),
          done: Promise.resolve(),
        },
      };
    },
    confirm: async (request) => {
      did.push(request.mark === null ? 'confirm the running start' : `confirm after ${request.mark.cursor}`);
      return script.confirm === undefined ? (script.verdict ?? verdict) : script.confirm();
    },
    journal: {
      write: async (message) => {
        did.push(`journal ${message.kind}`);
      },
    },
  };
  return { work, did };
}

function request(over: Partial<InstallRequest> = {}): InstallRequest {
  return {
    profile,
    host: null,
    force: false,
    restart: true,
    rollbackOnFailure: false,
    timeoutMs: null,
    signal: new AbortController().signal,
    approve: async () => true,
    asks: false,
    ...over,
  };
}

const quiet = (): void => {};

test('a plan of only a restart has nothing to undo, so its verdict is reported, whatever it is', async () => {
  const onlyRestart = { ...plan, changes: plan.changes.filter(({ kind }) => kind === 'restart') };
  assert.equal(onlyRestart.changes.length, 1);
  const { work, did } = workplace({ plan: onlyRestart, verdict: cpuVerdict });
  const result = await install(work, request({ rollbackOnFailure: true }), quiet);
  assert.equal(result.kind, 'done');
  assert.equal(result.kind === 'done' ? result.verdict : null, cpuVerdict);
  assert.deepEqual(
    did.filter((line) => /roll back|settle/.test(line)),
    [],
  );
});

test('an install looks, asks, marks the journal, applies, lets the lock go, and only then waits', async () => {
  const { work, did } = workplace();
  const result = await install(work, request(), quiet);
  assert.ok(result.kind === 'done');
  assert.equal(result.verdict, verdict);
  assert.deepEqual(did, [
    'lock install',
    'recover',
    'inspect',
    'mark',
    'apply 7',
    'journal installed',
    'unlock',
    'confirm after s=1',
    'journal verdict',
    'stop looking',
  ]);
});

test('a requested service is waited for last, without the lock; one that was not requested is not waited for', async () => {
  const { work, did } = workplace();
  await install(work, request({ service: true }), quiet);
  assert.deepEqual(did.slice(-3), ['journal verdict', 'wait for the service: settled', 'stop looking']);
  const other = workplace();
  await install(other.work, request({ service: false }), quiet);
  assert.ok(!other.did.some((step) => step.startsWith('wait for the service')));
});

test('with nothing to do there is no question, and the running service is judged', async () => {
  const { work, did } = workplace({ plan: emptyPlan });
  const approve = async (): Promise<boolean> => assert.fail('asked');
  const result = await install(work, request({ approve }), quiet);
  assert.ok(result.kind === 'done');
  assert.deepEqual(did.slice(-3), ['unlock', 'confirm the running start', 'journal verdict']);
  assert.ok(!did.includes('journal installed'));
});

test('a person who says no changes nothing', async () => {
  const { work, did } = workplace();
  const result = await install(work, request({ approve: async () => false }), quiet);
  assert.equal(result.kind, 'declined');
  assert.deepEqual(did, ['lock install', 'recover', 'inspect', 'unlock']);
});

test('without a restart no verdict is asked for, and no process is looked at', async () => {
  const { work, did } = workplace({
    plan: { ...plan, changes: plan.changes.filter((change) => change.kind !== 'restart') },
  });
  const result = await install(work, request({ restart: false }), quiet);
  assert.ok(did.includes('apply 6') && !did.includes('mark'), did.join(', '));
  assert.ok(result.kind === 'done');
  assert.equal(result.verdict, null);
  assert.ok(!did.some((step) => step.startsWith('confirm')));
});

test('a refused plan ends with every reason in one message, before anything is touched', async () => {
  const refused: Plan = {
    kind: 'refused',
    refusals: [
      { code: 'a', message: 'no unit', remedy: 'install it' },
      { code: 'b', message: 'a real GPU', remedy: '--force' },
    ],
    warnings: [],
  };
  const { work, did } = workplace({ plan: refused });
  await assert.rejects(install(work, request(), quiet), (error) => {
    assert.ok(error instanceof VgpuError);
    assert.deepEqual(
      [error.kind, error.message, error.remedy],
      ['refused', 'no unit\na real GPU', 'install it\n--force'],
    );
    return true;
  });
  assert.deepEqual(did, ['lock install', 'recover', 'inspect', 'unlock']);
});

test('with --rollback-on-failure anything but GPU is taken back, under the lock', async () => {
  const { work, did } = workplace({ verdict: cpuVerdict });
  const result = await install(work, request({ rollbackOnFailure: true }), quiet);
  assert.ok(result.kind === 'rolled-back');
  assert.equal(result.verdict, cpuVerdict);
  assert.deepEqual(did.slice(did.indexOf('apply 7 keeping the undo log')), [
    'apply 7 keeping the undo log',
    'journal installed',
    'confirm after s=1',
    'journal verdict',
    'roll back and restart ollama.service',
    'journal rolledBack',
    'unlock',
    'stop looking',
  ]);
});

test('with --rollback-on-failure a GPU verdict lets the undo log go', async () => {
  const { work, did } = workplace();
  const result = await install(work, request({ rollbackOnFailure: true }), quiet);
  assert.equal(result.kind, 'done');
  assert.deepEqual(did.slice(-3), ['settle', 'unlock', 'stop looking']);
});

test('a confirmation that breaks is taken back too', async () => {
  const { work, did } = workplace({ confirm: () => Promise.reject(new Error('bus gone')) });
  await assert.rejects(install(work, request({ rollbackOnFailure: true }), quiet), /bus gone/);
  assert.ok(did.includes('roll back and restart ollama.service'));
});

test('with --rollback-on-failure a service that does not begin is taken back with everything else', async () => {
  const { work, did } = workplace({ serviceFails: 'begun' });
  const wanted = request({ rollbackOnFailure: true, service: true });
  await assert.rejects(install(work, wanted, quiet), (error) => {
    assert.ok(error instanceof VgpuError);
    assert.deepEqual([error.kind, error.message], ['rolled-back', 'not up. Everything was undone']);
    return true;
  });
  const steps = [
    'wait for the service: begun',
    'roll back and restart ollama.service',
    'journal rolledBack',
    'unlock',
  ];
  assert.deepEqual(did.slice(did.indexOf(steps[0] ?? '')).slice(0, 4), steps);
});

test('keeps the installation when it is stopped while the service begins, with --rollback-on-failure', async () => {
  const stop = new AbortController();
  const { work, did } = workplace({ serviceStops: stop });
  const wanted = request({ rollbackOnFailure: true, service: true, signal: stop.signal });
  await assert.rejects(install(work, wanted, quiet), { kind: 'interrupted' });
  assert.deepEqual(did.slice(did.indexOf('wait for the service: begun')), [
    'wait for the service: begun',
    'settle',
    'unlock',
    'stop looking',
  ]);
});

test('removes the undo log when the service starts, and waits without the lock until it settles, with --rollback-on-failure', async () => {
  const wanted = request({ rollbackOnFailure: true, service: true });
  const steps = ['wait for the service: begun', 'settle', 'unlock', 'wait for the service: settled'];
  for (const serviceFails of [undefined, 'settled'] as const) {
    const { work, did } = workplace(serviceFails === undefined ? {} : { serviceFails });
    const installed = install(work, wanted, quiet);
    if (serviceFails === undefined) assert.equal((await installed).kind, 'done');
    else await assert.rejects(installed, { kind: 'failed', message: 'not up' });
    assert.deepEqual(did.slice(did.indexOf('wait for the service: begun')), [...steps, 'stop looking']);
  }
});

test('stopped while waiting: the installed state stays, and it is said', async () => {
  for (const rollbackOnFailure of [false, true]) {
    const stop = new AbortController();
    const { work, did } = workplace({
      confirm: async () => {
        stop.abort();
        throw new VgpuError('stopped', { kind: 'interrupted', operation: 'confirm' });
      },
    });
    const stopped = install(work, request({ rollbackOnFailure, signal: stop.signal }), quiet);
    await assert.rejects(stopped, (error) => {
      assert.ok(error instanceof VgpuError);
      assert.equal(error.kind, 'interrupted');
      assert.match(error.message, /what was installed stays/);
      return true;
    });
    assert.equal(did.includes('settle'), rollbackOnFailure);
    assert.ok(!did.some((step) => step.startsWith('roll back')));
  }
});

test('stopped before the first change: nothing is applied', async () => {
  const stop = new AbortController();
  stop.abort();
  const { work, did } = workplace();
  await assert.rejects(install(work, request({ signal: stop.signal }), quiet), { kind: 'interrupted' });
  assert.ok(!did.some((step) => step.startsWith('apply')));
});

test('a failed apply is neither confirmed nor written to the journal', async () => {
  const { work, did } = workplace({
    apply: () => {
      throw new VgpuError('no space left', { kind: 'rolled-back', operation: 'write' });
    },
  });
  await assert.rejects(install(work, request(), quiet), { kind: 'rolled-back' });
  assert.deepEqual(did.slice(-3), ['apply 7', 'unlock', 'stop looking']);
});

test('a rollback whose restart fails says how to start the service', async () => {
  const notes: string[] = [];
  const { work } = workplace({ verdict: cpuVerdict, restart: { kind: 'failed', message: 'job failed' } });
  await install(work, request({ rollbackOnFailure: true }), (event) => {
    if (event.kind === 'note') notes.push(`${event.text}: ${event.remedy}`);
  });
  assert.deepEqual(notes, ['job failed: systemctl restart ollama.service']);
});

test('an uninstall asks once and leaves an entry; with nothing to do it leaves none', async () => {
  const removal: ReadyPlan = { ...plan, intent: 'uninstall' };
  const uninstalling = {
    profile,
    restart: true,
    signal: new AbortController().signal,
    approve: async () => true,
    asks: false,
  };
  const first = workplace({ plan: removal });
  assert.equal((await uninstall(first.work, uninstalling, quiet)).kind, 'done');
  assert.deepEqual(first.did, [
    'lock uninstall',
    'recover',
    'inspect',
    'apply 7',
    'journal uninstalled',
    'unlock',
  ]);
  const second = workplace({ plan: { ...removal, changes: [] } });
  await uninstall(second.work, { ...uninstalling, approve: async () => assert.fail('asked') }, quiet);
  assert.ok(!second.did.includes('journal uninstalled'));
});
