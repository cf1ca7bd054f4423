/** `vgpu-agent logs`: the entries of the agent and of the consumer, in one order. */
import { spawn } from 'node:child_process';
import { type Command, InvalidArgumentError } from 'commander';
import { type Choice, chooseAll } from '../../install/pipeline/choose.js';
import type { Workplace } from '../../install/pipeline/workplace.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { agentUnit } from '../../lib/paths.js';
import { toolEnvironment } from '../../lib/run-command.js';
import { systemJournalReadable } from '../../systemd/journal-reader.js';
import { logNamespace } from '../../systemd/unit-facts.js';
import {
  type CommandContext,
  examples,
  type Outcome,
  type Run,
  serviceCommand,
  withWorkplace,
} from './common.js';

interface LogsOptions extends Choice {
  readonly follow?: true;
  readonly lines: string;
  readonly since?: string;
  readonly explain?: true;
}

export function logsCommand(run: Run): Command {
  return (
    serviceCommand('logs', 'show the journal of the agent and of its services together')
      .option('-f, --follow', 'keep showing new entries')
      .option('-n, --lines <number>', 'this many of the last entries, or all', lines, '100')
      .option('--since <time>', 'entries since this time, in the format of journalctl(1)')
      .option('-x, --explain', 'with the explanations of the catalog')
      .addHelpText(
        'after',
        `\nWith --json each entry is a line, as journalctl --output=json prints it.\n${examples(
          ['vgpu-agent logs --follow', 'what happens now'],
          ['vgpu-agent logs --since today --explain', 'what happened, and what it means'],
        )}`,
      )
      // A journalctl that follows has to end with its command, however that ends.
      .action((options: LogsOptions) =>
        run((context) => logs(options, context), { stoppable: options.follow === true }),
      )
  );
}

function lines(value: string): string {
  if (value === 'all' || /^\d{1,9}$/.test(value)) return value;
  throw new InvalidArgumentError('It must be a number of entries, or all.');
}

async function logs(options: LogsOptions, context: CommandContext): Promise<Outcome> {
  if (!systemJournalReadable())
    throw new VgpuError('this user may not read the system journal', {
      kind: 'refused',
      operation: 'show the journal',
      remedy: 'sudo vgpu-agent logs, or become a member of the group systemd-journal',
    });
  const { units, namespaces } = await withWorkplace((work) => placesOf(work, options));
  const args = [
    '--no-pager',
    '--quiet',
    ...(namespaces ? ['--namespace=*'] : []),
    `--lines=${options.lines}`,
    `--output=${context.json ? 'json' : 'short-iso'}`,
    ...(options.since === undefined ? [] : [`--since=${options.since}`]),
    ...(options.follow === true ? ['--follow'] : []),
    ...(options.explain === true ? ['--catalog'] : []),
    // Ours: of the service, and of the commands, which run outside of it.
    'SYSLOG_IDENTIFIER=vgpu-agent',
    ...[agentUnit, ...units].flatMap((name) => ['+', `_SYSTEMD_UNIT=${name}`, '+', '_PID=1', `UNIT=${name}`]),
  ];
  const code = await new Promise<number>((resolve, reject) => {
    const child = spawn('journalctl', args, {
      env: toolEnvironment(process.env),
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const stop = (): boolean => child.kill('SIGTERM');
    if (context.signal.aborted) stop();
    context.signal.addEventListener('abort', stop, { once: true });
    child.on('error', (cause) => reject(cannotRun(cause)));
    child.on('close', (status) => resolve(status ?? 0));
  });
  if (code !== 0 && !context.signal.aborted) throw journalctlFailed(code, options.since);
  return { exitCode: ExitCode.done, document: null, text: () => '' };
}

async function placesOf(
  work: Pick<Workplace, 'manifest' | 'profile' | 'profiles' | 'unit'>,
  options: LogsOptions,
): Promise<{ readonly units: readonly string[]; readonly namespaces: boolean }> {
  const units = (await chooseAll(work, options)).map(({ unit }) => unit);
  // Without the bus the system's own journal is shown.
  const asked = units.map((unit) => work.unit(unit).then(logNamespace, () => ''));
  return { units, namespaces: (await Promise.all(asked)).some((namespace) => namespace !== '') };
}

/** journalctl has printed its reason to the same standard error. */
function journalctlFailed(code: number, since: string | undefined): VgpuError {
  const asked = since === undefined ? '' : ` (--since ${JSON.stringify(since)})`;
  return new VgpuError(`journalctl ended with status ${code}${asked}; its own message is above`, {
    kind: 'failed',
    operation: 'show the journal',
    remedy:
      since === undefined
        ? 'correct what its message names'
        : 'give --since a time of systemd.time(7), such as today, -1h or "2026-11-23 12:00"',
  });
}

function cannotRun(cause: Error): VgpuError {
  return new VgpuError(`cannot run journalctl: ${cause.message}`, {
    kind: 'failed',
    operation: 'show the journal',
    remedy: 'install the package systemd, which has journalctl',
    cause,
  });
}
