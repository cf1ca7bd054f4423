/** An install that stands while its service settles, and can be taken back until then. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import {
  apply,
  beginTrial,
  endTrial,
  recover,
  takeTrialBack,
} from '../../../../agent/install/apply/apply.js';
import { withoutTimes } from './kill-everywhere.js';
import { bare, startingStates, upgrade } from './starting-states.js';
import { multiarch, ready, type World } from './world.js';

/** Installed, and the lock could be free from here on. */
async function onTrial(world: World): Promise<string> {
  const plan = ready(await world.planInstall());
  const applied = await apply(plan, world.effects(), world.emit, { keepUndo: true });
  assert.equal(applied.undoKept, true);
  await beginTrial(world.effects());
  return plan.unit;
}

/** The actions of the service when it has the lock. */
async function repair(world: World): Promise<readonly string[]> {
  assert.deepEqual(await recover(world.effects(), world.emit), { kind: 'nothing' });
  return repairWith(world, world.effects());
}

async function repairWith(world: World, effects: ReturnType<World['effects']>): Promise<readonly string[]> {
  const plan = ready(await world.planInstall({ restart: false }));
  if (plan.changes.length > 0) await apply(plan, effects, world.emit);
  return plan.changes.map(({ kind }) => kind);
}

describe('an install on trial', () => {
  for (const state of [...startingStates, upgrade]) {
    it(`is taken back exactly, from ${state.name}`, async () => {
      const world = await state.make();
      const before = world.listing();
      const unit = await onTrial(world);
      assert.equal(
        (await world.facts()).interrupted,
        false,
        'for the service it is an install like any other',
      );
      assert.equal((await world.facts()).trial, true);
      assert.deepEqual(await repair(world), [], 'and there is nothing to be repaired');
      const outcome = await takeTrialBack(world.effects(), world.emit, unit);
      assert.deepEqual(outcome, { kind: 'restarted', job: 'done' });
      assert.deepEqual(world.listing(), before);
      assert.deepEqual(world.problemsOfStart(), []);
      world.dispose();
    });
  }

  it('is as if it had never been on trial when that ends', async () => {
    for (const state of [bare, upgrade]) {
      const world = await state.make();
      await onTrial(world);
      assert.equal(await endTrial(world.effects(), world.emit), true);
      const plain = await state.make();
      await plain.install();
      assert.deepEqual(untimed(world), untimed(plain));
      assert.equal((await world.facts()).trial, undefined);
      assert.equal(await endTrial(world.effects(), world.emit), false, 'it is over');
      world.dispose();
      plain.dispose();
    }
  });

  it('can be taken back after a repair, which keeps its copies', async () => {
    const world = await bare.make();
    const before = world.listing();
    const unit = await onTrial(world);
    rmSync(`${world.root}${multiarch}/libcuda.so.1`);
    assert.ok((await repair(world)).includes('write-link'));
    await takeTrialBack(world.effects(), world.emit, unit);
    assert.deepEqual(untimed(world), withoutTimes(before));
    world.dispose();
  });

  it('takes back first what a killed repair left, however the trial ends', async () => {
    const damaged = await bare.make();
    const unit = await onTrial(damaged);
    const link = `${damaged.root}${multiarch}/libcuda.so.1`;
    rmSync(link);
    writeFileSync(link, 'a library of a package');
    const whole = damaged.clone();
    const disk = whole.disk();
    await repairWith(whole, whole.effects(disk));
    const ends = [takeTrialBack, endTrial];
    for (let at = 1; at <= disk.log.length; at += 1) {
      const killed = damaged.clone();
      await assert.rejects(repairWith(killed, killed.effects(killed.disk({ kind: 'kill', at }))));
      for (const end of ends) {
        const [world, recovered] = [killed.clone(), killed.clone()];
        await recover(recovered.effects(), recovered.emit);
        await end(recovered.effects(), recovered.emit, unit);
        await end(world.effects(), world.emit, unit);
        assert.deepEqual(untimed(world), untimed(recovered), `${end.name}, killed at ${at}`);
        world.dispose();
        recovered.dispose();
      }
      killed.dispose();
    }
    damaged.dispose();
    whole.dispose();
  });

  it('stays when another install came in between: that one may stand on it', async () => {
    const world = await bare.make();
    const unit = await onTrial(world);
    const plan = ready(await world.planInstall({ endpoint: 'tcp:10.0.0.1:14833' }));
    await apply(plan, world.effects(), world.emit);
    const installed = world.listing().filter((line) => !/trial\.jsonl|\/backup\/\S/.test(line));
    assert.equal(await takeTrialBack(world.effects(), world.emit, unit), null);
    assert.deepEqual(untimed(world), withoutTimes(installed));
    assert.equal(await takeTrialBack(world.effects(), world.emit, unit), null, 'there is none any more');
    world.dispose();
  });

  it('is finished or taken back, never half of it, wherever taking it back is killed', async () => {
    const start = await upgrade.make();
    const before = start.listing();
    const unit = await onTrial(start);
    const whole = start.clone();
    const disk = whole.disk();
    await takeTrialBack(whole.effects(disk), whole.emit, unit);
    const installed = await installedAs(start);
    for (let at = 1; at <= disk.log.length; at += 1) {
      const world = start.clone();
      const dying = world.effects(world.disk({ kind: 'kill', at }));
      await assert.rejects(takeTrialBack(dying, world.emit, unit));
      const { kind } = await recover(world.effects(), world.emit);
      const ended =
        kind === 'rolled-back' ? false : kind === 'finished' || (await endTrial(world.effects(), world.emit));
      assert.deepEqual(untimed(world), ended ? installed : withoutTimes(before), `killed at ${at}`);
      world.dispose();
    }
    whole.dispose();
    start.dispose();
  });
});

async function installedAs(start: World): Promise<readonly string[]> {
  const world = start.clone();
  await endTrial(world.effects(), world.emit);
  const listing = untimed(world);
  world.dispose();
  return listing;
}

function untimed(world: World): readonly string[] {
  return withoutTimes(world.listing());
}
