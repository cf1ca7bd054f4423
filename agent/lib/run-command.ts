/** Runs a program: never a shell, always with a time-out, without input, output as bytes. */
import { spawn } from 'node:child_process';
import { errnoOf, VgpuError } from './errors.js';

export interface CommandOptions {
  /** Default: this process's with `LC_ALL=C.UTF-8`, without LD_PRELOAD and LD_LIBRARY_PATH. */
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds until SIGTERM, and SIGKILL one second later. Default 30 000. */
  readonly timeoutMs?: number;
  readonly cwd?: string;
}

export interface CommandResult {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly timedOut: boolean;
}

export interface CommandRunner {
  /**
   * Resolves with whatever the program did, a non-zero status and a time-out included. Rejects with a
   * VgpuError (`failed`, operation `run FILE`) only when it could not be started or wrote more than
   * `maxOutputBytes`.
   */
  run(file: string, args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
}

/** More than any tool that we call writes (`ldconfig -p` of a full desktop: 0.5 MB). */
const maxOutputBytes = 16 * 1024 * 1024;
const defaultTimeoutMs = 30_000;
const killAfterMs = 1_000;
/** After the program ended, a grandchild may hold its pipes open; what it says is not awaited longer. */
const drainMs = 200;

/** The runner that spawns for real. `base` is the environment that `env`'s default is made from. */
export function spawnRunner(base: Readonly<Record<string, string | undefined>> = process.env): CommandRunner {
  return { run: (file, args, options = {}) => runOnce(file, args, options, base) };
}

/** Where root looks for tools, whatever PATH the user had (`su` keeps it): no directory that other users can write. */
const rootPath = '/usr/sbin:/usr/bin:/sbin:/bin';

/** `base` fit for a tool whose output is parsed: C.UTF-8, no loader variables, and for root a PATH of root's own. */
export function toolEnvironment(
  base: Readonly<Record<string, string | undefined>>,
  isRoot = process.geteuid?.() === 0,
): Record<string, string> {
  const kept = Object.entries(base).flatMap(([name, value]) =>
    value === undefined || name === 'LD_PRELOAD' || name === 'LD_LIBRARY_PATH' ? [] : [[name, value]],
  );
  return { ...Object.fromEntries(kept), LC_ALL: 'C.UTF-8', ...(isRoot ? { PATH: rootPath } : {}) };
}

function runOnce(
  file: string,
  args: readonly string[],
  options: CommandOptions,
  base: Readonly<Record<string, string | undefined>>,
): Promise<CommandResult> {
  return new Promise((resolve, reject) => {
    const chunks: { stdout: Buffer[]; stderr: Buffer[] } = { stdout: [], stderr: [] };
    let received = 0;
    let timedOut = false;
    let settled = false;
    const timers: NodeJS.Timeout[] = [];

    const child = spawn(file, [...args], {
      env: options.env === undefined ? toolEnvironment(base) : { ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });

    if (child.pid === undefined) {
      // Without descriptors for its pipes it has no streams either.
      child.on('error', (cause) => reject(cannotStart(file, cause)));
      return;
    }
    // A kill that fails is reported here; the exit event still comes then.
    child.on('error', () => {});

    const settle = (end: () => void): void => {
      if (settled) return;
      settled = true;
      for (const timer of timers) clearTimeout(timer);
      child.stdout.destroy();
      child.stderr.destroy();
      end();
    };
    const finish = (code: number | null, signal: NodeJS.Signals | null): void =>
      settle(() =>
        resolve({
          code,
          signal,
          stdout: Buffer.concat(chunks.stdout),
          stderr: Buffer.concat(chunks.stderr),
          timedOut,
        }),
      );

    for (const name of ['stdout', 'stderr'] as const) {
      child[name].on('data', (chunk: Buffer) => {
        received += chunk.length;
        if (received <= maxOutputBytes) {
          chunks[name].push(chunk);
          return;
        }
        child.kill('SIGKILL');
        settle(() => reject(tooMuchOutput(file)));
      });
      child[name].on('error', () => {});
    }
    child.on('close', finish);
    child.on('exit', (code, signal) => {
      // After a pause of this process the timer runs before the output that arrived meanwhile is read.
      timers.push(setTimeout(() => setImmediate(() => finish(code, signal)), drainMs));
    });
    timers.push(
      setTimeout(() => {
        timedOut = true;
        child.kill('SIGTERM');
        timers.push(setTimeout(() => child.kill('SIGKILL'), killAfterMs));
      }, options.timeoutMs ?? defaultTimeoutMs),
    );
  });
}

function cannotStart(file: string, cause: Error): VgpuError {
  const code = errnoOf(cause);
  const why = code === 'ENOENT' ? 'no such program' : (code ?? cause.message);
  return new VgpuError(`cannot run ${JSON.stringify(file)}: ${why}`, {
    kind: 'failed',
    operation: `run ${file}`,
    path: file,
    remedy: code === 'ENOENT' ? `install the package that provides ${file}` : `check ${file}`,
    cause,
  });
}

function tooMuchOutput(file: string): VgpuError {
  return new VgpuError(`${file} wrote more than ${maxOutputBytes} bytes`, {
    kind: 'failed',
    operation: `run ${file}`,
    path: file,
  });
}
