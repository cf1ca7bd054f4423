import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ReadyPlan } from '../../../../agent/contracts/plan.js';
import { apply } from '../../../../agent/install/apply/apply.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { bare, type StartingState, upgrade } from './starting-states.js';
import { profile, ready, type World } from './world.js';

/**
 * Every run of install and uninstall, from every starting state, killed in the middle of every single mutation (what
 * was being written is half there), and then continued by one of the two commands or each. After the kill, a consumer that
 * starts must start; after the second command, the machine must be exactly as that command promises.
 */
export type Command = 'install' | 'uninstall';
export const commands: readonly Command[] = ['install', 'uninstall'];

const long = process.env['VGPU_TEST_LONG'] === '1';

export const withoutTimes = (listing: readonly string[]): string[] =>
  listing.filter((line) => !line.includes('transaction')).map(normal);

/** Backups carry the run's random id in their names, and the manifest names them. */
function normal(line: string): string {
  return line
    .replace(/ \d{18,19}/, '')
    .replace(/backup\/[0-9a-f]{8}-\d+-/, 'backup/')
    .replace(/^(\/var\/lib\/vgpu-agent\/manifest\.json).*/, '$1');
}

export async function prepared(state: StartingState, command: Command): Promise<World> {
  const world = await state.make();
  if (command === 'uninstall') await world.install();
  return world;
}

export async function planFor(world: World, command: Command): Promise<ReadyPlan> {
  return command === 'install'
    ? ready(await world.planInstall())
    : ready(planUninstall(profile, await world.facts(), { restart: true }));
}

export interface Expectation {
  /** The machine before the command; every run works on a clone. */
  readonly start: World;
  readonly plan: ReadyPlan;
  readonly before: readonly string[];
  /** Numbers of the mutations to be killed in. */
  readonly points: readonly number[];
  /** By the command that comes second. */
  readonly after: Readonly<Record<Command, readonly string[]>>;
}

/** The course of an undisturbed run: how many mutations, and where each following command ends. */
export async function undisturbed(state: StartingState, command: Command): Promise<Expectation> {
  const start = await prepared(state, command);
  const first = start.clone();
  const disk = first.disk();
  const plan = await planFor(start, command);
  await apply(plan, first.effects(disk), first.emit);
  const second = await state.make();
  await second.install();
  const installed = withoutTimes(second.listing());
  await second.uninstall();
  const expectation = {
    start,
    plan,
    before: start.listing(),
    // Killed in a directory's fsync, the tree is as it is when killed in what comes after it.
    points: disk.log.flatMap((entry, index) => (entry.startsWith('syncDirectory') ? [] : [index + 1])),
    after: { install: installed, uninstall: withoutTimes(second.listing()) },
  };
  first.dispose();
  second.dispose();
  return expectation;
}

async function killedAt(
  state: StartingState,
  command: Command,
  at: number,
  expected: Expectation,
): Promise<void> {
  const killed = expected.start.clone();
  const disk = killed.disk({ kind: 'kill', at });
  const dying = apply(expected.plan, killed.effects(disk), killed.emit);
  await assert.rejects(dying, () => disk.isDead(), `${command} from ${state.name}, mutation ${at}`);
  const where = `${command} from ${state.name}, killed in ${disk.log.at(-1)} (mutation ${at})`;
  assert.deepEqual(killed.problemsOfStart(), [], where);
  for (const next of continuations(state, at)) {
    const world = killed.clone();
    const { recovery } = await world[next]();
    assert.deepEqual(world.problemsOfStart(), [], `${where}, then ${next}`);
    const listing = world.listing();
    assert.deepEqual(withoutTimes(listing), expected.after[next], `${where}, then ${next}`);
    if (recovery.kind !== 'nothing') assert.equal(recovery.intent, command);
    // Former files have their bytes again, times included.
    if (command === 'install' && next === 'uninstall' && state !== upgrade) {
      assert.deepEqual(listing, expected.before, where);
    }
    if (at % 3 === 0) {
      const again = await world[next]();
      assert.deepEqual([again.recovery, again.plan.changes], [{ kind: 'nothing' }, []], where);
    }
    world.dispose();
  }
  killed.dispose();
}

/** From the two simplest states both commands continue each kill; from the others they take turns. */
function continuations(state: StartingState, at: number): readonly Command[] {
  if (long || state === bare || state === upgrade) return commands;
  return commands.filter((_, index) => index === at % 2);
}

/** The tests of these starting states; in several files, which node:test runs side by side. */
export function killEverywhere(states: readonly StartingState[]): void {
  for (const state of states) {
    describe(`killed at every single mutation, from ${state.name}`, () => {
      for (const command of commands) {
        it(`${command} is finished or undone by the next command`, async () => {
          const expected = await undisturbed(state, command);
          assert.ok(expected.points.length > 20, `${expected.points.length} points`);
          for (const at of expected.points) await killedAt(state, command, at, expected);
          expected.start.dispose();
        });
      }
    });
  }
}
