/** The HostWorkplace of the running system: every effect is the real one. */
import { machine } from 'node:os';
import { ContentCache } from '../../guest/files/content.js';
import { Root } from '../../guest/files/root.js';
import { askDaemon, presentDevice, readServing, type ServingEffects } from '../../guest/host/inspect.js';
import { agentVersion } from '../../lib/agent-version.js';
import { guestState, hostState } from '../../lib/paths.js';
import { spawnRunner } from '../../lib/run-command.js';
import { openManager } from '../../systemd/bus.js';
import { apply, recover } from '../apply/apply.js';
import { nodeDisk } from '../apply/disk.js';
import { acquireLock } from '../apply/lock.js';
import { readManifest } from '../apply/manifest.js';
import { systemEffects } from '../apply/system-effects.js';
import type { HostWorkplace } from './serving-host.js';

const jobTimeoutMs = 100_000;
const lockWaitMs = 10_000;

/** Throws a VgpuError (`refused`) where there is no systemd. */
export async function openHost(): Promise<{ readonly work: HostWorkplace; close(): void }> {
  const manager = await openManager();
  const runner = spawnRunner();
  const disk = nodeDisk(runner, '', hostState);
  const guestDisk = nodeDisk(runner, '', guestState);
  const effects = {
    ...systemEffects({ runner, manager, agentVersion: agentVersion(), restartTimeoutMs: jobTimeoutMs }),
    disk,
  };
  // A new view each time: it remembers directories, and a plan is made again after the lock was waited for.
  const serving = (): ServingEffects => ({
    root: new Root('/'),
    contents: new ContentCache(),
    runner,
    manager,
    architecture: machine(),
    readManifest: () => readManifest(disk),
  });
  const work: HostWorkplace = {
    device: () => presentDevice(serving()),
    look: (request, device) => readServing(serving(), request, device),
    askDaemon: () => askDaemon(runner),
    recover: (emit) => recover(effects, emit),
    apply: (plan, options, emit) => apply(plan, effects, emit, options),
    locked: async (command, task, { waitMs = lockWaitMs, signal } = {}) => {
      const lock = await acquireLock({ command, waitMs, ...(signal === undefined ? {} : { signal }) });
      let done = false;
      try {
        const result = await task();
        done = true;
        return result;
      } finally {
        // The lock's file is shared with a guest's install: it goes with the last of both.
        const kinds = [await disk.inspect(hostState.manifest), await guestDisk.inspect(guestState.manifest)];
        const over = command === 'uninstall' && kinds.every(({ kind }) => kind === 'absent');
        await lock.release({ remove: done && over });
      }
    },
  };
  return { work, close: () => manager.close() };
}
