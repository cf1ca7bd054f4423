/** Virtual machines inside a host machine: by KVM, with vsock through the kernel's vhost-vsock. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { until } from '../shim_host.js';
import type { HostMachine } from './host_machine.js';
import type { ImageFile } from './image.js';
import { makeInitrd } from './initrd.js';
import { VM } from './qemu.js';

/** A host machine needs these for them. */
export const NESTED = {
  modules: ['vhost_vsock', 'kvm_amd'],
  // qemu saves and restores a machine through a shell.
  programs: [`${VM}/usr/bin/qemu-system-x86_64`, '/bin/sh', '/bin/cat'],
} as const;

const LIMIT = 120_000;
const FIRMWARE = ['seabios/bios-256k.bin', 'qemu/linuxboot_dma.bin', 'qemu/kvmvapic.bin'];

/** The files of the machines inside; `programs` go into their /bin. */
export function innerFiles(programs: readonly string[]): ImageFile[] {
  const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-')) ?? '';
  return [
    { name: 'inner/initrd', content: makeInitrd({ commands: ['from /dev/ttyS1'], programs }) },
    { name: 'inner/kernel', content: readFileSync(`${VM}/boot/${kernel}`) },
    ...FIRMWARE.map((file) => ({
      name: `inner/bios/${file.split('/').at(-1)}`,
      content: readFileSync(`${VM}/usr/share/${file}`),
    })),
  ];
}

export interface InnerOptions {
  readonly cid: number;
  /** The serial port of the host machine that is its console. */
  readonly port: 2 | 3;
  /** A file of the host machine that both see, with its size in MiB. */
  readonly shared?: { readonly file: string; readonly megabytes: number };
  /** A file that `migrate` wrote. */
  readonly saved?: string;
}

export interface Inner {
  /** qemu, in the host machine. */
  readonly pid: number;
  console(): string;
  shows(pattern: RegExp, limitMs?: number): Promise<RegExpExecArray>;
  /** Waits until it shows it, from now on, while and after `doing` it. */
  showsNext(doing: () => unknown, pattern: RegExp, limitMs?: number): Promise<RegExpExecArray>;
  /** Runs a command inside, and waits for its end: what its console showed meanwhile. */
  run(line: string, limitMs?: number): Promise<string>;
  /** Starts a command that runs beside the others. */
  beside(line: string): Promise<number>;
  /** A command of qemu's monitor, and its answer. */
  monitor(command: string): Promise<string>;
}

function words({ cid, port, shared, saved }: InnerOptions): string[] {
  const at = `/run/${cid}`;
  return [
    '/bin/qemu-system-x86_64',
    ...['-L', '/inner/bios', '-accel', 'kvm', '-cpu', 'host', '-M', 'q35', '-m', '256', '-smp', '1'],
    ...['-kernel', '/inner/kernel', '-initrd', '/inner/initrd'],
    ...['-append', 'console=ttyS0 panic=-1 quiet mitigations=off no_timer_check'],
    ...['-nodefaults', '-no-user-config', '-display', 'none'],
    ...['-monitor', `unix:${at}.monitor,server=on,wait=off`],
    ...['-chardev', `file,id=console,path=/dev/ttyS${port},append=on`, '-serial', 'chardev:console'],
    ...['-chardev', `socket,id=lines,path=${at}.lines,server=on,wait=off`, '-serial', 'chardev:lines'],
    ...['-device', `vhost-vsock-pci,guest-cid=${cid}`],
    ...(shared === undefined
      ? []
      : [
          ...[
            '-object',
            `memory-backend-file,id=vgpu,mem-path=${shared.file},size=${shared.megabytes}M,share=on`,
          ],
          ...['-device', 'ivshmem-plain,memdev=vgpu,master=on'],
        ]),
    ...(saved === undefined ? [] : ['-incoming', `exec:cat ${saved}`]),
  ];
}

export async function startInner(host: HostMachine, options: InnerOptions): Promise<Inner> {
  const { cid, port, saved } = options;
  const at = `/run/${cid}`;
  const console = (): string => host.port(port);
  /** Until its console shows it, from a place on. */
  const from = async (begin: number, pattern: RegExp, limitMs: number): Promise<RegExpExecArray> => {
    const shown = (): string => console().slice(begin);
    await until(`${pattern} on its console`, () => pattern.test(shown()), limitMs).catch((error: unknown) =>
      assert.fail(`${String(error)}\n${shown()}\nits host:\n${host.console()}`),
    );
    const found = pattern.exec(shown());
    assert.ok(found !== null);
    return found;
  };
  const ask = async (line: string, pattern: RegExp, limitMs = LIMIT): Promise<[string, RegExpExecArray]> => {
    const begin = console().length;
    await host.run(`tell ${at}.lines ${line}`);
    const found = await from(begin, pattern, limitMs);
    return [console().slice(begin), found];
  };
  const begin = console().length;
  const pid = await host.beside(words(options).join('\t'));
  if (saved === undefined) await from(begin, /^vm: listens$/m, LIMIT);
  return {
    pid,
    console,
    shows: (pattern, limitMs = LIMIT) => from(0, pattern, limitMs),
    showsNext: async (doing, pattern, limitMs = LIMIT) => {
      const now = console().length;
      await doing();
      return from(now, pattern, limitMs);
    },
    run: async (line, limitMs) => (await ask(line, /^vm: exit -?\d+$/m, limitMs))[0],
    beside: async (line) => Number((await ask(`& ${line}`, /^vm: beside (\d+)$/m))[1][1]),
    monitor: (command) => host.run(`tell ${at}.monitor ${command}`),
  };
}
