/**
 * Hands terminal, standard streams and signals to a command and waits for its end. Not exec(2), which Node 20 does not
 * have: the command is a child, and everything that we are sent goes on to it.
 */
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { errnoOf, VgpuError } from './errors.js';

export type CommandEnd =
  | { readonly kind: 'exited'; readonly code: number }
  | { readonly kind: 'signalled'; readonly signal: NodeJS.Signals };

/** The terminal sends these to the command too: it is in the same foreground process group. */
const fromTerminal = ['SIGINT', 'SIGQUIT'] as const;
const passedOn = ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGCONT', 'SIGWINCH'] as const;

/** Throws a VgpuError (`usage`) for a command that cannot be started. `environment` is the child's whole one. */
export function handOver(
  command: readonly [file: string, ...args: string[]],
  environment: Readonly<Record<string, string | undefined>>,
  self: NodeJS.Process = process,
): Promise<CommandEnd> {
  const [file, ...args] = command;
  return new Promise((resolve, reject) => {
    const onTerminal = self.stdin.isTTY || self.stdout.isTTY || self.stderr.isTTY;
    const pass = (signal: NodeJS.Signals): void => {
      child.kill(signal);
    };
    const handlers = [
      ...passedOn.map((signal) => [signal, (): void => pass(signal)] as const),
      ...fromTerminal.map((signal) => [signal, (): void => (onTerminal ? undefined : pass(signal))] as const),
    ];
    // Before the command begins: it may cause a SIGUSR1 very early, which would start Node's debugger.
    for (const [signal, handler] of handlers) self.on(signal, handler);
    const done = (): void => {
      for (const [signal, handler] of handlers) self.off(signal, handler);
    };
    const child = start(file, args, environment, done);
    child.on('error', (cause) => {
      done();
      reject(cannotStart(file, cause));
    });
    child.on('exit', (code, signal) => {
      done();
      resolve(signal === null ? { kind: 'exited', code: code ?? 0 } : { kind: 'signalled', signal });
    });
  });
}

/** A command whose name or arguments cannot even be tried throws at once. */
function start(
  file: string,
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
  undo: () => void,
): ReturnType<typeof spawn> {
  try {
    return spawn(file, [...args], { env: { ...environment }, stdio: 'inherit' });
  } catch (cause) {
    undo();
    throw cannotStart(file, cause instanceof Error ? cause : new Error(String(cause)));
  }
}

/** After these a caller looks at how we ended: a shell stops its script at SIGINT, systemd takes SIGTERM as success. */
const raised: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];
/** A signal that is blocked or ignored does not end us. */
const raiseMs = 200;

/** Ends this process by the signal that ended the command, or returns the status to exit with, as a shell tells it. */
export async function endAs(end: CommandEnd, self: NodeJS.Process = process): Promise<number> {
  if (end.kind === 'exited') return end.code;
  if (raised.includes(end.signal)) {
    self.kill(self.pid, end.signal);
    await new Promise((resolve) => setTimeout(resolve, raiseMs));
  }
  return 128 + constants.signals[end.signal];
}

function cannotStart(file: string, cause: Error): VgpuError {
  const code = errnoOf(cause);
  const why =
    code === 'ENOENT' || file === ''
      ? 'there is no such program'
      : code === 'EACCES'
        ? 'permission denied'
        : (code ?? cause.message);
  return new VgpuError(`cannot run ${JSON.stringify(file)}: ${why}`, {
    kind: 'usage',
    operation: 'run a command with the GPU',
    path: file,
    remedy: 'name a program that is in PATH, or its path: vgpu-agent run -- COMMAND',
    cause,
  });
}
