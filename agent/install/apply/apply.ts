/**
 * Carries out plans. The caller holds the lock (lock.ts) and has called `recover` before it inspected the machine.
 *
 * Order: record, step, record, step, ..., manifest, commit; then the restart; then the removal of backups. After a crash
 * before the commit, `recover` undoes the steps; after the commit it finishes the removal (reasons: records.ts). The
 * restart comes after the commit, because a service that does not start proves nothing about the files: the verdict
 * judges it, and `--rollback-on-failure` uses the undo log that `keepUndo` keeps.
 */
import { type Emit, note } from '../../contracts/events.js';
import type { Manifest } from '../../contracts/manifest.js';
import type { Change, ReadyPlan } from '../../contracts/plan.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import { agentUnit, agentUnitFile, hostd } from '../../lib/paths.js';
import { plural } from '../../lib/text.js';
import { changeTitle } from '../plan/change-title.js';
import { carryOut } from './carry-out.js';
import {
  type Applied,
  type ApplyEffects,
  type ApplyOptions,
  checkpoint,
  type Disk,
  type Recovery,
  type RestartOutcome,
} from './effects.js';
import { failureOf, rolledBack, undecided, undoFailed } from './failures.js';
import { manifestBytes, readManifest, sha256 } from './manifest.js';
import { appendRecord, readTransaction, type StepRecord, secureLog, type Transaction } from './records.js';
import { closeTransaction, sweepStore, tidyState } from './release.js';
import { OpenTransaction, type Work } from './transaction.js';
import { undoSteps } from './undo.js';

/**
 * Carries out every change of the plan, in order. Emits the phases `apply`, `restart` and `rollback`, and
 * `change-started`, `change-done`, `change-undone`. Throws a VgpuError: `rolled-back` (exit 7) if a change failed
 * and everything was undone; `interrupted` if `signal` aborted and everything was undone; `failed` if undoing failed, too
 * (the log stays, the next command continues); `refused` if a transaction of an earlier run is still open.
 */
export async function apply(
  plan: ReadyPlan,
  effects: ApplyEffects,
  emit: Emit,
  options: ApplyOptions = { keepUndo: false },
): Promise<Applied> {
  const restart = plan.changes.find((change) => change.kind === 'restart');
  const services = plan.changes.filter((change) => change.kind === 'service');
  const durable = plan.changes.filter((change) => change.kind !== 'restart' && change.kind !== 'service');
  if (durable.length > 0) {
    emit({ kind: 'phase', phase: 'apply', text: plural(plan.changes.length, 'change') });
    await commitChanges(plan, effects, emit, options);
  }
  const outcome = await restartUnit(plan, restart, effects, emit);
  const undoKept = options.keepUndo && durable.length > 0;
  if (durable.length > 0 && !undoKept) await settle(effects, emit);
  // Last, because the service treats an open transaction as an interrupted one.
  for (const change of services) await runService(plan, change, effects, emit);
  return { changes: plan.changes.length, restart: outcome, undoKept };
}

/** After a crash: replays the log of an earlier run, undoing or finishing it. Throws `failed`; can be called again. */
export async function recover(effects: ApplyEffects, emit: Emit): Promise<Recovery> {
  const { disk } = effects;
  const transaction = await readTransaction(disk);
  if (transaction === null) {
    await closeTransaction(disk);
    return { kind: 'nothing' };
  }
  const { intent } = transaction.begin;
  if (transaction.state === 'committed') {
    await secureLog(disk);
    emit({ kind: 'phase', phase: 'recover', text: `finish the interrupted ${intent}` });
    await finish(effects, transaction, emit);
    return { kind: 'finished', intent };
  }
  emit({ kind: 'phase', phase: 'recover', text: `undo the interrupted ${intent}` });
  await takeBack(effects, transaction.steps, emit, null);
  return { kind: 'rolled-back', intent };
}

/** Takes back an install whose undo log was kept. Throws `failed` (the log stays) or `internal` (no log). */
export async function rollback(
  effects: ApplyEffects,
  emit: Emit,
  unit: string | null,
): Promise<RestartOutcome> {
  const transaction = await readTransaction(effects.disk);
  if (transaction?.state !== 'committed') {
    throw new VgpuError('there is nothing to roll back: no undo log was kept', {
      kind: 'internal',
      operation: 'roll back',
    });
  }
  emit({ kind: 'phase', phase: 'rollback', text: `undo the ${transaction.begin.intent}` });
  try {
    await appendRecord(effects.disk, { type: 'rollback' });
  } catch (error) {
    throw undecided(error, transaction.begin.intent);
  }
  await takeBack(effects, transaction.steps, emit, null);
  if (transaction.steps.some((step) => step.type === 'path' && step.path === agentUnitFile)) {
    // The service runs with files that were removed: stop it, or restart it with its former unit.
    const before = (await effects.disk.inspect(agentUnitFile)).kind;
    const action = before === 'absent' ? 'stop' : 'restart';
    await effects.manager[action](agentUnit, effects.restartTimeoutMs).catch(() => {});
  }
  return unit === null ? { kind: 'not-planned' } : restartNow(unit, effects);
}

/** Forgets the undo log that `keepUndo` kept, and deletes what only it needed. Does nothing when there is none. */
export async function settle(effects: ApplyEffects, emit: Emit): Promise<void> {
  const transaction = await readTransaction(effects.disk);
  if (transaction === null) {
    await tidyState(effects.disk);
    return;
  }
  if (transaction.state === 'committed') await finish(effects, transaction, emit);
}

async function commitChanges(
  plan: ReadyPlan,
  effects: ApplyEffects,
  emit: Emit,
  options: ApplyOptions,
): Promise<void> {
  const { disk } = effects;
  if ((await disk.inspect(disk.state.transaction)).kind !== 'absent') {
    throw new VgpuError('an earlier run was interrupted and has not been cleaned up', {
      kind: 'refused',
      operation: 'apply the plan',
      remedy: 'run vgpu-agent install or vgpu-agent uninstall again',
    });
  }
  const manifest = await readManifest(disk);
  const retire = plan.changes.flatMap((change) => (change.kind === 'remove-store' ? [change.id] : []));
  let transaction: OpenTransaction;
  try {
    transaction = await OpenTransaction.start(disk, plan.intent, manifest, retire);
  } catch (error) {
    await takeBack(effects, [], emit, error);
    throw rolledBack(error);
  }
  const done: Change[] = [];
  try {
    const work = { effects, transaction, emit, items: manifest?.items ?? [] };
    for (const change of plan.changes) {
      if (change.kind === 'restart' || change.kind === 'service') continue;
      stopIfAsked(options.signal, 'stopped on request', { operation: 'apply the plan' });
      await announced(plan, change, emit, () => carryOut(work, change));
      done.push(change);
    }
    stopIfAsked(options.signal, 'stopped on request', { operation: 'apply the plan' });
    await writeManifest(work, plan);
    await appendRecord(disk, { type: 'commit' });
  } catch (error) {
    if (await mayBeCommitted(disk)) throw undecided(error, plan.intent);
    emit({ kind: 'phase', phase: 'rollback', text: failureOf(error).text });
    await takeBack(effects, transaction.steps, emit, error);
    for (const change of done.reverse()) emit({ kind: 'change-undone', change });
    throw rolledBack(error);
  }
}

/** The commit was the record that failed, and it may be on the disk: see records.ts. */
async function mayBeCommitted(disk: Disk): Promise<boolean> {
  try {
    return (await readTransaction(disk))?.state === 'committed';
  } catch {
    return true;
  }
}

/** The last consumer leaves none. What could not be given back has been told; it is no longer listed. */
async function writeManifest(
  { effects: { disk, agentVersion: agent }, transaction, items }: Work,
  plan: ReadyPlan,
): Promise<void> {
  const { consumers, storeId, endpoint } = plan;
  if (consumers.length === 0) {
    await transaction.place(disk.state.manifest, { kind: 'absent' });
    return;
  }
  const manifest: Manifest = { schema: 2, agent, storeId, endpoint, consumers, items };
  const content = manifestBytes(manifest);
  await transaction.place(disk.state.manifest, {
    kind: 'file',
    content,
    sha256: sha256(content),
    mode: 0o644,
  });
}

/** Undoes and closes. `because` is what made it necessary, for the message if this fails too. */
async function takeBack(
  effects: ApplyEffects,
  steps: readonly StepRecord[],
  emit: Emit,
  because: unknown,
): Promise<void> {
  try {
    await undoSteps(effects, steps, emit);
    await closeTransaction(effects.disk);
  } catch (error) {
    throw undoFailed(because ?? new Error('an earlier run was interrupted'), error);
  }
}

async function finish(effects: ApplyEffects, transaction: Transaction, emit: Emit): Promise<void> {
  try {
    await sweepStore(effects, transaction, emit);
    await closeTransaction(effects.disk);
  } catch (error) {
    const failure = failureOf(error);
    throw new VgpuError(
      `the ${transaction.begin.intent} is done, but cleaning up failed: ${failure.text}. The next vgpu-agent install or uninstall tries again`,
      { ...failure, kind: 'failed', cause: error },
    );
  }
}

async function announced<T>(
  plan: ReadyPlan,
  change: Change,
  emit: Emit,
  work: () => Promise<T>,
  isDone: (result: T) => boolean = () => true,
): Promise<T> {
  const place = { change, index: plan.changes.indexOf(change), of: plan.changes.length };
  const begun = performance.now();
  emit({ kind: 'change-started', ...place });
  const result = await work();
  if (isDone(result)) emit({ kind: 'change-done', ...place, milliseconds: performance.now() - begun });
  return result;
}

async function restartUnit(
  plan: ReadyPlan,
  restart: Extract<Change, { kind: 'restart' }> | undefined,
  effects: ApplyEffects,
  emit: Emit,
): Promise<RestartOutcome> {
  if (restart === undefined) return { kind: 'not-planned' };
  emit({ kind: 'phase', phase: 'restart', text: `${restart.unit}: ${restart.reason}` });
  const work = async (): Promise<RestartOutcome> => {
    const outcome = await restartNow(restart.unit, effects);
    checkpoint('restart');
    return outcome;
  };
  return announced(plan, restart, emit, work, ({ kind }) => kind === 'restarted');
}

/** Like the consumer's restart, a failure undoes nothing: the installation is complete without the service. */
async function runService(
  plan: ReadyPlan,
  change: Extract<Change, { kind: 'service' }>,
  effects: ApplyEffects,
  emit: Emit,
): Promise<void> {
  try {
    await announced(plan, change, emit, () => serviceAction(change, effects));
  } catch (error) {
    const text = `cannot ${change.action} ${change.unit}: ${failureOf(error).text}`;
    const remedy = `${changeTitle(change)}, and journalctl -u ${change.unit} says why`;
    note(emit, 'warning', 'service-failed', text, remedy);
  }
  // The catalog's database is journald's own; without it only journalctl -x has less to say.
  await effects.runner.run('journalctl', ['--update-catalog']).catch(() => {});
}

async function serviceAction(
  { unit, action }: Extract<Change, { kind: 'service' }>,
  { manager, runner, restartTimeoutMs }: ApplyEffects,
): Promise<void> {
  if (action === 'hand-over' || action === 'reload') {
    const asked = await runner.run(hostd, [action], { timeoutMs: restartTimeoutMs });
    if (asked.code !== 0)
      throw new Error(asked.stderr.toString().trim() || `${hostd} ended with ${asked.code}`);
    return;
  }
  if (action === 'daemon-reload') {
    await manager.reload();
    return;
  }
  const result = await manager[action](unit, restartTimeoutMs);
  if (result !== 'done') throw new Error(`the job ended with ${result}`);
}

/** A failure is returned, not thrown. */
export async function restartNow(
  unit: string,
  effects: Pick<ApplyEffects, 'manager' | 'restartTimeoutMs'>,
): Promise<RestartOutcome> {
  try {
    return { kind: 'restarted', job: await effects.manager.restart(unit, effects.restartTimeoutMs) };
  } catch (error) {
    return { kind: 'failed', message: failureOf(error).text };
  }
}
