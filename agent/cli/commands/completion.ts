import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Argument, Command } from 'commander';
import { ExitCode } from '../../lib/errors.js';
import { packageRoot } from '../../lib/paths.js';
import { examples, type Run } from './common.js';

export const shells = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof shells)[number];

export function completionFile(shell: Shell): string {
  return path.join(packageRoot(), 'dist', 'bundle', 'completions', `vgpu-agent.${shell}`);
}

export function completionCommand(run: Run): Command {
  return new Command('completion')
    .description('print the completion script for a shell (install --service installs it)')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(shells))
    .addHelpText(
      'after',
      examples([
        'vgpu-agent completion bash >~/.local/share/bash-completion/completions/vgpu-agent',
        'for yourself',
      ]),
    )
    .action((shell: Shell) =>
      run(async () => {
        const text = readFileSync(completionFile(shell), 'utf8');
        return {
          exitCode: ExitCode.done,
          document: { schema: 1, command: 'completion', shell, text },
          text: () => text.trimEnd(),
        };
      }),
    );
}
