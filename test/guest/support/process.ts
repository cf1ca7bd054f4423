// Runs programs from tests: their output and their exit status.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

export interface Ran {
  /** The exit status; 128 + N if signal N ended it, as in a shell. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds until the program gets SIGTERM and the promise rejects; default: 180 s, which no test measures. */
  readonly timeoutMs?: number;
}

const SIGNAL_NUMBERS: Readonly<Partial<Record<NodeJS.Signals, number>>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGABRT: 6,
  SIGKILL: 9,
  SIGSEGV: 11,
  SIGTERM: 15,
};

/** The exit status of a child, as one number. */
export function exitStatus(code: number | null, signal: NodeJS.Signals | null): number {
  if (code !== null) return code;
  return 128 + (signal === null ? 0 : (SIGNAL_NUMBERS[signal] ?? 0));
}

/** Waits until a child has ended and its outputs are closed, also if it ended before the call. Rejects if it could not start. */
export function ended(child: ChildProcess): Promise<number> {
  const { exitCode, signalCode, stdio } = child;
  // Node emits 'close' only once, when the child has ended and its outputs are closed.
  if ((exitCode ?? signalCode) !== null && stdio.slice(1).every((output) => output?.closed ?? true))
    return Promise.resolve(exitStatus(exitCode, signalCode));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(exitStatus(code, signal)));
  });
}

/** Runs a program to its end. Rejects when it cannot be started or takes too long, never for its exit status. */
export async function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const spawnOptions: SpawnOptions = { stdio: ['pipe', 'pipe', 'pipe'] };
  if (options.env !== undefined) spawnOptions.env = { ...process.env, ...options.env };
  const child = spawn(command, args, spawnOptions);
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk));
  child.stdin?.on('error', () => undefined); // a program that reads no stdin may be gone already
  child.stdin?.end(options.stdin ?? '');

  const timeoutMs = options.timeoutMs ?? 180_000;
  let late = false;
  let lastResort: NodeJS.Timeout | undefined;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGTERM');
    lastResort = setTimeout(() => child.kill('SIGKILL'), 5_000);
  }, timeoutMs);
  try {
    const code = await ended(child);
    const ran = { code, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() };
    if (late) {
      const said = `stdout:\n${ran.stdout}\nstderr:\n${ran.stderr}`;
      throw new Error(`${[command, ...args].join(' ')}: not done after ${timeoutMs} ms\n${said}`);
    }
    return ran;
  } finally {
    clearTimeout(timer);
    clearTimeout(lastResort);
  }
}

/** As run, but an exit status other than 0 rejects with the program's output. */
export async function runOk(
  command: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<Ran> {
  const ran = await run(command, args, options);
  if (ran.code !== 0) {
    throw new Error(`${[command, ...args].join(' ')}: exit status ${ran.code}\n${ran.stdout}${ran.stderr}`);
  }
  return ran;
}

/**
 * Polls until `check` gives something other than undefined; rejects with `what` after `timeoutMs`. The
 * pauses grow, because a query of a guest costs more than most of the work that is waited for.
 */
export async function until<T>(
  what: string,
  timeoutMs: number,
  check: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  const begun = Date.now();
  for (;;) {
    const value = await check();
    if (value !== undefined) return value;
    const waited = Date.now() - begun;
    if (waited > timeoutMs) throw new Error(`${what}: not after ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, Math.min(400, Math.max(20, waited / 10))));
  }
}
