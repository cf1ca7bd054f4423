/**
 * Keeps the files true: looks, and mends what differs by the same plan and the same apply as `install`. One
 * pass at a time. Whatever happens while one runs asks for another, so nothing is missed.
 */
import type { MachineFacts } from '../machine/types.js';
import { changeTitle } from '../output/plan-text.js';
import { plural } from '../output/text.js';
import type { Emit } from '../output/types.js';
import { driftOf, statusView } from '../pipeline/status-view.js';
import type { ReadyPlan, Workplace } from '../pipeline/workplace.js';
import type { Change, Plan } from '../plan/types.js';
import type { Board } from './board.js';
import { causesOf } from './causes.js';
import type { Desired } from './desired.js';
import { Limiter } from './limiter.js';
import { type Pacer, pacer } from './pacer.js';
import type { Record } from './record.js';

export interface KeeperEffects {
  readonly work: Workplace;
  readonly board: Board;
  readonly record: Record;
  readonly desired: () => Desired;
  /** Who of the package managers is at work; null: nobody. */
  readonly packageManager: () => Promise<string | null>;
  /** Called after each pass that found the files as they shall be (or nothing that could be done). */
  readonly settled: (facts: MachineFacts, restart: string | null) => void;
  /** Facts were read: what is watched may have to change. */
  readonly seen: (facts: MachineFacts) => void;
  readonly signal: AbortSignal;
}

export interface Keeper {
  /** Something may have changed. `first`: an installation may be made where there is none. */
  look(why: string, options?: { readonly first?: boolean; readonly soon?: boolean }): void;
  /** Forgets limits and failures, then looks: a person has asked. */
  retry(why: string): void;
  /** Resolves when no pass runs or is asked for. */
  quiet(): Promise<void>;
}

const packageManagerEveryMs = 300;
const packageManagerLimitMs = 30 * 60_000;
/** Failures in a row after which a person has to look. */
const failuresToDegraded = 5;
const failurePauseMs = 1_000;
const degradedPauseMs = 3_600_000;

export function keeper(effects: KeeperEffects): Keeper {
  const { work, board, record, signal } = effects;
  const limiter = new Limiter({ perHour: 1, backoffMs: 0, minimumMs: 0 });
  let first = false;
  let failures = 0;
  let toldDrift = '';
  let toldLimit = false;
  /** When something was noticed first, for the time to the repair. */
  let noticedAt: number | null = null;
  const notes: Emit = (event) => {
    if (event.kind === 'note' && event.level === 'warning') record.say(event.text);
  };

  const plan = (facts: MachineFacts, restart: boolean): Plan => {
    const { config, profile } = effects.desired();
    const endpoint = config.host ?? facts.manifest?.endpoint ?? null;
    // Where it is installed already the question of a real GPU was answered.
    const force = facts.manifest !== null;
    return work.planInstall(profile, facts, { endpoint, restart, force });
  };

  const inspect = async (): Promise<MachineFacts> => {
    const { config, profile } = effects.desired();
    const manifest = await work.manifest();
    return work.inspect(profile, config.host, { ask: manifest === null && effects.desired().declared });
  };

  const pass = async (): Promise<void> => {
    limiter.limits = limitsOf(effects.desired());
    const mayBegin = first;
    // Asked before the look as well: what was seen while it worked may be half of what it does.
    const busy = await effects.packageManager();
    const facts = await inspect();
    board.count('checks');
    effects.seen(facts);
    if (facts.interrupted || facts.traced === true) {
      if (await waited(busy)) return;
      // Of a command that was killed, or of one that is at work: the lock tells.
      await mend(facts, 'an interrupted run');
      return;
    }
    if (facts.manifest === null && !(mayBegin && effects.desired().declared)) {
      board.update({ phase: 'idle', problem: null, view: statusView(facts, null, null) });
      effects.settled(facts, null);
      return;
    }
    first = false;
    const made = plan(facts, false);
    const view = statusView(facts, made, board.now.verdict);
    if (made.kind === 'refused') {
      const problem = made.refusals.map((one) => one.message).join('; ');
      board.update({ phase: 'waiting', problem, view });
      effects.settled(facts, null);
      return;
    }
    const drift = driftOf(made);
    if (drift.length === 0) {
      settle(facts, view);
      return;
    }
    board.update({ view });
    const mends = effects.desired().config.repair.enabled;
    if (mends && (await waited(busy))) return;
    tell(drift, made);
    if (!mends) {
      board.update({
        phase: 'waiting',
        problem: `repairs are switched off; ${plural(drift.length, 'change')} would mend it`,
      });
      effects.settled(facts, null);
      return;
    }
    const permission = limiter.ask(causesOf(drift), Date.now());
    if (permission.kind !== 'now') {
      hold(permission, drift, made);
      effects.settled(facts, null);
      return;
    }
    await mend(facts, null);
  };

  const settle = (facts: MachineFacts, view: ReturnType<typeof statusView>): void => {
    failures = 0;
    toldDrift = '';
    toldLimit = false;
    noticedAt = null;
    board.update({ phase: 'settled', problem: null, view });
    const again = plan(facts, true);
    const restart = again.kind === 'ready' ? again.changes.find((one) => one.kind === 'restart') : undefined;
    effects.settled(facts, restart?.reason ?? null);
  };

  /** Each drift is told once, however often it is looked at before it is mended. */
  const tell = (drift: readonly Change[], { profile, unit }: ReadyPlan): void => {
    const key = causesOf(drift).join('\n');
    if (key === toldDrift) return;
    toldDrift = key;
    noticedAt ??= performance.now();
    board.count('drifts');
    const what = drift.map((one) => `${changeTitle(one)} (${one.reason})`).join('; ');
    record.write({
      kind: 'drift',
      profile,
      unit,
      text: `drift: ${what}`,
      fields: { CHANGES: drift.length, PATHS: causesOf(drift).join(' ') },
    });
  };

  const hold = (
    permission: Exclude<ReturnType<Limiter['ask']>, { kind: 'now' }>,
    drift: readonly Change[],
    { profile, unit }: ReadyPlan,
  ): void => {
    const what = causesOf(drift).join(', ');
    const until = new Date(permission.at).toISOString();
    pace.at(permission.at);
    if (permission.kind === 'later') {
      board.update({
        phase: 'waiting',
        problem: `${what} changes again and again; the next repair is not before ${until}`,
      });
      return;
    }
    const problem = `${what}: ${permission.times} repairs within an hour are the limit; something else keeps changing it. Find it, then systemctl reload vgpu-agent; the next try is at ${until}`;
    board.update({ phase: 'degraded', problem });
    if (toldLimit) return;
    toldLimit = true;
    record.write({ kind: 'repairLimit', profile, unit, text: problem, fields: { PATHS: what } });
  };

  const mend = async (seen: MachineFacts, because: string | null): Promise<void> => {
    board.update({ phase: 'repairing' });
    const begun = noticedAt ?? performance.now();
    let tried: readonly Change[] = [];
    try {
      const done = await work.locked('repair', async () => {
        const recovery = await work.recover(notes);
        if (recovery.kind !== 'nothing') {
          record.say(
            `an ${recovery.intent} that was cut short was ${recovery.kind === 'finished' ? 'finished' : 'taken back'}`,
          );
        }
        // Between the look and the lock a command may have been at work; after an uninstall nothing is kept.
        const manifest = await work.manifest();
        const stale =
          recovery.kind !== 'nothing' ||
          seen.traced === true ||
          JSON.stringify(manifest) !== JSON.stringify(seen.manifest);
        const facts = stale ? await inspect() : seen;
        if (stale && facts.manifest === null && seen.manifest !== null) return null;
        if (because !== null && facts.manifest === null) return null;
        const made = plan(facts, false);
        if (made.kind !== 'ready') return null;
        const changes = made.changes.filter((one) => one.kind !== 'service');
        tried = changes;
        if (changes.length === 0) return null;
        limiter.note(causesOf(changes), Date.now());
        await work.apply({ ...made, changes }, { keepUndo: false, signal }, notes);
        return made;
      });
      failures = 0;
      if (done !== null) told(done, tried, performance.now() - begun);
      toldDrift = '';
      noticedAt = null;
    } catch (error) {
      if (signal.aborted) return;
      failed(error, tried);
      return;
    }
    pace.now();
  };

  const told = ({ profile, unit }: ReadyPlan, changes: readonly Change[], milliseconds: number): void => {
    board.repaired(milliseconds);
    const what = changes.map(changeTitle).join(', ');
    record.write({
      kind: 'repaired',
      profile,
      unit,
      text: `repaired in ${Math.round(milliseconds)} ms: ${what}`,
      fields: {
        CHANGES: changes.length,
        MILLISECONDS: Math.round(milliseconds),
        PATHS: causesOf(changes).join(' '),
      },
    });
  };

  const failed = (error: unknown, changes: readonly Change[]): void => {
    failures += 1;
    board.count('failedRepairs');
    const why = error instanceof Error ? error.message : String(error);
    const hopeless = failures >= failuresToDegraded;
    const pause = hopeless ? degradedPauseMs : failurePauseMs * 2 ** (failures - 1);
    pace.at(Date.now() + pause);
    const what = changes.length === 0 ? 'the repair' : causesOf(changes).join(', ');
    const next = hopeless
      ? `given up after ${failures} tries; mend it, then systemctl reload vgpu-agent`
      : `the next try is in ${pause / 1000} s`;
    const problem = `${what} could not be mended: ${why}; ${next}`;
    board.update({ phase: hopeless ? 'degraded' : 'waiting', problem });
    const { profile } = effects.desired();
    record.write({
      kind: hopeless ? 'repairLimit' : 'repairFailed',
      profile: profile.name,
      unit: profile.unit,
      text: problem,
      fields: { PATHS: what, FAILURES: failures },
    });
  };

  /**
   * Was a package manager at work? Then it was waited for, and everything has to be looked at again: what it did
   * last was not seen.
   */
  const waited = async (before: string | null): Promise<boolean> => {
    let who = before ?? (await effects.packageManager());
    if (who === null) return false;
    const problem = `waiting for the package manager: ${who}`;
    board.update({ phase: 'waiting', problem });
    record.write({ kind: 'packageManager', profile: null, unit: null, text: problem });
    const begun = Date.now();
    while (who !== null && !signal.aborted) {
      if (Date.now() - begun >= packageManagerLimitMs) return false;
      await pace.sleep(packageManagerEveryMs);
      who = await effects.packageManager();
    }
    pace.now();
    return true;
  };

  const safePass = async (): Promise<void> => {
    try {
      await pass();
    } catch (error) {
      if (!signal.aborted) failed(error, []);
    }
  };
  const pace: Pacer = pacer(safePass, signal);

  return {
    look(_why, options = {}) {
      if (options.first === true) first = true;
      noticedAt ??= performance.now();
      if (failures >= failuresToDegraded) return;
      if (options.soon === true) pace.now();
      else pace.soon();
    },
    retry(_why) {
      limiter.reset();
      failures = 0;
      toldLimit = false;
      toldDrift = '';
      first = true;
      pace.now();
    },
    quiet: () => pace.quiet(),
  };
}

function limitsOf({ config }: Desired): { perHour: number; backoffMs: number; minimumMs: number } {
  return { perHour: config.repair.perHour, backoffMs: config.repair.backoffSeconds * 1000, minimumMs: 0 };
}
