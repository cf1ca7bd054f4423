/**
 * Keeps the files as installed: carries out the decisions of machine.ts, with the plan and apply of `install`.
 * One inspection at a time. Every event during an inspection requests another one, so none is missed.
 */

import type { Emit } from '../../contracts/events.js';
import type { MachineFacts } from '../../contracts/facts.js';
import type { Change, Plan } from '../../contracts/plan.js';
import { driftOf, statusView } from '../../install/pipeline/status-view.js';
import type { Workplace } from '../../install/pipeline/workplace.js';
import { changeTitle } from '../../install/plan/change-title.js';
import { findConsumer } from '../../install/plan/owned.js';
import { messageOf } from '../../lib/errors.js';
import type { ConsumerBoard, Record } from '../board.js';
import type { DesiredOne } from '../desired.js';
import { pacer, pause, steadyNow } from '../pacer.js';
import {
  beginKeeping,
  type Found,
  type KeeperEffect,
  type KeeperEvent,
  type KeeperRules,
  keeperNext,
  type Repaired,
} from './machine.js';

interface KeeperEffects {
  readonly work: Workplace;
  readonly board: ConsumerBoard;
  readonly record: Record;
  readonly desired: () => DesiredOne;
  /** Serializes inspections and repairs of all consumers, because they share files. */
  readonly turn: <T>(task: () => Promise<T>) => Promise<T>;
  readonly packageManager: () => Promise<string | null>;
  /** Called after each inspection that found the files as installed (or no possible repair). */
  readonly settled: (facts: MachineFacts, restart: string | null) => void;
  readonly seen: (facts: MachineFacts) => void;
  readonly signal: AbortSignal;
}

const packageManagerEveryMs = 300;
const packageManagerLimitMs = 30 * 60_000;

interface Look {
  readonly facts: MachineFacts;
  readonly found: Found;
  readonly wanted: boolean;
}

export function keeper(effects: KeeperEffects) {
  const { work, board, record, signal } = effects;
  const { profile } = effects.desired();
  let state = beginKeeping(profile.name, profile.unit, rulesOf(effects.desired()));
  const notes: Emit = (event) => {
    if (event.kind === 'note' && event.level === 'warning') record.say(event.text);
  };

  const plan = (facts: MachineFacts, restart: boolean): Plan => {
    const endpoint = effects.desired().config.host ?? facts.manifest?.endpoint ?? null;
    const force = facts.manifest !== null;
    // An image is built without a host; the service restarts the consumer when the host answers.
    return work.planInstall(profile, facts, { endpoint, restart, force, allowUnreachable: true });
  };

  const inspect = async (): Promise<MachineFacts> => {
    const { config, declared } = effects.desired();
    const manifest = await work.manifest();
    return work.inspect(profile, config.host, {
      ask: manifest === null && declared,
      from: 'agent.json',
    });
  };

  const isInstalled = (manifest: MachineFacts['manifest']): boolean =>
    findConsumer(manifest, profile.unit) !== undefined;

  const look = async (): Promise<Look> => {
    // Before the inspection: an installation that is requested meanwhile gets its own inspection.
    const mayBegin = state.first && effects.desired().declared;
    const facts = await inspect();
    board.count('checks');
    effects.seen(facts);
    const wanted = isInstalled(facts.manifest) || mayBegin;
    if (facts.interrupted || facts.traced === true) return { facts, found: { kind: 'interrupted' }, wanted };
    const made = wanted ? plan(facts, false) : null;
    board.update({ view: statusView(profile, facts, made, wanted ? board.now.verdict : null) });
    return { facts, found: foundIn(made), wanted };
  };

  const step = (event: KeeperEvent): readonly KeeperEffect[] => {
    const next = keeperNext(state, event);
    state = next.state;
    return next.effects.filter((effect) => !doneAtOnce(effect));
  };

  const handle = async (event: KeeperEvent, seen: Look): Promise<void> => {
    for (const effect of step(event)) {
      const answer = await answerTo(effect, seen);
      if (answer !== null) await handle(answer, seen);
    }
  };

  const doneAtOnce = (effect: KeeperEffect): boolean => {
    switch (effect.kind) {
      case 'look':
        if (effect.when === 'now') pace.now();
        else if (effect.when === 'soon') pace.soon();
        else pace.at(effect.when);
        return true;
      case 'show':
        board.update({ phase: effect.phase, problem: effect.problem });
        return true;
      case 'count':
        board.count(effect.name);
        return true;
      case 'count-repair':
        board.repaired(effect.milliseconds);
        return true;
      case 'write':
        record.write(effect.message);
        return true;
      default:
        return false;
    }
  };

  const answerTo = async (effect: KeeperEffect, { facts }: Look): Promise<KeeperEvent | null> => {
    switch (effect.kind) {
      case 'settled': {
        const again = effect.right ? plan(facts, true) : null;
        const restart =
          again?.kind === 'ready' ? again.changes.find((one) => one.kind === 'restart') : undefined;
        effects.settled(facts, restart?.reason ?? null);
        return null;
      }
      case 'ask-package-manager': {
        const who = await effects.packageManager();
        return { kind: 'package-manager', who, found: effect.found, now: steadyNow() };
      }
      case 'wait-for-package-manager': {
        const tired = await waitForPackageManager();
        return { kind: 'package-manager-gone', tired, found: effect.found, now: steadyNow() };
      }
      case 'repair':
        return repair(facts, effect.interrupted, effect.since);
      default:
        return null;
    }
  };

  const waitForPackageManager = async (): Promise<boolean> => {
    const begun = steadyNow();
    do {
      if (steadyNow() - begun >= packageManagerLimitMs) return true;
      await pause(packageManagerEveryMs, signal);
    } while (!signal.aborted && (await effects.packageManager()) !== null);
    return false;
  };

  const repair = async (
    seen: MachineFacts,
    interrupted: boolean,
    begun: number,
  ): Promise<KeeperEvent | null> => {
    let tried: readonly Change[] = [];
    try {
      const did = await work.locked('repair', () =>
        underLock(seen, interrupted, (changes) => {
          tried = changes;
        }),
      );
      return { kind: 'repaired', did, begun, now: steadyNow() };
    } catch (error) {
      if (signal.aborted) return null;
      return { kind: 'failed', why: messageOf(error), causes: causesOf(tried), now: steadyNow() };
    }
  };

  const underLock = async (
    seen: MachineFacts,
    interrupted: boolean,
    tries: (changes: readonly Change[]) => void,
  ): Promise<Repaired | null> => {
    const recovery = await work.recover(notes);
    if (recovery.kind !== 'nothing') {
      const how = recovery.kind === 'finished' ? 'finished' : 'taken back';
      record.say(`an interrupted ${recovery.intent} was ${how}`);
    }
    // A command may have run between the inspection and the lock; after an uninstall there is nothing to maintain.
    const manifest = await work.manifest();
    const stale =
      recovery.kind !== 'nothing' ||
      seen.traced === true ||
      JSON.stringify(manifest) !== JSON.stringify(seen.manifest);
    const facts = stale ? await inspect() : seen;
    const gone = !isInstalled(facts.manifest) && (interrupted || (stale && isInstalled(seen.manifest)));
    const made = gone ? null : plan(facts, false);
    if (made?.kind !== 'ready') return null;
    const changes = made.changes.filter((one) => one.kind !== 'service');
    if (changes.length === 0) return null;
    tries(changes);
    await work.apply({ ...made, changes }, { keepUndo: false, signal }, notes);
    return { titles: changes.map(changeTitle), causes: causesOf(changes) };
  };

  const pass = async (): Promise<void> => {
    // Checked before the inspection, too, because a running package manager leaves an intermediate state.
    const busy = await effects.packageManager();
    const seen = await look();
    const { found, wanted } = seen;
    const rules = rulesOf(effects.desired());
    await handle({ kind: 'found', found, wanted, busy, rules, now: steadyNow() }, seen);
  };

  const pace = pacer(async () => {
    try {
      await effects.turn(pass);
    } catch (error) {
      if (!signal.aborted) step({ kind: 'failed', why: messageOf(error), causes: [], now: steadyNow() });
    }
  }, signal);

  return {
    /** Requests an inspection. `first`: it may make a missing installation. */
    look({ first = false, soon = false } = {}): void {
      step({ kind: 'noticed', first, soon, now: steadyNow() });
    },
    retry: (): void => void step({ kind: 'retry' }),
    quiet: pace.quiet,
  };
}

function foundIn(plan: Plan | null): Found {
  if (plan === null) return { kind: 'right' };
  if (plan.kind === 'refused') {
    return { kind: 'refused', problem: plan.refusals.map((one) => one.message).join('; ') };
  }
  const drift = driftOf(plan);
  if (drift.length === 0) return { kind: 'right' };
  const what = drift.map((one) => `${changeTitle(one)} (${one.reason})`);
  return { kind: 'drift', causes: causesOf(drift), what };
}

function rulesOf({ config: { repair } }: DesiredOne): KeeperRules {
  const { enabled, perHour, backoffSeconds } = repair;
  return { enabled, limits: { perHour, backoffMs: backoffSeconds * 1000, minimumMs: 0 } };
}

/** For back-off and messages: paths, else the kind of change. */
export function causesOf(changes: readonly Change[]): readonly string[] {
  const paths = changes.flatMap((change) =>
    'path' in change ? [change.path] : change.kind === 'store' ? ['/opt/vgpu'] : [],
  );
  if (paths.length > 0) return [...new Set(paths)];
  return [
    ...new Set(changes.map((change) => (change.kind === 'ldconfig' ? '/etc/ld.so.cache' : change.kind))),
  ];
}
