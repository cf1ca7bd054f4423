/** Runs a program in the sandbox of a unit file that systemd need not have loaded, as a transient service. */
import type { CommandResult, CommandRunner } from '../lib/run-command.js';
import { sectionLines } from '../lib/unit-file.js';

export interface SandboxedCommand {
  /** The text of the unit file. */
  readonly unit: string;
  readonly program: string;
  readonly args: readonly string[];
  /** systemd ends it after so long. */
  readonly limitMs: number;
}

/** Settings that start, restart and place the unit's own program; everything else of [Service] applies. */
const ofItsProgram =
  /^(?:Type|Environment|EnvironmentFile|Exec\w+|Restart\w*|Timeout\w+|\w+Directory(?:Mode)?|OOMPolicy)=/;
const overheadMs = 5_000;

export function sandboxArguments({ unit, program, args, limitMs }: SandboxedCommand): readonly string[] {
  const lines = sectionLines(unit, 'Service').filter((line) => !ofItsProgram.test(line));
  const properties = [...lines, `RuntimeMaxSec=${Math.ceil(limitMs / 1000)}`];
  return [
    ...['--quiet', '--pipe', '--wait', '--collect', '--service-type=exec'],
    ...properties.map((property) => `--property=${property}`),
    ...['--', program, ...args],
  ];
}

export function runInSandbox(runner: CommandRunner, command: SandboxedCommand): Promise<CommandResult> {
  return runner.run('systemd-run', sandboxArguments(command), { timeoutMs: command.limitMs + overheadMs });
}
