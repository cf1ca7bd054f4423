/**
 * A virtual machine for tests and the benchmark: qemu and Debian's cloud kernel (scripts/fetch-packages vm vm-vsock),
 * whose CID 2 port 14833 is a vgpu-hostd here. Nothing is installed, nothing needs root. VGPU_TEST_KVM=1: with KVM.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, startHost, until } from '../shim_host.js';
import { makeVmMemory } from '../support/vm_memory.js';
import { makeInitrd } from './initrd.js';
import { content, ended, listens, start, startQemu, tellMonitor, VM, VSOCK_DEVICE } from './qemu.js';

const VSOCK = path.join(ROOT, '.cache/roots/vm-vsock/usr/bin/vhost-device-vsock');
const CID = 33;
export const BOOT_LIMIT = 240_000;

/** Why there can be no machine here; false: there can. */
export const whyNoMachine: string | false =
  (!existsSync(path.join(VM, '.complete')) || !existsSync(VSOCK)) &&
  'no virtual machine: scripts/fetch-packages vm vm-vsock';

export interface MachineOptions {
  /** Memory that VMs share with the host, MiB: a power of two. */
  readonly shared?: number;
  /** Memory of a VM, MiB. */
  readonly memory?: number;
  /** A disk with a Debian whose systemd takes over: an image of ext4. Commands are not run then. */
  readonly disk?: string;
  /** The host's daemon, when it is another than this build's. */
  readonly daemon?: string;
  /** How many seconds the host waits for a guest whose connection broke. */
  readonly reconnect?: number;
  /** Further programs, and files that they read (.json), for /bin: paths here. */
  readonly programs?: readonly string[];
}

type Settings = MachineOptions & Required<Omit<MachineOptions, 'disk' | 'daemon'>>;

/** A VM that runs. */
export interface Running {
  /** The output of the console so far. */
  console(): string;
  /** Waits until the console shows it; rejects with all that it showed when the VM ends before, or after the limit. */
  shows(pattern: RegExp, limitMs?: number): Promise<RegExpExecArray>;
  /** SIGKILL: pulls the plug. SIGSTOP, SIGCONT: freezes it. */
  signal(name: NodeJS.Signals): void;
  /** A command of qemu's monitor, such as `system_reset`, and its answer. */
  monitor(command: string): Promise<string>;
  /** Until it has powered off or was killed. */
  ended(): Promise<void>;
}

/** The vsock of one VM, its shared memory, and the VM itself, which can be booted again and again. */
export interface Vm {
  /** The file that is its shared memory. */
  readonly memory: string;
  /** Boots and runs the commands one after the other; then it powers off. `shared`: with the memory of the host. */
  start(commands: readonly string[], shared?: boolean): Promise<Running>;
  /** Ends its proxy of vsock, takes the device out, saves the VM to a file, and ends it. */
  save(machine: Running, file: string): Promise<void>;
  /** Continues the one that was saved, and gives it a vsock device, with another proxy. */
  restore(file: string, shared?: boolean): Promise<Running>;
}

/** A host and VMs beside each other. */
export interface Machines {
  readonly host: Host;
  readonly vms: readonly Vm[];
  /** A host with other settings for the same VMs: for one that was ended. */
  startHostAgain(): Promise<Host>;
  stop(): Promise<void>;
}

/** A host, and one VM. */
export interface Machine {
  readonly host: Host;
  /** The file that is its shared memory. */
  readonly memory: string;
  /** Boots, runs the commands, powers off; what the console showed. `shared`: with the memory of the host. */
  boot(commands: readonly string[], shared?: boolean, limitMs?: number): Promise<string>;
  stop(): Promise<void>;
}

async function monitorSays(
  monitor: (command: string) => Promise<string>,
  command: string,
  expected: (answer: string) => boolean,
): Promise<void> {
  let answer = '';
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((go) => setTimeout(go, 100))) {
    answer = await monitor(command);
    if (expected(answer)) return;
  }
  assert.fail(`${command}: ${answer}`);
}

/** One that was started in `directory`. */
export function running(directory: string, qemu: ChildProcess): Running {
  const shown = (): string => content(`${directory}/console`).replaceAll('\r', '');
  // Of a run of ticks the first and the last: a thousand of them hide what a reader needs.
  const squeezed = (): string => shown().replace(/^(tick \d+\n)(?:tick \d+\n)+(?=tick \d+\n)/gm, '$1[...]\n');
  const everything = (): string =>
    `${content(`${directory}/qemu`)}\n${squeezed()}\n${content(`${directory}/vsock`)}`;
  const monitor = (command: string): Promise<string> => tellMonitor(`${directory}/monitor`, command);
  return {
    console: shown,
    shows: async (pattern, limitMs = BOOT_LIMIT) => {
      const over = (): boolean => pattern.test(shown()) || ended(qemu);
      await until(`${pattern} on the console`, over, limitMs).catch(() => undefined);
      const found = pattern.exec(shown());
      assert.ok(found !== null, `no ${pattern}:\n${everything()}`);
      return found;
    },
    signal: (name) => {
      qemu.kill(name);
    },
    monitor,
    ended: () => until('qemu to end', () => ended(qemu), 60_000),
  };
}

/** Starts all but the VMs; files are put into `directory`. */
export async function startMachines(
  directory: string,
  count: number,
  given: MachineOptions = {},
): Promise<Machines> {
  const options: Settings = { shared: 64, memory: 384, reconnect: 30, programs: [], ...given };
  const started: ChildProcess[] = [];
  const numbers = Array.from({ length: count }, (_, number) => number);
  const at = (number: number): string => `${directory}/${number}`;
  const memories = numbers.map((number) => {
    mkdirSync(at(number));
    return makeVmMemory(at(number), options.shared);
  });
  const proxies: ChildProcess[] = [];
  const startProxy = async (number: number): Promise<ChildProcess> => {
    const socket = `${at(number)}/vhost`;
    rmSync(socket, { force: true });
    const proxy = start(
      VSOCK,
      ['--guest-cid', `${CID + number}`, '--socket', socket, '--uds-path', `${at(number)}/uds`],
      `${at(number)}/vsock`,
    );
    started.push(proxy);
    proxies[number] = proxy;
    await until('its socket', () => listens(socket) || ended(proxy), 20_000);
    assert.equal(ended(proxy), false, content(`${at(number)}/vsock`));
    return proxy;
  };
  const lines: string[] = [];
  for (const number of numbers) {
    const { pid } = await startProxy(number);
    // One VM may get another proxy. Several are told apart by theirs.
    const who = count === 1 ? `uid=${process.getuid?.()}` : `pid=${pid}`;
    lines.push(
      `allow unix ${who} sessions=8 reconnect=${options.reconnect} vm-memory=${memories[number]?.path}\n`,
    );
  }
  writeFileSync(`${directory}/conf`, lines.join(''));
  const sockets = numbers.map((number) => `unix:${at(number)}/uds_14833`);
  const startOne = (): Promise<Host> =>
    startHost({
      listen: sockets[0] ?? '',
      ...(options.daemon === undefined ? {} : { program: options.daemon }),
      args: [
        ...sockets.slice(1).flatMap((socket) => ['--listen', socket]),
        '--config',
        `${directory}/conf`,
        '--control',
        `${directory}/control`,
      ],
    });
  let host = await startOne();

  const startOn = (number: number, shared: boolean, saved?: string): Running => {
    rmSync(`${at(number)}/monitor`, { force: true });
    const file = memories[number]?.path ?? '';
    const qemu = startQemu(at(number), {
      memory: options.memory,
      ...(shared ? { shared: { file, megabytes: options.shared } } : {}),
      ...(options.disk === undefined ? {} : { disk: options.disk }),
      ...(saved === undefined ? {} : { saved }),
    });
    started.push(qemu);
    return running(at(number), qemu);
  };

  return {
    host,
    vms: numbers.map((number): Vm => {
      const memory = memories[number]?.path ?? '';
      return {
        memory,
        start: async (commands, shared = true) => {
          rmSync(`${at(number)}/console`, { force: true });
          writeFileSync(
            `${at(number)}/initrd`,
            makeInitrd({ commands, programs: options.programs, handsOver: options.disk !== undefined }),
          );
          return startOn(number, shared);
        },
        save: async ({ monitor, ended: qemuEnded }, file) => {
          const proxy = proxies[number];
          proxy?.kill('SIGTERM');
          await until('its proxy to end', () => proxy !== undefined && ended(proxy), 20_000);
          await monitor('device_del vsock');
          await monitorSays(monitor, 'info qtree', (devices) => !devices.includes('vhost-user-vsock'));
          await monitor(`migrate "exec:cat > ${file}"`);
          await monitorSays(monitor, 'info migrate', (state) => state.includes('completed'));
          await monitor('quit');
          await qemuEnded();
        },
        restore: async (saved, shared = true) => {
          await startProxy(number);
          const machine = startOn(number, shared, saved);
          await until('its monitor', () => listens(`${at(number)}/monitor`), 20_000);
          await monitorSays(machine.monitor, 'info status', (status) => status.includes('running'));
          await machine.monitor(`device_add ${VSOCK_DEVICE}`);
          return machine;
        },
      };
    }),
    startHostAgain: async () => {
      await host.stop();
      for (const number of numbers) rmSync(`${at(number)}/uds_14833`, { force: true });
      host = await startOne();
      return host;
    },
    stop: async () => {
      for (const child of started) {
        child.kill('SIGKILL');
        child.kill('SIGCONT');
      }
      await host.stop();
      for (const memory of memories) memory.remove();
    },
  };
}

/** One VM, for what needs no other. */
export async function startMachine(directory: string, options: MachineOptions = {}): Promise<Machine> {
  const { host, vms, stop } = await startMachines(directory, 1, options);
  const [vm] = vms;
  assert.ok(vm !== undefined);
  return {
    host,
    memory: vm.memory,
    stop,
    boot: async (commands, shared = true, limitMs = BOOT_LIMIT) => {
      const machine = await vm.start(commands, shared);
      await machine.shows(/vm: done/, limitMs);
      await machine.ended();
      return machine.console();
    },
  };
}
