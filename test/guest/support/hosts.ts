// The host beside a guest: the real vgpu-hostd with its software device, or one that misbehaves.
// All of them run outside the guest, serve a unix socket in a directory that the guest sees as
// /run/vgpu, and die with the test process.

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ended, run, until } from './process.js';
import { repository } from './repository.js';

export interface HostdOptions {
  /** A name of profiles/devices or a file; vgpu-hostd's own default unless given. */
  readonly profile?: string;
  /** Further arguments. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export type Fault =
  /** No process listens, and there is no socket. */
  | { readonly mode: 'absent' }
  /** A socket without a listener: ECONNREFUSED. */
  | { readonly mode: 'refused' }
  /** Accepts connections, never answers. */
  | { readonly mode: 'silent' }
  /** Answers with meaningless bytes. */
  | { readonly mode: 'garbage' }
  /** The real host, but every answer comes `seconds` late. */
  | { readonly mode: 'slow'; readonly seconds: number }
  /** The real host, but it exits after `bytes` bytes of answers on one connection. */
  | { readonly mode: 'dies'; readonly bytes: number }
  /** The real host, but silent after `bytes` bytes of answers on each connection. */
  | { readonly mode: 'stalls'; readonly bytes: number }
  /** The real host, but it greets with another version of the protocol. */
  | { readonly mode: 'speaks'; readonly version: number };

export const HOSTD = join(repository, 'build/shim/vgpu-hostd');

/** Why no real host can be started here, or false; for the `skip` option of a test. */
export function whyNoHostd(): string | false {
  return existsSync(HOSTD) ? false : 'build/shim/vgpu-hostd is not built (npm run build)';
}

/** A process that serves the socket; `log` is its whole output. */
class Served {
  readonly child: ChildProcess;
  readonly end: Promise<number>;
  log = '';

  constructor(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.child = spawn('setpriv', ['--pdeathsig', 'KILL', command, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    this.child.stdout?.on('data', (chunk: Buffer) => {
      this.log += chunk.toString();
    });
    this.child.stderr?.on('data', (chunk: Buffer) => {
      this.log += chunk.toString();
    });
    this.end = ended(this.child);
    this.end.catch(() => undefined); // told by the code that waits for the socket
  }

  async listening(socket: string): Promise<void> {
    const name = this.child.spawnargs.slice(3).join(' ');
    await until(`${name}: listening`, startsWithinMs, () => {
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        throw new Error(`${name} ended with ${this.child.exitCode ?? this.child.signalCode}:\n${this.log}`);
      }
      // The socket file exists before the host listens.
      return existsSync(socket) && this.log.includes('listening on') ? true : undefined;
    });
  }

  async stop(signal: NodeJS.Signals): Promise<number> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    return this.end;
  }
}

/** Limit in milliseconds until a host listens: enough for a busy machine, because no test measures it. */
const startsWithinMs = 60_000;

/** The host beside one guest, in the directory that the guest sees as /run/vgpu. */
export class Hosts {
  readonly #directory: string;
  #running: Served[] = [];

  readonly #name: string;

  constructor(directory: string, name = 'hostd.sock') {
    this.#directory = directory;
    this.#name = name;
  }

  /** Another host beside the same guest, with a socket of its own. */
  beside(name: string): Hosts {
    return new Hosts(this.#directory, name);
  }

  /** The socket as seen from outside; inside the guest it is /run/vgpu/hostd.sock. */
  get socket(): string {
    return join(this.#directory, this.#name);
  }

  /** The output of all present hosts. */
  get log(): string {
    return this.#running.map((served) => served.log).join('');
  }

  /** The PID of the host that serves the socket, outside the guest. */
  get pid(): number | undefined {
    return this.#running.at(-1)?.child.pid;
  }

  /** The PIDs of the workers that serve sessions now. */
  get workers(): readonly string[] {
    const { pid } = this;
    if (pid === undefined) return [];
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .split(' ')
      .filter((one) => one !== '');
  }

  /** Starts the real vgpu-hostd; a host that runs already is stopped first. */
  async start(options: HostdOptions = {}): Promise<void> {
    await this.stop();
    await this.#hostd(this.socket, options);
  }

  /** Starts a host that misbehaves; one that runs already is stopped first. */
  async startFaulty(fault: Fault, options: HostdOptions = {}): Promise<void> {
    await this.stop();
    if (fault.mode === 'absent') return;
    if (fault.mode === 'refused') {
      const served = await this.#fault(['--mode', 'silent']);
      await served.stop('SIGKILL'); // leaves its socket behind
      this.#running = [];
      return;
    }
    const args = ['--mode', fault.mode];
    if (fault.mode === 'slow') args.push('--seconds', String(fault.seconds));
    if (fault.mode === 'dies' || fault.mode === 'stalls') args.push('--bytes', String(fault.bytes));
    if (fault.mode === 'speaks') args.push('--version', String(fault.version));
    if (fault.mode !== 'silent' && fault.mode !== 'garbage') {
      const upstream = join(this.#directory, 'upstream.sock');
      await this.#hostd(upstream, options);
      args.push('--upstream', upstream);
    }
    await this.#fault(args);
  }

  /** SIGSTOP to the daemon and to the workers that serve its sessions; `thaw` continues them. */
  async freeze(): Promise<void> {
    await this.#signalAll('STOP');
  }

  async thaw(): Promise<void> {
    await this.#signalAll('CONT');
  }

  async #signalAll(signal: 'STOP' | 'CONT'): Promise<void> {
    const { pid } = this;
    if (pid === undefined) throw new Error('no host runs');
    // The daemon first, so that it starts no further worker.
    await run('bash', [
      '-c',
      `kill -${signal} ${pid}; for child in $(pgrep -P ${pid}); do kill -${signal} $child; done`,
    ]);
  }

  /** Ends all hosts: SIGTERM is a stop, SIGKILL a crash. After a stop the sockets are removed, too. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const running = this.#running.reverse();
    this.#running = [];
    for (const served of running) await served.stop(signal);
    if (signal === 'SIGTERM') {
      for (const name of [this.#name, 'upstream.sock']) rmSync(join(this.#directory, name), { force: true });
    }
  }

  async #hostd(socket: string, options: HostdOptions): Promise<void> {
    rmSync(socket, { force: true });
    const profile = options.profile === undefined ? [] : ['--profile', options.profile];
    const args = ['--device', 'software', '--listen', `unix:${socket}`, ...profile, ...(options.args ?? [])];
    const served = new Served(HOSTD, args, options.env);
    this.#running.push(served);
    await served.listening(socket);
  }

  async #fault(args: readonly string[]): Promise<Served> {
    rmSync(this.socket, { force: true });
    const program = join(repository, 'dist/test/guest/support/fault-host.js');
    const served = new Served(process.execPath, [program, '--listen', this.socket, ...args]);
    this.#running.push(served);
    await until('fault-host: listening', startsWithinMs, () =>
      served.log.includes('listening') ? true : undefined,
    );
    return served;
  }
}
