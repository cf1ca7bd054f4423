import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ReadyPlan } from '../../../../agent/contracts/plan.js';
import { apply, recover } from '../../../../agent/install/apply/apply.js';
import { exitCodeOf, VgpuError } from '../../../../agent/lib/errors.js';
import { commands, planFor, prepared, withoutTimes } from './kill-everywhere.js';
import { bare, type StartingState, startingStates, upgrade } from './starting-states.js';
import { ready, type World } from './world.js';

const long = process.env['VGPU_TEST_LONG'] === '1';

/** ENOSPC leaves half of what was written. */
const errnos = ['ENOSPC', 'EROFS', 'EACCES'] as const;

/** Was the commit on the disk before mutation `at`? From there on things are finished, not undone. */
function committed(log: readonly string[], at: number): boolean {
  const written = log.findIndex((entry) =>
    /^(rename|unlink) \/var\/lib\/vgpu-agent\/manifest\.json$/.test(entry),
  );
  const commit = log.findIndex(
    (entry, index) => written >= 0 && index > written && entry.startsWith('append'),
  );
  return commit >= 0 && at > commit + 1;
}

for (const [index, state] of [...startingStates, upgrade].entries()) {
  describe(`a write that fails, from ${state.name}`, () => {
    for (const command of commands) {
      it(`takes ${command} back, whichever write it is`, async () => {
        const start = await prepared(state, command);
        const plan = await planFor(start, command);
        const before = start.listing();
        const done = await carriedOut(start, plan);
        // Every write from the two simplest states; every third one from the others, each state with others.
        const step = long || state === bare || state === upgrade ? 1 : 3;
        for (let at = 1 + (index % step); at <= done.mutations; at += step) {
          const errno = errnos[Math.floor(at / step) % errnos.length] ?? 'ENOSPC';
          const world = start.clone();
          const disk = world.disk({ kind: 'fault', at, errno, lasting: false });
          const where = `${command}, ${errno} at mutation ${at}`;
          const error = await failure(apply(plan, world.effects(disk), world.emit), where);
          if (committed(disk.log, at)) {
            // The new state stands; only the cleaning up is left to the next command.
            assert.equal(error.kind, 'failed', where);
            await recover(world.effects(), world.emit);
            assert.deepEqual(withoutTimes(world.listing()), done.listing, where);
          } else {
            assert.equal(exitCodeOf(error), 7, `${where}: ${error.message}`);
            assert.match(error.message, /everything was undone/, where);
            assert.notEqual(error.path, undefined, where);
            assert.notEqual(error.remedy, undefined, where);
            assert.deepEqual(world.listing(), before, where);
          }
          world.dispose();
        }
        start.dispose();
      });
    }
  });
}

for (const state of [bare, upgrade]) {
  describe(`a record whose fsync fails after its bytes were written, from ${state.name}`, () => {
    for (const command of commands) {
      it(`${command} is taken back, or left for the next command if the record decides`, async () => {
        const start = await prepared(state, command);
        const plan = await planFor(start, command);
        const before = start.listing();
        const done = await carriedOut(start, plan);
        const whole = start.clone();
        const log = whole.disk();
        await apply(plan, whole.effects(log), whole.emit);
        const appends = log.log.flatMap((entry, index) => (entry.startsWith('append') ? [index + 1] : []));
        for (const at of appends) {
          const world = start.clone();
          const disk = world.disk({ kind: 'landed', at });
          const where = `${command}, mutation ${at}`;
          const error = await failure(apply(plan, world.effects(disk), world.emit), where);
          if (at === appends.at(-1)) {
            assert.equal(error.kind, 'failed', where);
            assert.match(error.message, /the disk did not confirm the last record/, where);
            assert.equal(disk.log.length, at, `${where}: nothing more was changed`);
            // So that no process uses the former version.
            await world.effects().manager.restart('ollama.service', 1_000);
            assert.deepEqual(await recover(world.effects(), world.emit), {
              kind: 'finished',
              intent: command,
            });
            assert.deepEqual(withoutTimes(world.listing()), done.listing, where);
          } else {
            assert.equal(exitCodeOf(error), 7, `${where}: ${error.message}`);
            assert.deepEqual(world.listing(), before, where);
          }
          world.dispose();
        }
        start.dispose();
        whole.dispose();
      });
    }
  });
}

async function carriedOut(
  start: World,
  plan: ReadyPlan,
): Promise<{ readonly mutations: number; readonly listing: readonly string[] }> {
  const world = start.clone();
  const disk = world.disk();
  await apply(plan, world.effects(disk), world.emit);
  const listing = withoutTimes(world.listing());
  world.dispose();
  return { mutations: disk.log.length, listing };
}

async function failure(work: Promise<unknown>, where: string): Promise<VgpuError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof VgpuError, `${where}: ${String(error)}`);
    return error;
  }
  throw new Error(`${where}: it did not fail`);
}

describe('a disk that stays full or read-only', () => {
  it('keeps the log when undoing fails too, and the next command continues from there', async () => {
    const states: readonly StartingState[] = [bare, ...startingStates.slice(2, 3)];
    for (const state of states) {
      for (const command of commands) {
        const start = await prepared(state, command);
        const plan = await planFor(start, command);
        const before = start.listing();
        const done = await carriedOut(start, plan);
        let kept = 0;
        for (let at = 1; at <= done.mutations; at += 1) {
          const world = start.clone();
          const disk = world.disk({ kind: 'fault', at, errno: 'EROFS', lasting: true });
          const where = `${command} from ${state.name}, read-only from mutation ${at} on`;
          const error = await failure(apply(plan, world.effects(disk), world.emit), where);
          assert.ok(error.remedy !== undefined, where);
          if (error.kind === 'rolled-back') assert.deepEqual(world.listing(), before, where);
          else kept += 1;
          assert.deepEqual(world.problemsOfStart(), [], where);
          await recover(world.effects(), world.emit);
          if (committed(disk.log, at)) assert.deepEqual(withoutTimes(world.listing()), done.listing, where);
          else assert.deepEqual(world.listing(), before, where);
          world.dispose();
        }
        assert.ok(kept > 10, `${kept} runs kept the log`);
        start.dispose();
      }
    }
  });
});

describe('a tool that fails', () => {
  const broken = (world: World, tool: string) => {
    const effects = world.effects();
    return {
      ...effects,
      runner: {
        run: async (...[file, args, options]: Parameters<typeof effects.runner.run>) =>
          file.endsWith(tool)
            ? { code: 1, signal: null, stdout: Buffer.alloc(0), stderr: Buffer.from('no'), timedOut: false }
            : effects.runner.run(file, args, options),
      },
    };
  };

  it('takes everything back when ldconfig fails, and does not fail over it again', async () => {
    const world = await bare.make();
    const before = world.listing();
    const plan = ready(await world.planInstall());
    await assert.rejects(apply(plan, broken(world, 'ldconfig'), world.emit), { kind: 'rolled-back' });
    assert.deepEqual(world.listing(), before);
    assert.ok(world.notes().includes('tool-failed-in-undo'));
    world.dispose();
  });

  it('takes everything back when daemon-reload fails', async () => {
    const world = await bare.make();
    const before = world.listing();
    const plan = ready(await world.planInstall());
    const effects = world.effects();
    let calls = 0;
    const manager = {
      ...effects.manager,
      reload: async () => {
        calls += 1;
        if (calls === 1) throw new VgpuError('no answer', { kind: 'failed', operation: 'Reload' });
      },
    };
    await assert.rejects(apply(plan, { ...effects, manager }, world.emit), { kind: 'rolled-back' });
    assert.deepEqual(world.listing(), before);
    assert.equal(calls, 2, 'systemd is told that the drop-in is gone');
    world.dispose();
  });

  it('takes everything back when update-alternatives fails', async () => {
    const state = startingStates.find((one) => one.name.includes('alternatives'));
    assert.ok(state);
    const world = await state.make();
    const before = world.listing();
    const plan = ready(await world.planInstall());
    await assert.rejects(apply(plan, broken(world, 'update-alternatives'), world.emit), {
      kind: 'rolled-back',
    });
    assert.deepEqual(world.listing(), before);
    world.dispose();
  });

  it('takes everything back when the service’s user cannot load the shim', async () => {
    const world = await bare.make();
    const before = world.listing();
    world.loadProblem = (file) => `${file} cannot be read by ollama: /opt may not be entered`;
    await assert.rejects(world.install(), (error: VgpuError) => {
      assert.equal(exitCodeOf(error), 7);
      assert.match(error.message, /may not be entered/);
      return true;
    });
    assert.deepEqual(world.listing(), before);
    world.dispose();
  });
});

describe('a request to stop', () => {
  it('is followed between two changes, with everything as before', async () => {
    const world = await bare.make();
    const before = world.listing();
    const plan = ready(await world.planInstall());
    const stop = new AbortController();
    const work = apply(
      plan,
      world.effects(),
      (event) => {
        world.emit(event);
        if (event.kind === 'change-done' && event.index === 4) stop.abort();
      },
      { keepUndo: false, signal: stop.signal },
    );
    await assert.rejects(work, { kind: 'interrupted' });
    assert.deepEqual(world.listing(), before);
    assert.equal(world.events.filter((event) => event.kind === 'change-undone').length, 5);
    assert.equal(world.restarts, 0);
    world.dispose();
  });
});
