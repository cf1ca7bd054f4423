/** The inputs and results of every command. Commands print nothing themselves. */

import { Command, InvalidArgumentError } from 'commander';
import type { Plan, ReadyPlan } from '../../contracts/plan.js';
import type { Mode, Verdict } from '../../contracts/verdict.js';
import { hostsText, parseHosts, splitHosts } from '../../guest/vgpu-host/endpoint.js';
import type { RestartOutcome } from '../../install/apply/effects.js';
import type { OpenWorkplace } from '../../install/pipeline/open-workplace.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import type { CommandEnd } from '../../lib/hand-over.js';
import type { Style } from '../../lib/text.js';
import { planText } from '../output/plan-text.js';
import type { Talk } from '../output/terminal.js';
import type { Ask } from '../wizard/questions.js';

export interface CommandContext {
  readonly talk: Talk;
  readonly signal: AbortSignal;
  readonly isRoot: boolean;
  readonly ask: ((question: string) => Promise<boolean>) | null;
  readonly dialogue: Ask | null;
  readonly stdin: NodeJS.ReadStream;
  readonly say: (text: string) => void;
  readonly show: (text: (style: Style) => string) => void;
  readonly json: boolean;
  readonly verbose: boolean;
}

export interface Outcome {
  readonly exitCode: ExitCode;
  /** A command was run for the user: we exit with its status, and `exitCode` does not count. */
  readonly ended?: CommandEnd;
  /** For `--json`, as described by docs/json/<command>.schema.json. Null: the command that was run printed all. */
  readonly document: object | null;
  /** For a person, without a newline at its end. Empty: nothing to print. */
  readonly text: (style: Style) => string;
}

/**
 * Runs a command's work and reports it. With `stoppable` the first signal only aborts `context.signal`, for
 * work that must take back or close what it began; without, a signal ends the process.
 */
export type Run = (
  work: (context: CommandContext) => Promise<Outcome>,
  options?: { readonly stoppable?: boolean },
) => Promise<void>;

/**
 * Opens this machine for the task, and closes the bus after it. `look`: the task changes nothing and does without the bus
 * if it cannot be reached.
 */
export async function withWorkplace<T>(
  task: (work: OpenWorkplace['work']) => Promise<T>,
  look?: CommandContext['talk'],
): Promise<T> {
  // Loaded here, because help and --version need none of it.
  const { openWorkplace } = await import('../../install/pipeline/open-workplace.js');
  const { openManagerToLook } = await import('../../systemd/bus.js');
  const onDirect = ({ message, remedy }: VgpuError): void =>
    look?.emit({
      kind: 'note',
      level: 'warning',
      code: 'bus-away',
      text: `${message}; continuing without it: vgpu-agent.service is not asked, and the probe does not run`,
      remedy: remedy ?? null,
    });
  const { work, close } = openWorkplace(
    look === undefined ? {} : { connect: () => openManagerToLook(onDirect) },
  );
  try {
    return await task(work);
  } finally {
    close();
  }
}

/** The document of install, setup, uninstall and host; docs/json has the fields of each. */
export interface ChangeDocument {
  readonly schema: 1;
  readonly command: string;
  readonly outcome: 'dry-run' | 'declined' | 'done' | 'rolled-back';
  readonly plan: Plan;
  readonly changed: number;
  readonly restart: RestartOutcome;
  readonly verdict: Verdict | null;
}

export function changeDocument(
  command: string,
  outcome: ChangeDocument['outcome'],
  plan: Plan,
  changed: number,
  more: object,
): object {
  return { schema: 1, command, outcome, plan, changed, ...more };
}

export function dryRun(command: string, plan: Plan, { verbose }: CommandContext, more: object): Outcome {
  return {
    exitCode: ExitCode.done,
    document: changeDocument(command, 'dry-run', plan, 0, more),
    text: (style) => `${planText(plan, style, { full: verbose })}\ndry run: nothing was changed`,
  };
}

export function declined(command: string, plan: Plan, more: object, also = ''): Outcome {
  return {
    exitCode: ExitCode.interrupted,
    document: changeDocument(command, 'declined', plan, 0, more),
    text: () => `nothing was changed${also}`,
  };
}

export function approval(
  context: CommandContext,
  command: string,
  yes: boolean,
  question: (plan: ReadyPlan) => string,
  look?: string,
): { readonly asks: boolean; readonly approve: (plan: ReadyPlan) => Promise<boolean> } {
  const approve = async (plan: ReadyPlan): Promise<boolean> => {
    context.talk.emit({ kind: 'plan', plan });
    return approved(context, command, yes, question(plan), look);
  };
  return { asks: !yes, approve };
}

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

export function requireRoot(context: CommandContext, command: string): void {
  if (context.isRoot) return;
  throw new VgpuError(`${command} must run as root`, {
    kind: 'refused',
    operation: command,
    remedy: `sudo vgpu-agent ${command}`,
  });
}

/** Without `--yes` and without a terminal: a usage error that names `look`, which changes nothing. */
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

export function requireSomeoneToAsk(
  context: CommandContext,
  command: string,
  look: string,
): asserts context is CommandContext & { readonly ask: NonNullable<CommandContext['ask']> } {
  if (context.ask !== null) return;
  throw new VgpuError(`${command} asks for confirmation, and there is no terminal to ask on`, {
    kind: 'usage',
    operation: command,
    remedy: `vgpu-agent ${command} --yes to continue without asking, or ${look}, which changes nothing`,
  });
}

// Values of flags, checked while they are parsed: a bad one is a usage error that quotes it.

/** A day: no consumer starts more slowly, and a typing error must not cause an endless wait. */
const longestSeconds = 86_400;

export function seconds(value: string): number {
  const number = /^\d*\.?\d+$/.test(value) ? Number(value) : 0;
  if (number <= 0 || number > longestSeconds) {
    throw new InvalidArgumentError(
      `It must be a number of seconds, more than 0 and at most ${longestSeconds}.`,
    );
  }
  return number;
}

export function endpoint(value: string, before: readonly string[] = []): readonly string[] {
  const addresses = [...before, ...splitHosts(value).filter((one) => !before.includes(one))];
  const parsed = parseHosts(hostsText(addresses));
  if (parsed.kind === 'bad') {
    throw new InvalidArgumentError(
      `${capital(parsed.reason)}. Write unix:/PATH, vsock:CID:PORT or tcp:ADDRESS:PORT.`,
    );
  }
  return addresses;
}

export function namedHosts(addresses: readonly string[] | undefined): string | null {
  return addresses === undefined ? null : hostsText(addresses);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const otherUnit = /\.(socket|device|mount|automount|swap|target|path|timer|slice|scope)$/;

/** The name of a service, as typed after `--unit`; `.service` may be left out. */
function unitName(value: string): string {
  const other = otherUnit.exec(value)?.[1];
  if (other !== undefined) {
    throw new InvalidArgumentError(
      `It is a ${other}, and only a service can have the GPU: name the service that it starts, such as ${value.replace(otherUnit, '.service')}.`,
    );
  }
  const name = value.endsWith('.service') ? value : `${value}.service`;
  if (/^[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\-]+)?\.service$/.test(name) && name.length <= 255) return name;
  throw new InvalidArgumentError(
    /@\.service$/.test(name)
      ? 'It is a template: name an instance of it, such as ollama@1.service.'
      : 'It must be the name of a systemd service, such as ollama.service or ollama@1.service.',
  );
}

const profileHelp = 'the profile of the service, by name (default: the installed one, else ollama)';
const unitHelp = 'the systemd service, for instance one of several (default: the one that the profile names)';

export function serviceCommand(name: string, description: string): Command {
  return new Command(name)
    .description(description)
    .option('-p, --profile <name>', profileHelp)
    .option('-u, --unit <service>', unitHelp, unitName);
}

export const hostHelp =
  'address of vgpu-hostd: unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT; for several, repeat the option or use commas';

export const unreachableHelp =
  'continue even if the host does not answer (to build an image, or before the host is set up)';

export const computeHelp =
  'also run test kernels on the device and check every result; the verdict is GPU only if all are correct';

export function examples(...lines: readonly (readonly [command: string, what: string])[]): string {
  return `\nExamples:\n${lines.map(([command, what]) => `  ${command}\n      ${what}`).join('\n')}`;
}
