/**
 * The real build under test: vgpu-hostd started beside it, and a program that drives libcuda by lines.
 * `VGPU_TEST_SHIM=shim-sanitize` runs the same tests on the build that scripts/build-shim --sanitize makes.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ROOT } from './cuda/private_programs.js';

export const VARIANT = process.env['VGPU_TEST_SHIM'] ?? 'shim';
/**
 * Why a forked child of a program with a session cannot wait for a signal in this run. The session has a thread, and
 * TSan keeps signals back from a child of a process with threads.
 */
export const forksWithoutSignals = VARIANT.includes('thread')
  ? 'TSan keeps signals back from a forked child of a process with threads'
  : false;
export const SHIM = path.join(ROOT, 'build', VARIANT);
/** The build of the daemon, when it is another: a library with ThreadSanitizer against a daemon without. */
const DAEMON = path.join(ROOT, 'build', process.env['VGPU_TEST_DAEMON'] ?? VARIANT);
export const SHELL = path.join(SHIM, 'programs', 'driver_shell');

function there(file: string): string {
  if (!existsSync(file)) throw new Error(`${file} is not there: run scripts/build-shim`);
  return file;
}

export function builtFile(name: string): string {
  return there(path.join(SHIM, name));
}

/** A file of the host's side. */
function daemonFile(name: string): string {
  return there(path.resolve(DAEMON, name));
}

/** The file of a device profile: an H100 with a driver of this CUDA version. */
export function profileOfCuda(cudaVersion: string, directory: string): string {
  const shipped = readFileSync(path.join(ROOT, 'profiles/devices/h100-80gb.json'), 'utf8');
  const file = path.join(directory, `cuda-${cudaVersion}.json`);
  writeFileSync(file, shipped.replace(/"cudaVersion": "[^"]*"/, `"cudaVersion": "${cudaVersion}"`));
  return file;
}

const left = new Set<() => void>();
process.on('exit', () => {
  for (const end of left) end();
});
// A signal that ends a process does not tell 'exit'; a run that is interrupted leaves nothing either.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => process.exit(128 + os.constants.signals[signal]));

/** Runs `end` at the end of this process at the latest, however its tests end: `done` runs it now. */
export function atTheEnd(end: () => void): { readonly done: () => void } {
  left.add(end);
  return {
    done: () => {
      left.delete(end);
      end();
    },
  };
}

/**
 * Signals a process that this one did not start. A pid is given again, so its command line must have `mark` in it;
 * false: it is gone.
 */
export function signalOther(pid: number, mark: string, signal: NodeJS.Signals): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(mark) && process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** A new directory; its path is short, because the path of a unix socket may have 107 bytes. */
export function scratchDirectory(): { readonly path: string; remove(): void } {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'vgpu-'));
  return {
    path: directory,
    remove: atTheEnd(() => rmSync(directory, { recursive: true, force: true })).done,
  };
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Waits until `holds()` is true; throws with `what` after `limit` milliseconds. The default is less than the 30 s of a cut session. */
export async function until(what: string, holds: () => boolean, limit = 20_000): Promise<void> {
  const end = performance.now() + limit;
  while (!holds()) {
    if (performance.now() > end) throw new Error(`waited ${limit} ms for: ${what}`);
    await sleep(10);
  }
}

export interface Host {
  readonly pid: number;
  /** For VGPU_HOST. */
  readonly address: string;
  /** stderr so far. What a guest's answer tells may come before the line about it: see logged(). */
  log(): string;
  /** The match of `pattern` in the log, once it is there. Rejects with the log's end after 20 s without it. */
  logged(pattern: RegExp): Promise<RegExpExecArray>;
  signal(name: NodeJS.Signals): void;
  running(): boolean;
  /** Ends it and waits; the exit status. */
  stop(): Promise<number | null>;
  /** The host whose device it uses, when that is a host of these tests. */
  readonly behind?: Host;
}

const counted = (host: Host, pattern: RegExp): number => [...host.log().matchAll(pattern)].length;

/** Sessions that the host's log says there have been. */
export function sessionsBegun(host: Host): number {
  return counted(host, /, worker \d+$/gm);
}

/** Sessions that the host's log says are there. */
export function sessionsNow(host: Host): number {
  return sessionsBegun(host) - counted(host, /session \d+: ended(:.*)?$/gm);
}

/** Waits for the log line of the session that process `pid` began over a unix socket. Returns its worker. */
export async function workerOf(host: Host, pid: number): Promise<number> {
  return Number((await host.logged(new RegExp(`unix, pid ${pid}, .*, worker (\\d+)$`, 'm')))[1]);
}

/** True if neither this host nor the one behind it has a session: all resources are free. */
export function isIdle(host: Host): boolean {
  return sessionsNow(host) === 0 && (host.behind === undefined || isIdle(host.behind));
}

export interface HostOptions {
  readonly listen: string;
  /** VGPU_HOST when it differs from `listen`. */
  readonly address?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Default: software. */
  readonly device?: 'software' | 'cuda';
  /** The daemon, when it is not vgpu-hostd itself: a name in the build or a path. */
  readonly program?: string;
}

/**
 * To be called once at the start: gives the exit status when the process has ended and all it wrote was
 * read ('exit' alone comes before the last output). A worker that outlives its daemon keeps the pipe open,
 * and is waited for two seconds only.
 */
function endOf(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => {
    child.once('close', (code) => resolve(code));
    child.once('exit', (code) => setTimeout(() => resolve(code), 2000).unref());
  });
}

/**
 * Starts vgpu-hostd, --device software unless it says otherwise, and waits until it listens. PTX_COMPILE of the
 * environment is its --software-compile, unless `args` has another one.
 */
export async function startHost(options: HostOptions): Promise<Host> {
  const compile = process.env['PTX_COMPILE'];
  const child = spawn(
    daemonFile(options.program ?? 'vgpu-hostd'),
    [
      ...['--device', options.device ?? 'software', '--listen', options.listen],
      ...(compile === undefined || options.device === 'cuda' ? [] : ['--software-compile', compile]),
      // The driver of these tests lies in this tree and talks to sockets in root's directories; sanitizers report there.
      ...((options.device === 'cuda' || VARIANT !== 'shim') && process.getuid?.() === 0
        ? ['--user', 'root']
        : []),
      ...(options.args ?? []),
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...options.env } },
  );
  atTheEnd(() => child.kill('SIGKILL'));
  const end = endOf(child);
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk.toString();
  });
  const running = (): boolean => child.exitCode === null && child.signalCode === null;
  // Not "device 0" alone: what the daemon says about the device's compute mode, it says before it listens.
  await until('vgpu-hostd to listen', () => log.includes('device 0: ') || !running());
  if (!running() || child.pid === undefined) throw new Error(`vgpu-hostd ended: ${log}`);
  return {
    pid: child.pid,
    address: options.address ?? options.listen,
    log: () => log,
    logged: async (pattern) => {
      const end = performance.now() + 20_000;
      for (;;) {
        const found = pattern.exec(log);
        if (found !== null) return found;
        if (performance.now() > end)
          throw new Error(`no ${pattern} in vgpu-hostd's log: ${log.slice(-2000)}`);
        await sleep(10);
      }
    },
    running,
    signal: (name) => {
      child.kill(name);
    },
    stop: async () => {
      if (running()) {
        child.kill('SIGCONT');
        child.kill('SIGTERM');
      }
      return end;
    },
  };
}

/** A host that uses the devices of `behind`. Both stop together. */
export function inFrontOf(host: Host, behind: Host): Host {
  return {
    ...host,
    behind,
    stop: async () => {
      const status = await host.stop();
      await behind.stop();
      return status;
    },
  };
}

/**
 * A host with `--device cuda` whose driver is our own libcuda.so.1, which talks to a second host with the
 * software device: what --device cuda does runs for real where there is no GPU. `args` go to the second, `front` to
 * the first.
 */
export async function startChain(
  directory: string,
  args: readonly string[] = [],
  front: readonly string[] = [],
): Promise<Host> {
  const behind = await startHost({ listen: `unix:${directory}/behind`, args });
  try {
    const first = await startHost({
      device: 'cuda',
      listen: `unix:${directory}/s`,
      args: [
        ...['--cuda-library', daemonFile('libcuda.so.1'), '--nvml-library', daemonFile('libnvidia-ml.so.1')],
        ...front,
      ],
      env: { VGPU_HOST: behind.address },
    });
    return inFrontOf(first, behind);
  } catch (error) {
    await behind.stop();
    throw error;
  }
}

export interface Answer {
  readonly command: string;
  /** First number of the answer: the CUresult. */
  readonly result: number;
  readonly values: readonly string[];
  readonly milliseconds: number;
}

/** One process with libcuda.so.1 in it, told what to do line by line. */
export interface Shell {
  readonly pid: number;
  ask(line: string, limit?: number): Promise<Answer>;
  /** Lines that it wrote beside its answers (those of a forked child, for example). */
  extra(): readonly string[];
  stderr(): string;
  alive(): boolean;
  /** Closes its input and waits for it; the exit status, null if a signal ended it. */
  end(): Promise<number | null>;
  kill(): void;
}

export function startShell(env: Readonly<Record<string, string>>, program = 'driver_shell'): Shell {
  builtFile('libcuda.so.1');
  const { CUDA_VISIBLE_DEVICES: _visible, VGPU_HOST: _host, VGPU_LOG: _log, ...clean } = process.env;
  const child = spawn(builtFile(`programs/${program}`), [], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...clean, LD_LIBRARY_PATH: SHIM, ...env },
  });
  const end = endOf(child);
  let pending = '';
  let stderr = '';
  const extra: string[] = [];
  let waiting: { readonly command: string; readonly take: (line: string) => void } | undefined;
  child.stdout.on('data', (chunk: Buffer) => {
    pending += chunk.toString();
    const lines = pending.split('\n');
    pending = lines.pop() ?? '';
    for (const line of lines) {
      if (waiting !== undefined && line.startsWith(`${waiting.command} `)) waiting.take(line);
      else extra.push(line);
    }
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  child.stdin.on('error', () => undefined);
  const alive = (): boolean => child.exitCode === null && child.signalCode === null;
  return {
    pid: child.pid ?? 0,
    extra: () => extra,
    stderr: () => stderr,
    alive,
    ask: (line, limit = 15_000) => {
      const command = line.split(' ')[0] ?? '';
      const start = performance.now();
      return new Promise((resolve, reject) => {
        const give = (): void => {
          clearTimeout(timer);
          child.off('close', ended);
          waiting = undefined;
        };
        const ended = (): void => {
          give();
          reject(
            new Error(`the process ended (${child.exitCode ?? child.signalCode}) at "${line}": ${stderr}`),
          );
        };
        const timer = setTimeout(() => {
          give();
          reject(new Error(`no answer to "${line}" within ${limit} ms; said ${extra.join('|')} ${stderr}`));
        }, limit);
        child.once('close', ended);
        waiting = {
          command,
          take: (text) => {
            give();
            const [, result = '', ...values] = text.split(' ');
            resolve({ command, result: Number(result), values, milliseconds: performance.now() - start });
          },
        };
        child.stdin.write(`${line}\n`);
      });
    },
    end: () => {
      child.stdin.end();
      return end;
    },
    kill: () => {
      child.kill('SIGKILL');
    },
  };
}

/** Asks in order and gives the last answer; throws unless each result is 0. */
export async function askAll(shell: Shell, lines: readonly string[]): Promise<Answer> {
  let last: Answer | undefined;
  for (const line of lines) {
    last = await shell.ask(line);
    if (last.result !== 0) throw new Error(`"${line}" gave ${last.result}`);
  }
  if (last === undefined) throw new Error('nothing asked');
  return last;
}
