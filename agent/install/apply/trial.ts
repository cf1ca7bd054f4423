/**
 * An install on trial: it is complete, and its undo log is kept beside it until it is known whether the service
 * settles. The service needs the lock for that, so the installer does not hold it meanwhile, and another command may
 * change something. Then the trial is over, and the install stays. A run that was killed meanwhile left an undo log of
 * its own, at the place that the trial's log goes back to: `recover` comes first.
 */
import type { Emit } from '../../contracts/events.js';
import { recover, rollback, settle } from './apply.js';
import { syncParent } from './disk.js';
import type { ApplyEffects, Disk } from './effects.js';
import { readTransaction, type Transaction } from './records.js';
import type { RestartOutcome } from './types.js';

/** After `apply` with `keepUndo`, under the lock. From here on a command or the service may take the lock. */
export async function beginTrial({ disk }: ApplyEffects): Promise<void> {
  await disk.rename(disk.state.transaction, disk.state.trial);
  await syncParent(disk, disk.state.trial);
}

/** The install stays. Under the lock; false: there was no trial. Throws as `recover`. */
export async function endTrial(effects: ApplyEffects, emit: Emit): Promise<boolean> {
  await recover(effects, emit);
  if (!(await resume(effects.disk))) return false;
  await settle(effects, emit);
  return true;
}

/**
 * Takes the install back and restarts `unit`. Under the lock. Null: it cannot be taken back, because something else was
 * installed, repaired or removed since; what is there stays. Throws as `recover` and `rollback`.
 */
export async function takeTrialBack(
  effects: ApplyEffects,
  emit: Emit,
  unit: string,
): Promise<RestartOutcome | null> {
  const { disk } = effects;
  await recover(effects, emit);
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
