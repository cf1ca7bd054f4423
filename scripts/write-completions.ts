/** Writes what shells need to complete the words of vgpu-agent, made of the commands as they are, beside the bundle. */
import path from 'node:path';
import { Command } from 'commander';
import { outputFileSync } from 'fs-extra/esm';
import { describeProgram } from '../agent/cli/commands/command-line.js';
import { completionText, shells } from '../agent/cli/commands/completion.js';
import { packageRoot } from '../agent/lib/paths.js';

const directory = path.join(packageRoot(), 'dist', 'bundle', 'completions');
const program = new Command('vgpu-agent');
await describeProgram(program, async () => {}, { write: () => {} });
for (const shell of shells) {
  outputFileSync(path.join(directory, `vgpu-agent.${shell}`), completionText(shell, program));
}
