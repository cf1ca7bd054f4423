/**
 * The power fails in the middle of a mutation, on a disk that keeps nothing which was not synced: the entries of each
 * directory are as they were at its last fsync.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { apply } from '../../../../agent/install/apply/apply.js';
import { commands, undisturbed, withoutTimes } from './kill-everywhere.js';
import { bare, upgrade } from './starting-states.js';

const long = process.env['VGPU_TEST_LONG'] === '1';

for (const state of [bare, upgrade]) {
  describe(`a power failure that drops unsynced writes, from ${state.name}`, () => {
    for (const command of commands) {
      it(`${command} is finished or undone by the next command`, async () => {
        const expected = await undisturbed(state, command);
        const total = Math.max(...expected.points);
        // Every third in the default suite: each costs three machines.
        for (let at = 1; at <= total; at += long ? 1 : 3) {
          const world = expected.start.clone();
          const { disk, lose } = world.forgetfulDisk({ kind: 'kill', at });
          await assert.rejects(apply(expected.plan, world.effects(disk), world.emit), () => disk.isDead());
          lose();
          const where = `${command}, power lost in ${disk.log.at(-1)} (mutation ${at})`;
          assert.deepEqual(world.problemsOfStart(), [], where);
          for (const next of commands) {
            const after = world.clone();
            await after[next]();
            assert.deepEqual(withoutTimes(after.listing()), expected.after[next], `${where}, then ${next}`);
            after.dispose();
          }
          world.dispose();
        }
        const whole = expected.start.clone();
        const { disk, lose } = whole.forgetfulDisk({ kind: 'none' });
        await apply(expected.plan, whole.effects(disk), whole.emit);
        const before = withoutTimes(whole.listing());
        lose();
        assert.deepEqual(withoutTimes(whole.listing()), before, `${command} is durable when it is done`);
        whole.dispose();
        expected.start.dispose();
      });
    }
  });
}
