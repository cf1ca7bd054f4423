import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { apply, recover } from '../../../../agent/install/apply/apply.js';
import { commands, killEverywhere, undisturbed, withoutTimes } from './kill-everywhere.js';
import { bare, startingStates, upgrade } from './starting-states.js';
import { ready } from './world.js';

killEverywhere([bare, upgrade]);

describe('killed again while recovering', () => {
  it('can be recovered however often it is cut short', async () => {
    for (const command of commands) {
      const state = startingStates[2];
      assert.ok(state);
      const expected = await undisturbed(state, command);
      for (const at of expected.points.filter((_point, index) => index % 7 === 5)) {
        const world = expected.start.clone();
        const before = withoutTimes(world.listing());
        const dying = world.disk({ kind: 'kill', at });
        await assert.rejects(apply(expected.plan, world.effects(dying), world.emit));
        for (let again = 1; ; again += 1) {
          const disk = world.disk({ kind: 'kill', at: again });
          try {
            await recover(world.effects(disk), world.emit);
            break;
          } catch {
            assert.equal(disk.isDead(), true);
            assert.deepEqual(world.problemsOfStart(), []);
          }
        }
        const after = withoutTimes(world.listing());
        const ends = command === 'install' ? expected.after.install : expected.after.uninstall;
        assert.ok(sameLines(after, before) || sameLines(after, ends), `${command} killed at ${at}`);
        world.dispose();
      }
      expected.start.dispose();
    }
  });
});

function sameLines(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((line, index) => line === b[index]);
}

describe('a transaction that is still open', () => {
  it('is not overwritten by a plan that was made without recovering', async () => {
    const [state] = startingStates;
    assert.ok(state);
    const world = await state.make();
    await assert.rejects(
      world.install({}, world.disk({ kind: 'kill', at: 20 })),
      (error) => !(error instanceof TypeError),
    );
    const plan = ready(await world.planInstall());
    assert.ok(plan.warnings.some((warning) => warning.code === 'interrupted-run'));
    await assert.rejects(apply(plan, world.effects(), world.emit), { kind: 'refused' });
    world.dispose();
  });
});
