/**
 * Adds the tracer to a service and removes it again. The caller holds the lock. The record is written first and removed
 * last, so an existing record means an interrupted trace of its unit. Every function can be interrupted and repeated. All
 * files are below /run, so a reboot removes them.
 */
import path from 'node:path';
import { type Emit, note } from '../../contracts/events.js';
import { VgpuError } from '../../lib/errors.js';
import {
  storeVersions,
  traceDirectory,
  traceDropInPath,
  traceFile,
  traceRecord,
  tracerName,
} from '../../lib/paths.js';
import type { TracePlan } from '../plan/trace.js';
import type { ApplyEffects, RestartOutcome } from './effects.js';
import { failureOf } from './failures.js';
import { sha256 } from './manifest.js';
import { clear, place, temporaryFor } from './place.js';
import { runReload } from './tools.js';

type TraceEffects = Pick<ApplyEffects, 'disk' | 'manager' | 'mappedUnder' | 'restartTimeoutMs'>;

/** Throws `failed`; `disarmTrace` and `forgetTrace` take back what was done. */
export async function beginTrace(plan: TracePlan, effects: TraceEffects): Promise<void> {
  try {
    await arm(plan, effects);
  } catch (cause) {
    const failure = failureOf(cause);
    const text = `${plan.unit} cannot be traced: ${failure.text}. It was not restarted`;
    throw new VgpuError(text, { ...failure, kind: 'failed', operation: 'trace', cause });
  }
}

async function arm(plan: TracePlan, effects: TraceEffects): Promise<void> {
  const { disk } = effects;
  await ensureDirectory(effects, traceDirectory);
  await placeFile(effects, traceRecord, `${plan.unit}\n`, 0o644);
  await clear(disk, traceFile);
  // Only root may create entries in the directory, so the name is this file, not a link.
  await disk.create(traceFile, Buffer.alloc(0), plan.writer === null ? 0o622 : 0o600);
  if (plan.writer !== null) await disk.own(traceFile, plan.writer.uid, plan.writer.gid);
  await ensureDirectory(effects, path.dirname(plan.dropIn.path));
  await placeFile(effects, plan.dropIn.path, plan.dropIn.content, 0o644);
  await runReload(effects);
}

/** The start with the tracer, or the one that restores the unit; a failure is returned, not thrown. */
export async function restartForTrace(unit: string, effects: TraceEffects): Promise<RestartOutcome> {
  try {
    return { kind: 'restarted', job: await effects.manager.restart(unit, effects.restartTimeoutMs) };
  } catch (error) {
    return { kind: 'failed', message: failureOf(error).text };
  }
}

export async function disarmTrace(unit: string, effects: TraceEffects): Promise<void> {
  const { disk } = effects;
  const dropIn = traceDropInPath(unit);
  await clear(disk, temporaryFor(dropIn));
  await clear(disk, dropIn);
  await removeEmpty(effects, path.dirname(dropIn));
  await runReload(effects);
}

export async function forgetTrace({ disk }: Pick<TraceEffects, 'disk'>): Promise<void> {
  for (const file of [traceFile, temporaryFor(traceRecord), traceRecord]) await clear(disk, file);
  await removeEmpty({ disk }, traceDirectory);
}

/** Restarts a service that still runs with the tracer. False: nothing was left. Can be called again. */
export async function recoverTrace(effects: TraceEffects, emit: Emit): Promise<boolean> {
  const { disk } = effects;
  if ((await disk.inspect(traceDirectory)).kind !== 'directory') return false;
  const unit = (await disk.read(traceRecord))?.toString('utf8').trim() ?? '';
  // Without a record nothing but the directory was made.
  if (!isUnitName(unit)) {
    await forgetTrace(effects);
    return false;
  }
  emit({ kind: 'phase', phase: 'recover', text: `undo the interrupted trace of ${unit}` });
  await disarmTrace(unit, effects);
  const mapped = await effects.mappedUnder(storeVersions);
  const runs = [...mapped].some((file) => path.basename(file) === tracerName);
  const restart = runs ? await restartForTrace(unit, effects) : null;
  await forgetTrace(effects);
  const failed = restart?.kind === 'failed';
  const outcome =
    restart === null ? '' : failed ? `, but: ${restart.message}` : `, and ${unit} started again`;
  const text = `a doctor --trace of ${unit} was interrupted; vgpu-agent removed what it left${outcome}`;
  note(emit, 'warning', 'trace-taken-back', text, failed ? `systemctl restart ${unit}` : null);
  return true;
}

function isUnitName(text: string): boolean {
  return /^[\w:.@\\-]+\.service$/.test(text) && !text.startsWith('.');
}

async function ensureDirectory({ disk }: Pick<TraceEffects, 'disk'>, directory: string): Promise<void> {
  if ((await disk.inspect(directory)).kind !== 'directory') await disk.makeDirectory(directory, 0o755);
}

async function removeEmpty({ disk }: Pick<TraceEffects, 'disk'>, directory: string): Promise<void> {
  const present = await disk.inspect(directory);
  if (present.kind === 'directory' && present.empty) await disk.removeDirectory(directory);
}

function placeFile(
  { disk }: Pick<TraceEffects, 'disk'>,
  file: string,
  text: string,
  mode: number,
): Promise<void> {
  const content = Buffer.from(text);
  return place(disk, file, { kind: 'file', content, sha256: sha256(content), mode });
}
