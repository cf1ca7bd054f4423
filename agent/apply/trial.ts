/**
 * An install on trial: it stands, and its undo log is kept beside it until it is known whether the service settles.
 * The service needs the lock for that, so nobody holds it meanwhile, and others may change something: then the trial
 * is over, and the install stays.
 */
import type { Emit } from '../contracts/events.js';
import { rollback, settle } from './apply.js';
import { syncParent } from './disk.js';
import type { ApplyEffects, Disk } from './effects.js';
import { readTransaction, type Transaction } from './records.js';
import type { RestartOutcome } from './types.js';

/** After `apply` with `keepUndo`, under the lock. From here on a command or the service may take the lock. */
export async function beginTrial({ disk }: ApplyEffects): Promise<void> {
  await disk.rename(disk.state.transaction, disk.state.trial);
  await syncParent(disk, disk.state.trial);
}

/** The install stays. Under the lock; false: there was no trial. */
export async function endTrial(effects: ApplyEffects, emit: Emit): Promise<boolean> {
  if (!(await resume(effects.disk))) return false;
  await settle(effects, emit);
  return true;
}

/**
 * Takes the install back and restarts `unit`. Under the lock, after `recover` with `keepTrial`. Null: that cannot be
 * done, for somebody has installed, repaired or removed something else since; what is there stays. Throws as `rollback`.
 */
export async function takeTrialBack(
  effects: ApplyEffects,
  emit: Emit,
  unit: string,
): Promise<RestartOutcome | null> {
  const { disk } = effects;
  const trial = await readTransaction(disk, disk.state.trial);
  if (trial === null || trial === 'torn') return null;
  if (!(await isManifestOf(disk, trial))) {
    await endTrial(effects, emit);
    return null;
  }
  await resume(disk);
  return rollback(effects, emit, unit);
}

/** It is an ordinary undo log again. */
async function resume(disk: Disk): Promise<boolean> {
  if ((await disk.inspect(disk.state.trial)).kind === 'absent') return false;
  await disk.rename(disk.state.trial, disk.state.transaction);
  await syncParent(disk, disk.state.transaction);
  return true;
}

/** Is the manifest still the one that this install wrote? Its undo log fits no other. */
async function isManifestOf(disk: Disk, { steps }: Transaction): Promise<boolean> {
  const wrote = steps.findLast((step) => step.type === 'path' && step.path === disk.state.manifest);
  if (wrote?.type !== 'path' || wrote.to.kind !== 'file') return false;
  const present = await disk.inspect(disk.state.manifest);
  return present.kind === 'file' && present.sha256 === wrote.to.sha256;
}
