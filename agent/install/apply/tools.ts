/** ldconfig and daemon-reload, as steps. */
import { VgpuError } from '../../lib/errors.js';
import { checkpoint } from './checkpoint.js';
import type { ApplyEffects } from './effects.js';

const ldconfigTimeoutMs = 120_000;
const cache = '/etc/ld.so.cache';
/** The name under which ldconfig writes the new cache; it leaves it there when the disk is full. */
const unfinishedCache = '/etc/ld.so.cache~';

/**
 * Rebuilds the loader cache. Without `links` ldconfig does not set SONAME links (-X), so that it changes nothing that
 * the plan does not list.
 */
export async function runLdconfig(
  effects: Pick<ApplyEffects, 'runner' | 'disk'>,
  links: boolean,
): Promise<void> {
  const args = links ? [] : ['-X'];
  const result = await effects.runner.run('/sbin/ldconfig', args, { timeoutMs: ldconfigTimeoutMs });
  if (result.code !== 0) {
    await clearUnfinished(effects);
    const why = result.timedOut
      ? `no end after ${ldconfigTimeoutMs / 1000} s`
      : result.stderr.toString().trim();
    throw new VgpuError(`ldconfig failed: ${why}`, {
      kind: 'failed',
      operation: 'rebuild the loader cache',
      path: cache,
      remedy: 'run ldconfig by hand to see why, then run the same command again',
    });
  }
  checkpoint('ldconfig');
}

export async function runReload(effects: Pick<ApplyEffects, 'manager'>): Promise<void> {
  await effects.manager.reload();
  checkpoint('daemon-reload');
}

async function clearUnfinished({ disk }: Pick<ApplyEffects, 'disk'>): Promise<void> {
  try {
    if ((await disk.inspect(unfinishedCache)).kind === 'file') await disk.unlink(unfinishedCache);
  } catch {
    // Report why ldconfig failed; if the file cannot be removed either, that has the same cause.
  }
}
