// The start-up cost of every command: Node, the bundle, and the reading of what is installed.

import { type Comparison, type Entry, inTurn } from '../measure.js';
import { agent, runTimed } from '../run-timed.js';

export const commandStart: Entry = {
  name: 'command-start',
  what: 'vgpu-agent version and --version: the start of a command',
  runs: 25,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  const bare = (): number => runTimed('node', ['-e', '0']).milliseconds;
  const comparisons: Comparison[] = [];
  for (const word of ['version', '--version']) {
    const once = (): number => agent(word).milliseconds;
    comparisons.push(
      await inTurn(`vgpu-agent ${word}`, runs, [
        { name: `vgpu-agent ${word}`, unit: 'ms', once },
        { name: 'node -e 0', unit: 'ms', once: bare },
      ]),
    );
  }
  return comparisons;
}
