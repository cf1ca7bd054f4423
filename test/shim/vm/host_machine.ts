/**
 * A virtual machine that is itself a host: its kernel has vsock sockets of its own, with the loopback and with vhost-vsock,
 * and commands are given to it while it runs. With emulated AMD-V it runs machines inside by KVM.
 */
import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { builtFile, until } from '../shim_host.js';
import type { ImageFile } from './image.js';
import { makeInitrd } from './initrd.js';
import { type Running, running } from './machine.js';
import { content, startQemu } from './qemu.js';

export interface HostMachineOptions {
  readonly memory?: number;
  readonly modules: readonly string[];
  readonly programs?: readonly string[];
  readonly files?: readonly ImageFile[];
  /** Run before the machine takes commands. */
  readonly commands?: readonly string[];
  /** As of QemuOptions. */
  readonly counts?: boolean;
}

export interface HostMachine extends Running {
  /** Runs a command and waits for its end: what the console showed meanwhile. */
  run(line: string, limitMs?: number): Promise<string>;
  /** Starts a command that runs beside the others: its process. */
  beside(line: string): Promise<number>;
  /** Sends a line, and does not wait. */
  send(line: string): void;
  /** All that the machine wrote to another serial port, 2 or 3. */
  port(number: 2 | 3): string;
  stop(): void;
}

const LIMIT = 120_000;

/** Boots it; files are put into `directory`. */
export async function startHostMachine(directory: string, options: HostMachineOptions): Promise<HostMachine> {
  const { memory = 1024, modules, files = [], commands = [], counts = false } = options;
  const programs = [builtFile('vgpu-hostd'), ...(options.programs ?? [])];
  writeFileSync(
    `${directory}/initrd`,
    makeInitrd({ commands: [...commands, 'from /dev/ttyS1'], modules, programs, files }),
  );
  const lines = `${directory}/lines`;
  const qemu = startQemu(directory, {
    memory,
    counts,
    alone: [
      ...['-chardev', `socket,id=lines,path=${lines},server=on,wait=off`, '-serial', 'chardev:lines'],
      ...[2, 3].flatMap((port) => [
        ...['-chardev', `file,id=port${port},path=${directory}/port${port}`],
        ...['-serial', `chardev:port${port}`],
      ]),
    ],
  });
  const machine = running(directory, qemu);
  await machine.shows(/vm: listens\n/);
  assert.ok(existsSync(lines));
  const connection: Socket = createConnection(lines);
  connection.on('error', () => undefined);
  connection.resume();
  const send = (line: string): void => {
    connection.write(`${line}\n`);
  };
  /** All that the console shows from now on until it shows `pattern`. */
  const ask = async (line: string, pattern: RegExp, limitMs: number): Promise<[string, RegExpExecArray]> => {
    const before = machine.console().length;
    send(line);
    const shown = (): string => machine.console().slice(before);
    await until(`${pattern} after ${line}`, () => pattern.test(shown()), limitMs).catch((error: unknown) =>
      assert.fail(`${String(error)}\n${shown()}`),
    );
    const found = pattern.exec(shown());
    assert.ok(found !== null);
    return [shown(), found];
  };
  /** One question at a time: the answers look alike. */
  let last: Promise<unknown> = Promise.resolve();
  const answer: typeof ask = (line, pattern, limitMs) => {
    const mine = last.then(() => ask(line, pattern, limitMs));
    last = mine.catch(() => undefined);
    return mine;
  };
  return {
    ...machine,
    send,
    run: async (line, limitMs = LIMIT) =>
      (await answer(line, line.startsWith('tell ') ? /^vm: told$/m : /^vm: exit -?\d+$/m, limitMs))[0],
    beside: async (line) => Number((await answer(`& ${line}`, /^vm: beside (\d+)$/m, LIMIT))[1][1]),
    port: (number) => content(`${directory}/port${number}`).replaceAll('\r', ''),
    stop: () => {
      connection.destroy();
      qemu.kill('SIGKILL');
    },
  };
}
