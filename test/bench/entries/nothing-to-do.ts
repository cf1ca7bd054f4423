// `install` where everything is in place: what every repetition, and every look of a service, costs.

import { copyFileSync, mkdirSync } from 'node:fs';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { byHand, shim } from '../paths.js';
import { agent, runTimed } from '../run-timed.js';

const written = [
  '/etc/ld.so.conf.d/000-vgpu.conf',
  '/etc/vgpu/guest.conf',
  '/etc/systemd/system/ollama.service.d/50-vgpu.conf',
];

export const nothingToDo: Entry = {
  name: 'nothing-to-do',
  what: 'install --no-restart where everything is in place: look, plan, stop',
  runs: 15,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  // With its verdict: exit status 0 says that the consumer really is on the (simulated) GPU.
  agent('install', '--yes', '--quiet');
  mkdirSync('/root/bench', { recursive: true });
  for (const path of written) copyFileSync(path, `/root/bench/${path.split('/').at(-1)}`);
  try {
    return [
      await inTurn('install with nothing to do', runs, [
        { name: 'vgpu-agent install', unit: 'ms', once: again },
        { name: 'node -e 0', unit: 'ms', once: () => runTimed('node', ['-e', '0']).milliseconds },
        {
          name: 'the same checks by hand',
          unit: 'ms',
          once: () => runTimed(byHand('check'), [shim]).milliseconds,
        },
      ]),
    ];
  } finally {
    agent('uninstall', '--yes', '--quiet');
  }
}

/** `--no-restart` leaves the verdict out, and only that: nothing would be restarted anyway. */
function again(): number {
  const { milliseconds, stdout } = agent('install', '--yes', '--no-restart', '--quiet');
  if (stdout.trim() !== 'nothing to do') throw new Error(`install found something to do:\n${stdout}`);
  return milliseconds;
}
