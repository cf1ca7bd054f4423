/** `vgpu-agent logs`: the entries of the agent and of the consumer, in one order. */
import { spawn } from 'node:child_process';
import { Command, InvalidArgumentError } from 'commander';
import { ExitCode, VgpuError } from '../errors.js';
import { agentUnit } from '../paths.js';
import { chosenProfile } from './common.js';
import { examples, profileHelp } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

interface LogsOptions {
  readonly profile?: string;
  readonly follow?: true;
  readonly lines: string;
  readonly since?: string;
  readonly explain?: true;
}

export function logsCommand(run: Run): Command {
  return new Command('logs')
    .description('show the journal of the agent and of the service that it looks after, together')
    .option('-p, --profile <name>', profileHelp)
    .option('-f, --follow', 'go on showing what comes')
    .option('-n, --lines <number>', 'the last so many entries, or all', lines, '100')
    .option('--since <time>', 'entries since then, as journalctl(1) takes it')
    .option('-x, --explain', 'with the explanations of the catalog')
    .addHelpText(
      'after',
      `\nWith --json each entry is a line, as journalctl --output=json prints it.\n${examples(
        ['vgpu-agent logs --follow', 'what happens now'],
        ['vgpu-agent logs --since today --explain', 'what happened, and what it means'],
      )}`,
    )
    .action((options: LogsOptions) => run((context) => logs(options, context)));
}

function lines(value: string): string {
  if (value === 'all' || /^\d{1,9}$/.test(value)) return value;
  throw new InvalidArgumentError('It must be a number of entries, or all.');
}

async function logs(options: LogsOptions, context: CommandContext): Promise<Outcome> {
  const { openWorkplace } = await import('../pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  const { unit } = await chosenProfile(work, options.profile).finally(close);
  const args = [
    '--no-pager',
    '--quiet',
    `--lines=${options.lines}`,
    `--output=${context.json ? 'json' : 'short-iso'}`,
    ...(options.since === undefined ? [] : [`--since=${options.since}`]),
    ...(options.follow === true ? ['--follow'] : []),
    ...(options.explain === true ? ['--catalog'] : []),
    // Ours: of the service, and of the commands, which run outside of it.
    'SYSLOG_IDENTIFIER=vgpu-agent',
    ...[agentUnit, unit].flatMap((name) => ['+', `_SYSTEMD_UNIT=${name}`, '+', '_PID=1', `UNIT=${name}`]),
  ];
  const code = await new Promise<number>((resolve, reject) => {
    const child = spawn('journalctl', args, { stdio: ['ignore', 'inherit', 'inherit'] });
    child.on('error', (cause) => reject(cannotRun(cause)));
    child.on('close', (status) => resolve(status ?? 0));
  });
  if (code !== 0) throw cannotRun(new Error(`journalctl ended with ${code}`));
  return { exitCode: ExitCode.done, document: null, text: () => '' };
}

function cannotRun(cause: Error): VgpuError {
  return new VgpuError(`cannot show the journal: ${cause.message}`, {
    kind: 'failed',
    operation: 'show the journal',
    remedy: 'see `systemctl status systemd-journald`',
    cause,
  });
}
