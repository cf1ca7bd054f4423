/**
 * The power fails in an fsync, on a real file system that loses what was not synced. The next command, or `recover`
 * alone, leads to the machine of before or of after; so does a `recover` that the next power failure ends.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { ReadyPlan } from '../../../../agent/contracts/plan.js';
import { apply, recover } from '../../../../agent/install/apply/apply.js';
import { ForgetfulMount, keeps, whyNoForgetfulMount } from './forgetful-mount.js';
import { type Command, commands, planFor, withoutTimes } from './kill-everywhere.js';
import { bare, type StartingState, upgrade } from './starting-states.js';
import type { World } from './world.js';

const long = process.env['VGPU_TEST_LONG'] === '1';
const skip = whyNoForgetfulMount();
/** Every seventh fsync in the default suite, each with another remainder. */
const step = long ? 1 : 7;

interface Course {
  readonly start: World;
  readonly plan: ReadyPlan;
  readonly syncs: number;
  readonly before: readonly string[];
  readonly done: readonly string[];
  /** By the command that comes next. */
  readonly next: Readonly<Record<Command, readonly string[]>>;
}

async function carry(world: World, plan: ReadyPlan): Promise<void> {
  await apply(plan, world.effects(), world.emit);
}

async function course(mount: ForgetfulMount, state: StartingState, command: Command): Promise<Course> {
  const options = { realTools: true, directory: mount.directory };
  const start = await state.make(options);
  if (command === 'uninstall') await start.install();
  const plan = await planFor(start, command);
  const whole = start.clone();
  await mount.settle();
  await mount.cut(0, 'nothing', 0);
  await carry(whole, plan);
  const done = withoutTimes(whole.listing());
  const cache = loaderCache(whole);
  const syncs = await mount.on();
  assert.deepEqual(withoutTimes(whole.listing()), done, `${command} is durable when it is done`);
  assert.equal(loaderCache(whole), cache, `the loader's cache is durable when ${command} is done`);
  whole.boot();
  await whole.install();
  const installed = withoutTimes(whole.listing());
  await whole.uninstall();
  const uninstalled = withoutTimes(whole.listing());
  whole.dispose();
  const next = { install: installed, uninstall: uninstalled };
  return { start, plan, syncs, before: withoutTimes(start.listing()), done, next };
}

/** Not part of a listing, which compares machines that ran ldconfig at different times. */
const loaderCache = (world: World): string => readFileSync(`${world.root}/etc/ld.so.cache`, 'base64');

/** Empty directories of our own state are no part of either machine. */
const machine = (listing: readonly string[]): string[] =>
  listing.filter((line) => !/^\/var\/lib\/vgpu-agent\/(backup\/)? /.test(line));

describe('a power failure on a disk that loses what was not synced', { skip }, () => {
  let mount: ForgetfulMount;
  before(async () => {
    mount = await ForgetfulMount.start();
  });
  after(() => mount.stop());

  for (const state of [bare, upgrade]) {
    for (const command of commands) {
      it(`in ${command}, from ${state.name}`, async (t) => {
        const known = await course(mount, state, command);
        assert.ok(known.syncs > 30, `${known.syncs} fsyncs`);
        let cuts = 0;
        for (let at = 1; at <= known.syncs; at += step) {
          for (const keep of long ? keeps : [keeps[cuts % keeps.length] ?? 'nothing']) {
            const where = `${command}, power lost in fsync ${at} of ${known.syncs}, ${keep} kept`;
            cuts += await cutAt(mount, known, at, keep, where);
          }
        }
        t.diagnostic(`${cuts} power failures`);
        known.start.dispose();
      });
    }
  }
});

/** Answers how often the power failed. */
async function cutAt(
  mount: ForgetfulMount,
  known: Course,
  at: number,
  keep: (typeof keeps)[number],
  where: string,
): Promise<number> {
  const world = known.start.clone();
  await mount.settle();
  await mount.cut(at, keep, at);
  // A cut behind the commit need not fail the command.
  await carry(world, known.plan).catch(() => {});
  await mount.on();
  world.boot();
  assert.deepEqual(world.problemsOfStart(), [], where);
  for (const next of commands) {
    const again = world.clone();
    await again[next]();
    assert.deepEqual(withoutTimes(again.listing()), known.next[next], `${where}, then ${next}`);
    again.dispose();
  }
  const cuts = await recoverAgain(mount, world, known, keep, where);
  world.dispose();
  return cuts + 1;
}

/** `recover` with a power failure in each of its own fsyncs, and then without one. */
async function recoverAgain(
  mount: ForgetfulMount,
  world: World,
  known: Course,
  keep: (typeof keeps)[number],
  where: string,
): Promise<number> {
  let cuts = 0;
  for (let at = 1; ; at += long ? 5 : 11) {
    const once = world.clone();
    await mount.settle();
    await mount.cut(at, keep, at);
    await recover(once.effects(), once.emit).catch(() => {});
    const syncs = await mount.on();
    once.boot();
    const context = `${where}, and in fsync ${at} of ${syncs} of recover`;
    assert.deepEqual(once.problemsOfStart(), [], context);
    await recover(once.effects(), once.emit);
    const found = machine(withoutTimes(once.listing()));
    const valid = [known.before, known.done].map(machine);
    const reached = valid.findIndex(
      (one) => one.length === found.length && one.every((line, i) => line === found[i]),
    );
    if (reached < 0) assert.deepEqual(found, valid[0], context);
    once.dispose();
    if (syncs < at) return cuts;
    cuts += 1;
  }
}
