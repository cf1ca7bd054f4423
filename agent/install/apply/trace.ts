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
import { restartNow } from './apply.js';
import type { ApplyEffects } from './effects.js';
import { failureOf } from './failures.js';
import { clear } from './place.js';
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

async function arm({ unit, dropIn, writer }: TracePlan, effects: TraceEffects): Promise<void> {
  const { disk } = effects;
  const write = async (file: string, text: string, mode: number): Promise<void> => {
    if ((await disk.inspect(path.dirname(file))).kind !== 'directory')
      await disk.makeDirectory(path.dirname(file), 0o755);
    await clear(disk, file);
    await disk.create(file, Buffer.from(text), mode);
  };
  await write(traceRecord, `${unit}\n`, 0o644);
  // Only root may create entries in the directory, so the name is this file, not a link.
  await write(traceFile, '', writer === null ? 0o622 : 0o600);
  if (writer !== null) await disk.own(traceFile, writer.uid, writer.gid);
  await write(dropIn.path, dropIn.content, 0o644);
  await runReload(effects);
}

export async function disarmTrace(unit: string, effects: TraceEffects): Promise<void> {
  await removeWithDirectory(effects, traceDropInPath(unit));
  await runReload(effects);
}

export async function forgetTrace({ disk }: Pick<TraceEffects, 'disk'>): Promise<void> {
  await clear(disk, traceFile);
  await removeWithDirectory({ disk }, traceRecord);
}

async function removeWithDirectory({ disk }: Pick<TraceEffects, 'disk'>, file: string): Promise<void> {
  await clear(disk, file);
  const directory = path.dirname(file);
  const present = await disk.inspect(directory);
  if (present.kind === 'directory' && present.empty) await disk.removeDirectory(directory);
}

/** Restarts a service that still runs with the tracer. False: nothing was left. Can be called again. */
export async function recoverTrace(effects: TraceEffects, emit: Emit): Promise<boolean> {
  const { disk } = effects;
  if ((await disk.inspect(traceDirectory)).kind !== 'directory') return false;
  const unit = (await disk.read(traceRecord))?.toString('utf8').trim() ?? '';
  // Without a record nothing but the directory was made.
  if (!/^(?!\.)[\w:.@\\-]+\.service$/.test(unit)) {
    await forgetTrace(effects);
    return false;
  }
  emit({ kind: 'phase', phase: 'recover', text: `undo the interrupted trace of ${unit}` });
  await disarmTrace(unit, effects);
  const mapped = await effects.mappedUnder(storeVersions);
  const runs = [...mapped].some((file) => path.basename(file) === tracerName);
  const restart = runs ? await restartNow(unit, effects) : null;
  await forgetTrace(effects);
  const failed = restart?.kind === 'failed';
  const outcome =
    restart === null ? '' : failed ? `, but: ${restart.message}` : `, and ${unit} started again`;
  const text = `a doctor --trace of ${unit} was interrupted; vgpu-agent removed what it left${outcome}`;
  note(emit, 'warning', 'trace-taken-back', text, failed ? `systemctl restart ${unit}` : null);
  return true;
}
