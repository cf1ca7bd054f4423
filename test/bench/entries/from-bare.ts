// From a bare guest to everything applied, and back; the consumer is not started in either.

import { existsSync, readFileSync } from 'node:fs';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { byHand, shim } from '../paths.js';
import { agent, runTimed } from '../run-timed.js';

export const fromBare: Entry = {
  name: 'from-bare',
  what: 'install --no-restart into a bare guest, and uninstall --no-restart',
  runs: 12,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  const uninstalled = { ours: [] as number[], byHand: [] as number[] };
  // Each side leaves the guest bare for the other, and so both ways are measured in one loop.
  const install = await inTurn('install, from bare to applied', runs, [
    {
      name: 'vgpu-agent install',
      unit: 'ms',
      once: () => {
        const { milliseconds } = agent('install', '--yes', '--no-restart', '--quiet');
        uninstalled.ours.push(agent('uninstall', '--yes', '--no-restart', '--quiet').milliseconds);
        return milliseconds;
      },
    },
    {
      name: 'the same steps, by hand',
      unit: 'ms',
      once: () => {
        const { milliseconds } = runTimed(byHand('install'), [shim]);
        uninstalled.byHand.push(runTimed(byHand('uninstall'), []).milliseconds);
        return milliseconds;
      },
    },
  ]);
  const uninstall: Comparison = {
    title: 'uninstall, from applied to bare',
    subject: {
      name: 'vgpu-agent uninstall',
      unit: 'ms',
      samples: uninstalled.ours.slice(1),
    },
    beside: [{ name: 'the inverse, by hand', unit: 'ms', samples: uninstalled.byHand.slice(1) }],
  };
  return existsSync(strace) ? [install, uninstall, await syncs()] : [install, uninstall];
}

const strace = '/usr/bin/strace';

/** A guest's disk is memory, where a sync costs nothing; on a real one each of these is a wait. */
function syncs(): Promise<Comparison> {
  return inTurn('files and directories synced by one install', 1, [
    {
      name: 'vgpu-agent install',
      unit: 'calls',
      once: () => {
        const count = syncsOf(['vgpu-agent', 'install', '--yes', '--no-restart', '--quiet']);
        agent('uninstall', '--yes', '--no-restart', '--quiet');
        return count;
      },
    },
    {
      name: 'the same steps, by hand',
      unit: 'calls',
      once: () => {
        const count = syncsOf([byHand('install'), shim]);
        runTimed(byHand('uninstall'), []);
        return count;
      },
    },
  ]);
}

function syncsOf(command: readonly string[]): number {
  const trace = '/tmp/bench-syncs';
  runTimed(strace, ['-f', '-qq', '-e', 'trace=fsync,fdatasync', '-o', trace, ...command]);
  return readFileSync(trace, 'utf8').match(/ f(?:data)?sync\(/g)?.length ?? 0;
}
