/** qemu for the virtual machines of tests: its command line, and its monitor. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { atTheEnd } from '../shim_host.js';

/** qemu and a kernel: scripts/fetch-packages vm. */
export const VM = path.join(ROOT, '.cache/roots/vm');

/** Where qemu's own libraries are. */
export const QEMU_LIBRARIES = [`${VM}/usr/lib/x86_64-linux-gnu`, `${VM}/lib/x86_64-linux-gnu`].join(':');
export const ended = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;
/**
 * Whether a process listens at the unix socket. The file alone may be there too early: bind() makes it, and connect() is
 * refused until listen() (unix(7)). SO_ACCEPTCON in the flags of /proc/net/unix (proc_net(5)) is seen without connecting.
 */
export const listens = (socket: string): boolean =>
  readFileSync('/proc/net/unix', 'latin1')
    .split('\n')
    .some((line) => {
      const [, , , flags = '0', , , , file] = line.split(/ +/);
      return file === socket && (Number.parseInt(flags, 16) & 0x1_00_00) !== 0;
    });
export const content = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');

/** Starts a program of the cache; what it says goes into `log`, too. */
export function start(file: string, args: readonly string[], log: string): ChildProcess {
  const child = spawn(file, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, LD_LIBRARY_PATH: QEMU_LIBRARIES },
  });
  atTheEnd(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
    writeFileSync(log, said);
  });
  child.on('error', (error) => writeFileSync(log, String(error)));
  return child;
}

export interface QemuOptions {
  /** The file that the VM shares with the host; left out: it has none. */
  readonly shared?: { readonly file: string; readonly megabytes: number };
  /** Its own memory, MiB. */
  readonly memory: number;
  readonly disk?: string;
  /** A file that `migrate` wrote: it continues there, without a vsock device until one is added. */
  readonly saved?: string;
  /** A machine of its own, without a vsock device: further arguments. */
  readonly alone?: readonly string[];
  /** One processor whose clock counts instructions, a nanosecond each: other load on this machine changes no time. */
  readonly counts?: boolean;
}

/** The vsock device, as the command line and the monitor's `device_add` take it: it can be taken out while it runs. */
export const VSOCK_DEVICE = 'vhost-user-vsock-pci,chardev=vh,bus=slot1,id=vsock';

export function startQemu(directory: string, options: QemuOptions): ChildProcess {
  const { memory: size, shared, disk, saved, alone, counts = false } = options;
  const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-'));
  assert.ok(kernel !== undefined, 'a kernel');
  const kvm = process.env['VGPU_TEST_KVM'] === '1' && !counts;
  const accelerator = kvm ? 'kvm' : `tcg,thread=${counts ? 'single' : 'multi'}`;
  return start(
    `${VM}/usr/bin/qemu-system-x86_64`,
    [
      ...['-L', `${VM}/usr/share/qemu`, '-L', `${VM}/usr/share/seabios`],
      ...['-accel', accelerator, '-cpu', kvm ? 'host' : 'max'],
      ...(counts ? ['-icount', 'shift=0,sleep=off'] : []),
      ...['-M', 'q35,memory-backend=mem', '-m', `${size}`, '-smp', counts ? '1' : '2'],
      ...['-object', `memory-backend-memfd,id=mem,size=${size}M,share=on`],
      ...['-kernel', `${VM}/boot/${kernel}`, '-initrd', `${directory}/initrd`],
      // Without KVM on a busy machine the guest's timer may fail its check. The guest does not panic for that.
      ...['-append', 'console=ttyS0 panic=-1 quiet mitigations=off no_timer_check'],
      ...['-nodefaults', '-no-user-config', '-display', 'none'],
      ...['-monitor', `unix:${directory}/monitor,server=on,wait=off`],
      ...['-chardev', `file,id=console,path=${directory}/console,append=on`, '-serial', 'chardev:console'],
      ...(alone ?? [
        ...['-chardev', `socket,id=vh,path=${directory}/vhost`],
        ...['-device', 'pcie-root-port,id=slot1,slot=1'],
        ...(saved === undefined ? ['-device', VSOCK_DEVICE] : ['-incoming', `exec:cat ${saved}`]),
      ]),
      // Skip flushes: the clock of `counts` runs on for minutes during a flush of a few milliseconds. A killed qemu loses
      // nothing by this, and no test cuts the power of the machine here.
      ...(disk === undefined ? [] : ['-drive', `if=virtio,format=raw,cache=unsafe,file=${disk}`]),
      ...(shared === undefined
        ? []
        : [
            ...[
              '-object',
              `memory-backend-file,id=vgpu,mem-path=${shared.file},size=${shared.megabytes}M,share=on`,
            ],
            ...['-device', 'ivshmem-plain,memdev=vgpu,master=on'],
          ]),
    ],
    `${directory}/qemu`,
  );
}

const PROMPT = '(qemu) ';

/** A command of the monitor, and its answer. It ends with the command, or with qemu. */
export function tellMonitor(socket: string, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = '';
    const connection = createConnection(socket);
    connection.on('data', (chunk: Buffer) => {
      const before = said.split(PROMPT).length;
      said += chunk.toString();
      const prompts = said.split(PROMPT).length;
      if (before < 2 && prompts === 2) connection.write(`${command}\n`);
      if (prompts > 2) connection.end();
    });
    connection.on('error', reject);
    // It echoes what is typed, with sequences of a terminal.
    connection.on('close', () => resolve(said.split('\n').slice(2, -1).join('\n').replaceAll('\r', '')));
  });
}
