/**
 * A machine in a directory: real files, real update-alternatives on them, the real inspection and planning, and a
 * small model of what is not a file: systemd's view of the unit, the running consumer, the loader's cache.
 */

import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs';
import path from 'node:path';
import type { Event } from '../../../../agent/contracts/events.js';
import type { LoaderCacheEntry, MachineFacts, ProcessFacts } from '../../../../agent/contracts/facts.js';
import type { Plan, PlanOptions, ReadyPlan } from '../../../../agent/contracts/plan.js';
import type { DropIn, LoadedUnit } from '../../../../agent/contracts/unit.js';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { inspect } from '../../../../agent/guest/inspect.js';
import { apply, recover } from '../../../../agent/install/apply/apply.js';
import { nodeDisk } from '../../../../agent/install/apply/disk.js';
import type { Applied, ApplyEffects, Disk, Recovery } from '../../../../agent/install/apply/effects.js';
import { readManifest } from '../../../../agent/install/apply/manifest.js';
import { planInstall } from '../../../../agent/install/plan/install.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { ldconfig } from '../../../../agent/lib/paths.js';
import { type CommandRunner, spawnRunner } from '../../../../agent/lib/run-command.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { assignedVariables } from '../../../../agent/systemd/unit-environment.js';
import { buildElf, grow, ourNote, type Tree } from '../../guest/support.js';
import { openSandbox } from '../../verdict/support.js';
import {
  type FaultyDisk,
  faultyDisk,
  forgetfulDisk,
  linkingDisk,
  sha256Of,
  type Trouble,
} from './faulty-disk.js';

export const profile = loadProfile('ollama');
export const multiarch = '/usr/lib/x86_64-linux-gnu';
export const fragment = '/etc/systemd/system/ollama.service';
const dropInDirectory = '/etc/systemd/system/ollama.service.d';

/** Memory, where there is any: fsync on a disk would make the loops take minutes. */
export const scratch = existsSync('/dev/shm') ? '/dev/shm' : '/tmp';

/** Directories of machines to be removed: those that were disposed of, and all at the end of the process. */
const disposed: string[] = [];
const roots = new Set<string>();
process.once('exit', () => remove([...disposed, ...roots]));

/** rm(1), because rmSync of Node 20 takes many calls a file. */
function remove(directories: readonly string[]): void {
  if (directories.length === 0) return;
  const { status, stderr } = spawnSync('rm', ['-rf', '--', ...directories], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`rm -rf ${directories.join(' ')}: ${stderr}`);
}

/** A shim that is good enough for the plan: libraries with our note. `version` decides the content id. */
export function makeShim(version: string): string {
  const directory = mkdtempSync(path.join(scratch, 'vgpu-shim-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  const note = ourNote.replace('0.1.0', version);
  grow(directory, {
    'libcuda.so.1': buildElf({ soname: 'libcuda.so.1', note }),
    'libnvidia-ml.so.1': buildElf({ soname: 'libnvidia-ml.so.1', note }),
    'vgpu-probe': `#!/bin/sh\n# ${version}\n`,
  });
  return directory;
}

/** The running consumer: what it was started with. */
interface Consumer {
  readonly environment: ReadonlyMap<string, string>;
  readonly libcuda: string | null;
}

/** Shared by all worlds: it knows a file by its inode and times, and the shim is the same for all. */
const contents = new ContentCache();

export interface WorldOptions {
  /** Copies by cp(1) instead of hard links, ldconfig for real. */
  readonly realTools?: boolean;
  /** Where the machine's directory is made. */
  readonly directory?: string;
}

export class World {
  readonly root: string;
  readonly #options: WorldOptions;
  shim: string;
  events: Event[] = [];
  reloads = 0;
  restarts = 0;
  loadProblem: (file: string) => string | null = () => null;
  restartJob: () => string = () => 'done';
  /** systemd's view: the unit's files as they were at the last reload. */
  #unitFiles: readonly DropIn[] = [];
  #cache: readonly LoaderCacheEntry[] = [];
  #consumer: Consumer | null = null;

  constructor(shim: string, content: Tree | World, options: WorldOptions = {}) {
    this.root = mkdtempSync(path.join(options.directory ?? scratch, 'vgpu-world-'));
    roots.add(this.root);
    this.shim = shim;
    this.#options = options;
    if (content instanceof World) {
      chmodSync(this.root, lstatSync(content.root).mode & 0o7777);
      cloneEntries(content.root, this.root);
      this.#unitFiles = content.#unitFiles;
      this.#cache = content.#cache;
      this.#consumer = content.#consumer;
    } else {
      grow(this.root, content);
      this.#reload();
      this.#restart();
    }
  }

  /** The same machine once more, in another directory. Files are shared: they are never written in place. */
  clone(): World {
    return new World(this.shim, this, this.#options);
  }

  dispose(): void {
    roots.delete(this.root);
    disposed.push(this.root);
    // A directory of the test's own goes before the test unmounts it.
    const atOnce = this.#options.directory === undefined ? 50 : 1;
    if (disposed.length >= atOnce) remove(disposed.splice(0));
  }

  /** A disk with that trouble on this machine. */
  disk(trouble: Trouble = { kind: 'none' }): FaultyDisk {
    const real: Disk = nodeDisk(spawnRunner(), this.root);
    return faultyDisk(this.#options.realTools ? real : linkingDisk(real, this.root), trouble);
  }

  /** The same on a disk that keeps nothing without fsync; `lose` is the power failure, and the boot after it. */
  forgetfulDisk(trouble: Trouble): { readonly disk: FaultyDisk; lose(): void } {
    const forgetful = forgetfulDisk(linkingDisk(nodeDisk(spawnRunner(), this.root), this.root), this.root);
    return {
      disk: faultyDisk(forgetful, trouble),
      lose: () => {
        forgetful.lose();
        this.boot();
      },
    };
  }

  /** After its files have changed under it. */
  boot(): void {
    this.#reload();
    this.#restart();
  }

  effects(disk: FaultyDisk = this.disk()): ApplyEffects {
    const unlessDead = (): void => {
      if (disk.isDead()) throw new Error('the process is dead');
    };
    return {
      disk,
      runner: {
        run: async (file, args, options) => {
          unlessDead();
          return this.#run(file, args, options);
        },
      },
      manager: {
        reload: async () => {
          unlessDead();
          this.#reload();
          this.reloads += 1;
        },
        restart: async () => {
          unlessDead();
          this.restarts += 1;
          const job = this.restartJob();
          this.#restart();
          return job;
        },
        start: async () => 'skipped',
        stop: async () => 'skipped',
      },
      readSource: async (file) => readFileSync(file),
      mappedUnder: async (directory) => {
        const mapped = this.#consumer?.libcuda;
        return new Set(mapped?.startsWith(`${directory}/`) ? [mapped] : []);
      },
      loadProblem: async (_user, file) => this.loadProblem(file),
      agentVersion: '0.1.0',
      restartTimeoutMs: 1000,
    };
  }

  async facts(): Promise<MachineFacts> {
    const facts = await inspect(
      {
        root: this.root,
        runner: {
          run: (file, ...rest) =>
            (file === ldconfig && this.#options.realTools ? spawnRunner() : stubRunner).run(file, ...rest),
        },
        manager: { unit: async () => this.#unit(), processes: async () => [] },
        readManifest: () => readManifest(this.disk()),
        profileOf: () => null,
        confProblem: () => null,
        contents,
      },
      profile,
      { endpoint: null, environmentHost: undefined, shimDirectory: this.shim, ask: false },
    );
    const loader = this.#options.realTools ? facts.loader : { ...facts.loader, cache: this.#cache };
    return { ...facts, loader, processes: this.#processes() };
  }

  async planInstall(options: Partial<PlanOptions> = {}): Promise<Plan> {
    return planInstall(profile, await this.facts(), {
      endpoint: null,
      restart: true,
      force: false,
      ...options,
    });
  }

  /** The command: recover, look, plan, apply. */
  async install(options: Partial<PlanOptions> = {}, disk: FaultyDisk = this.disk()): Promise<Done> {
    const effects = this.effects(disk);
    const recovery = await recover(effects, this.emit);
    const plan = ready(await this.planInstall(options));
    return { plan, recovery, applied: await apply(plan, effects, this.emit) };
  }

  async uninstall(_options: Partial<PlanOptions> = {}, disk: FaultyDisk = this.disk()): Promise<Done> {
    const effects = this.effects(disk);
    const recovery = await recover(effects, this.emit);
    const plan = ready(planUninstall(profile, await this.facts(), { restart: true }));
    return { plan, recovery, applied: await apply(plan, effects, this.emit) };
  }

  readonly emit = (event: Event): void => {
    this.events.push(event);
  };

  /** Codes of the notes so far. */
  notes(): readonly string[] {
    return this.events.flatMap((event) => (event.kind === 'note' ? [event.code] : []));
  }

  /** Everything that can be seen of /etc, /usr, /opt and /var: the promise of uninstall is about this. */
  listing(): readonly string[] {
    return list(this.root);
  }

  text(file: string): string {
    return readFileSync(this.root + file, 'utf8');
  }

  /**
   * The faults for a consumer that would start now; empty when it starts as it should: everything that its
   * environment names is there, and a public library that leads anywhere leads to a whole one.
   */
  problemsOfStart(): readonly string[] {
    const root = new Root(this.root);
    const problems: string[] = [];
    for (const entry of (this.environment().get('LD_PRELOAD') ?? '').split(':')) {
      if (entry !== '' && root.resolve(entry).kind !== 'file') problems.push(`LD_PRELOAD names ${entry}`);
    }
    for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1']) {
      const content = root.readFile(`${multiarch}/${name}`, 1 << 20);
      if (content !== null && content.subarray(0, 4).toString('latin1') !== '\x7fELF') {
        problems.push(`${name} is not whole`);
      }
      if (
        existsSync(`${this.root}/opt/vgpu/current`) &&
        root.resolve(`/opt/vgpu/current/${name}`).kind !== 'file'
      ) {
        problems.push(`the store in use lacks ${name}`);
      }
    }
    return problems;
  }

  resolves(file: string): string {
    const resolution = new Root(this.root).resolve(file);
    return resolution.kind === 'file' ? resolution.realPath : resolution.kind;
  }

  /** Environment= in force. */
  environment(): ReadonlyMap<string, string> {
    return assignedVariables(this.#unitFiles.map((file) => file.content));
  }

  consumer(): Consumer | null {
    return this.#consumer;
  }

  run(file: string, args: readonly string[]): string {
    const result = spawnSync(file, args.map(String), { encoding: 'utf8' });
    if (result.status !== 0) throw new Error(`${file} ${args.join(' ')}: ${result.stderr}`);
    return result.stdout;
  }

  alternatives(...args: readonly string[]): string {
    return this.run('update-alternatives', [
      '--root',
      this.root,
      '--log',
      '/alternatives.log',
      '--quiet',
      ...args,
    ]);
  }

  async #run(
    file: string,
    args: readonly string[],
    options?: Parameters<CommandRunner['run']>[2],
  ): ReturnType<CommandRunner['run']> {
    if (file === 'update-alternatives') {
      const inside = ['--root', this.root, '--log', '/alternatives.log', '--quiet', ...args];
      return spawnRunner().run(file, inside, options);
    }
    if (file === ldconfig) {
      if (this.#options.realTools) return spawnRunner().run(file, ['-r', this.root, ...args], options);
      this.#cache = existsSync(`${this.root}/etc/ld.so.conf.d/000-vgpu.conf`)
        ? ['libcuda.so.1', 'libnvidia-ml.so.1'].map((soname) => ({
            soname,
            path: `/opt/vgpu/current/${soname}`,
            flags: 'libc6,x86-64',
          }))
        : [];
      return nothingSaid;
    }
    throw new Error(`nobody should run ${file}`);
  }

  #reload(): void {
    const names = existsSync(this.root + dropInDirectory)
      ? readdirSync(this.root + dropInDirectory)
          .filter((name) => name.endsWith('.conf') && !name.startsWith('.'))
          .sort()
      : [];
    this.#unitFiles = [fragment, ...names.map((name) => `${dropInDirectory}/${name}`)].map((file) => ({
      path: file,
      content: this.text(file),
    }));
  }

  #restart(): void {
    const environment = this.environment();
    const preload = (environment.get('LD_PRELOAD') ?? '')
      .split(':')
      .find((one) => one.endsWith('libcuda.so.1'));
    const resolution = new Root(this.root).resolve(preload ?? '/none');
    this.#consumer = { environment, libcuda: resolution.kind === 'file' ? resolution.realPath : null };
  }

  #unit(): LoadedUnit {
    const [main, ...dropIns] = this.#unitFiles;
    return {
      ...quietUnit,
      dropIns,
      fragmentContent: main?.content ?? '',
      environment: Object.fromEntries(this.environment()),
    };
  }

  #processes(): readonly ProcessFacts[] {
    const consumer = this.#consumer;
    if (consumer === null) return [];
    const mapped = consumer.libcuda;
    return [
      {
        pid: quietUnit.mainPid,
        parent: 1,
        name: 'ollama',
        startTicks: '1',
        executable: '/usr/local/bin/ollama',
        libraries:
          mapped === null
            ? []
            : [{ path: mapped, deleted: !existsSync(this.root + mapped), vendor: 'vgpu' as const }],
        loaderEnvironment: Object.fromEntries(consumer.environment),
      },
    ];
  }
}

export interface Done {
  readonly plan: ReadyPlan;
  readonly recovery: Recovery;
  readonly applied: Applied;
}

export function ready(plan: Plan): ReadyPlan {
  if (plan.kind === 'ready') return plan;
  throw new Error(`refused: ${plan.refusals.map((refusal) => refusal.message).join('; ')}`);
}

const nothingSaid = {
  code: 0,
  signal: null,
  stdout: Buffer.alloc(0),
  stderr: Buffer.alloc(0),
  timedOut: false,
};

/** getent is all that an inspection of a tree starts. */
const stubRunner: CommandRunner = {
  run: async (_file, [database]) => {
    const answer = {
      passwd: 'ollama:x:998:998::/:/bin/false',
      initgroups: 'ollama 998',
      group: 'ollama:x:998:',
    };
    const line = answer[database as keyof typeof answer] ?? '';
    return { ...nothingSaid, stdout: Buffer.from(`${line}\n`) };
  },
};

export const quietUnit: LoadedUnit = {
  kind: 'loaded',
  name: 'ollama.service',
  fragment,
  dropIns: [],
  activeState: 'active',
  subState: 'running',
  result: 'success',
  restarts: 0,
  mainPid: 4242,
  invocationId: '0123456789abcdef0123456789abcdef',
  needDaemonReload: false,
  environment: {},
  environmentFiles: [],
  execStart: ['/usr/local/bin/ollama', 'serve'],
  user: 'ollama',
  group: 'ollama',
  dynamicUser: false,
  standardOutput: 'journal',
  standardError: 'journal',
  sandbox: openSandbox,
};

function cloneEntries(from: string, to: string): void {
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [`${from}/${entry.name}`, `${to}/${entry.name}`];
    if (entry.isDirectory()) {
      mkdirSync(target, { mode: lstatSync(source).mode & 0o7777 });
      cloneEntries(source, target);
    }
    // An undo log is appended to in place: a hard link would change it in both trees. Its times do not matter.
    else if (entry.name.endsWith('.jsonl')) copyFileSync(source, target);
    else linkSync(source, target);
  }
}

/** Rebuilt from the other files by their tools, in whatever order and at whatever time. */
const derived = new Set(['/etc/ld.so.cache', '/etc/ld.so.cache~', '/var/cache', '/alternatives.log']);

function list(root: string, directory = ''): string[] {
  return readdirSync(root + directory)
    .sort()
    .flatMap((name) => {
      const file = `${directory}/${name}`;
      if (derived.has(file)) return [];
      const stats = lstatSync(root + file, { bigint: true });
      const mode = (stats.mode & 0o7777n).toString(8);
      const owner = `${stats.uid}:${stats.gid}`;
      if (stats.isDirectory()) return [`${file}/ ${mode} ${owner}`, ...list(root, file)];
      if (stats.isSymbolicLink()) {
        const target = readlinkSync(root + file);
        // update-alternatives makes its links again.
        const time =
          file.startsWith('/etc/alternatives/') || target.startsWith('/etc/alternatives/')
            ? ''
            : stats.mtimeNs;
        return [`${file} -> ${target} ${owner} ${time}`];
      }
      // dpkg's record is written again with the same text.
      const time = file.startsWith('/var/lib/dpkg/') ? '' : stats.mtimeNs;
      return [`${file} ${mode} ${owner} ${stats.size} ${time} ${sha256Of(readFileSync(root + file))}`];
    });
}
