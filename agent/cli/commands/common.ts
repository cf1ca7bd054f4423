/** Common preparations of several commands, and the exit code of a verdict. */
import type { Mode } from '../../contracts/verdict.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import type { CommandContext } from './types.js';

export function exitCodeForMode(mode: Mode): ExitCode {
  switch (mode) {
    case 'gpu':
      return ExitCode.done;
    case 'cpu':
      return ExitCode.cpu;
    case 'undetermined':
      return ExitCode.undetermined;
    case 'degraded':
      return ExitCode.degraded;
  }
}

/** Throws a VgpuError (`refused`) that says how to become root. */
export function requireRoot(context: CommandContext, command: string): void {
  if (context.isRoot) return;
  throw new VgpuError(`${command} must run as root`, {
    kind: 'refused',
    operation: command,
    remedy: `sudo vgpu-agent ${command}`,
  });
}

/**
 * Asks before something is changed. Without `--yes` and without a person to ask this is a usage error that
 * says what to pass; `look` is the command that only shows what would be changed.
 */
export async function approved(
  context: CommandContext,
  command: string,
  yes: boolean,
  question: string,
  look = `vgpu-agent ${command} --dry-run`,
): Promise<boolean> {
  if (yes) return true;
  requireSomeoneToAsk(context, command, look);
  return context.ask(question);
}

/** The same usage error before the work whose result the question is about. */
export function requireSomeoneToAsk(
  context: CommandContext,
  command: string,
  look: string,
): asserts context is CommandContext & { readonly ask: NonNullable<CommandContext['ask']> } {
  if (context.ask !== null) return;
  throw new VgpuError(`${command} asks before it goes on, and there is no terminal to ask on`, {
    kind: 'usage',
    operation: command,
    remedy: `vgpu-agent ${command} --yes to go on, or ${look} to look first`,
  });
}
