// A throwaway systemd guest for tests (scripts/guest). It dies with the test process, so a
// crashed run leaves none behind. How to write a test with it: test/guest/README.md.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { appendFile, chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Consumer, type ConsumerOptions, consumerArguments, ollamaServer } from './consumer.js';
import { Hosts } from './hosts.js';
import { type JournalEntry, journalctl, parseJournal } from './journal.js';
import { type Layers, Listing } from './listing.js';
import { ended, type Ran, type RunOptions, run, runOk, until } from './process.js';
import { repository } from './repository.js';

export interface GuestOptions {
  /** The root filesystem to read; this machine's own unless given. */
  readonly root?: string;
  /** The Node that runs vgpu-agent inside; the root's own, else this machine's, unless given. */
  readonly node?: string;
  /** SRC:DST, writable. */
  readonly binds?: readonly string[];
  /** SRC:DST, read-only. */
  readonly readOnlyBinds?: readonly string[];
  /** Limit of what the guest may write, as mount's tmpfs size: "64m". */
  readonly size?: string;
  /** A bash script that gets the root as its argument before each boot. */
  readonly prep?: string;
}

/** A test, hook or suite: anything with the `after` of node:test. */
export interface Afterwards {
  after(fn: () => Promise<void>): void;
}

export interface GuestRunOptions extends RunOptions {
  /** Runs as this user of the guest; root unless given. */
  readonly user?: string;
}

const SCRIPT = join(repository, 'scripts/guest');

const ENTER = readFileSync(join(repository, 'scripts/lib/enter.sh'), 'utf8');
const NAMESPACES = /^G_NAMESPACES=\((.+)\)$/m.exec(ENTER)?.[1]?.split(' ');
// Without them nsenter would run the tests' commands on this machine.
if (NAMESPACES === undefined) throw new Error('scripts/lib/enter.sh does not set G_NAMESPACES');
const ENTERING = [...NAMESPACES, '--', 'bash', '--norc', '-c', `${ENTER}\nstart_inside "$@"`, 'bash'];

/** The environment of ENTER's shell, which must not warn about a locale that another root lacks. */
const outside = { LC_ALL: 'C' };

/** The default directories of `listing`: all that an install may change. */
export const WATCHED = ['/etc', '/usr', '/opt', '/var/lib'] as const;

let counter = 0; // names of one process's guests; the PID keeps those of parallel processes apart

/** Why no guest can be booted here, or false; for the `skip` option of a test. */
export function whyNoGuest(): string | false {
  if (process.getuid?.() !== 0) return 'a guest needs root';
  if (!existsSync('/lib/systemd/systemd')) return 'systemd is not installed';
  return false;
}

export class Guest {
  readonly name: string;
  /** Where scripts/guest keeps this guest's state, outside. */
  readonly state: string;
  /** The host beside the guest. */
  readonly hosts: Hosts;
  readonly #supervisor: ChildProcess;
  readonly #lower: string;
  readonly #ended: Promise<number>;
  #console = '';

  private constructor(name: string, supervisor: ChildProcess, lower: string) {
    this.name = name;
    this.state = join('/run/vgpu-guests', name);
    this.hosts = new Hosts(join(this.state, 'vgpu'));
    this.#supervisor = supervisor;
    this.#lower = lower;
    for (const stream of [supervisor.stdout, supervisor.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.#console += chunk.toString();
      });
    }
    this.#ended = ended(supervisor);
    this.#ended.catch(() => undefined); // told by start, which waits for the guest to boot
  }

  /** Boots a guest and waits until it is up (0.3 s); it is stopped after `t` if given. */
  static async start(options: GuestOptions = {}, t?: Afterwards): Promise<Guest> {
    const name = `test-${process.pid}-${++counter}`;
    const args = ['fg', name];
    if (options.root !== undefined) args.push('--root', options.root);
    if (options.node !== undefined) args.push('--node', options.node);
    if (options.size !== undefined) args.push('--size', options.size);
    if (options.prep !== undefined) args.push('--prep', options.prep);
    for (const bind of options.binds ?? []) args.push('--bind', bind);
    for (const bind of options.readOnlyBinds ?? []) args.push('--bind-ro', bind);
    const ollama = ollamaServer();
    if (ollama !== undefined) args.push('--bind-ro', `${ollama}:/run/vgpu-test-ollama`);
    const supervisor = spawn(SCRIPT, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const guest = new Guest(name, supervisor, options.root ?? '/');
    t?.after(() => guest.stop());
    try {
      await until('the guest starts', 60_000, () => {
        if (supervisor.exitCode !== null)
          throw new Error(`scripts/guest ${args.join(' ')}: ${guest.#console}`);
        return existsSync(join(guest.state, 'supervisor')) ? true : undefined;
      });
      await runOk(SCRIPT, ['wait', name]);
    } catch (error) {
      await guest.stop();
      throw error;
    }
    return guest;
  }

  /** The outer PID of the guest's PID 1; another one after a reboot. */
  async pid(): Promise<number> {
    return Number(await readFile(join(this.state, 'pid'), 'utf8'));
  }

  /** Runs a program in the guest as root. */
  run(...command: readonly [string, ...string[]]): Promise<Ran> {
    return this.runWith({}, ...command);
  }

  /** Runs a program in the guest; `env` adds to the guest's plain environment. */
  async runWith(options: GuestRunOptions, ...command: readonly [string, ...string[]]): Promise<Ran> {
    const { env, user, ...rest } = options;
    return run('nsenter', this.#inside(command, env, user), { ...rest, env: outside });
  }

  /** As run; a status other than 0 rejects with the program's output. Returns stdout. */
  async must(...command: readonly [string, ...string[]]): Promise<string> {
    return (await runOk('nsenter', this.#inside(command), { env: outside })).stdout;
  }

  /** Runs the installed `vgpu-agent`. */
  agent(...args: readonly string[]): Promise<Ran> {
    return this.run('vgpu-agent', ...args);
  }

  /** Starts a program in the guest for the caller. SIGTERM and SIGKILL to the child reach the program. */
  spawn(
    command: readonly [string, ...string[]],
    options: SpawnOptions = {},
    env?: Readonly<Record<string, string>>,
  ): ChildProcess {
    return spawn('nsenter', this.#inside(command, env), { env: { ...process.env, ...outside }, ...options });
  }

  #inside(command: readonly string[], env: Readonly<Record<string, string>> = {}, user?: string): string[] {
    // Read each time, because a reboot changes it.
    const pid = readFileSync(join(this.state, 'pid'), 'utf8').trim();
    const settings = Object.entries(env).map(([key, value]) => `${key}=${value}`);
    // `runuser` may change variables, so those of the test come after it.
    const first = user === undefined ? settings : ['runuser', '-u', user, '--', 'env', ...settings];
    return ['-t', pid, ...ENTERING, ...first, ...command];
  }

  /**
   * A path of the guest as seen from outside. Absolute links in the path would lead outside: use this only for paths
   * without links, and `run` for others.
   */
  async path(inside: string): Promise<string> {
    return join(`/proc/${await this.pid()}/root`, inside);
  }

  async read(inside: string): Promise<string> {
    return readFile(await this.path(inside), 'utf8');
  }

  /** Writes a file, and makes missing directories. */
  async write(inside: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
    const path = await this.path(inside);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
    await chmod(path, mode);
  }

  async exists(inside: string): Promise<boolean> {
    return (
      (await this.run('test', '-e', inside)).code === 0 || (await this.run('test', '-L', inside)).code === 0
    );
  }

  /** The directory of this guest's overlay, from outside. */
  async layers(): Promise<Layers> {
    const [supervisor] = (await readFile(join(this.state, 'supervisor'), 'utf8')).split(' ');
    return {
      merged: `/proc/${await this.pid()}/root`,
      upper: join(`/proc/${supervisor}/root`, this.state, 'mnt/upper'),
      lower: this.#lower,
    };
  }

  /** The state of `paths` and all below, to compare with a later one. */
  async listing(paths: readonly string[] = WATCHED): Promise<Listing> {
    return Listing.take(await this.layers(), paths);
  }

  /** Installs the consumer (with VGPU_TEST_OLLAMA always that Ollama) and starts it unless `start` is false. */
  async installConsumer(design: Consumer, options: ConsumerOptions = {}): Promise<void> {
    await this.must(
      'bash',
      join(repository, 'scripts/lib/install-consumer'),
      ...consumerArguments(design, options),
    );
  }

  /** A unit's journal, oldest first; of one start only if `invocation` is given. */
  async journal(unit: string, invocation?: string): Promise<JournalEntry[]> {
    const match = invocation === undefined ? ['-u', unit] : [`_SYSTEMD_INVOCATION_ID=${invocation}`];
    return parseJournal(await journalctl(this, '--no-pager', '-q', '-a', '-o', 'json', ...match));
  }

  /** The ID of a unit's present (or last) start; empty if it never started. */
  async invocationId(unit: string): Promise<string> {
    return this.property(unit, 'InvocationID');
  }

  /** One property of a unit, as systemctl prints it. */
  async property(unit: string, name: string): Promise<string> {
    return (await this.must('systemctl', 'show', '--value', '-p', name, unit)).trim();
  }

  /** Reboots the guest and waits until it is up again. Hosts beside it keep running. */
  async reboot(): Promise<void> {
    const before = await this.pid();
    await this.#recordUsage();
    await this.run('systemctl', 'reboot');
    await until('the guest reboots', 60_000, async () => {
      const now = await this.pid().catch(() => before);
      return now === before ? undefined : now;
    });
    await runOk(SCRIPT, ['wait', this.name]);
  }

  /**
   * For scripts/testing: records the processor time of the guest's services, which are not children of the test's process.
   * Processes that `run` starts are its children and are counted already.
   */
  async #recordUsage(): Promise<void> {
    const target = process.env['VGPU_TEST_USAGE'];
    if (target === undefined) return;
    let services = 0;
    for (const cgroup of ['init.scope', 'system.slice']) {
      const stat = await this.read(`/sys/fs/cgroup/${cgroup}/cpu.stat`).catch(() => '');
      services += Number(/^usage_usec (\d+)/.exec(stat)?.[1] ?? 0) / 1e6;
    }
    await appendFile(target, `${process.argv[1]}\t${services}\n`);
  }

  /** Ends the guest, and whatever runs beside it, at once. Safe to call again. */
  async stop(): Promise<void> {
    await this.#recordUsage();
    await this.hosts.stop('SIGKILL');
    await runOk(SCRIPT, ['kill', this.name]);
    if (this.#supervisor.pid !== undefined) await this.#ended;
  }
}
