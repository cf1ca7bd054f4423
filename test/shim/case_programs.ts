/** Programs under test/shim/programs that are made of cases (check.h), over every way to a host. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from './cuda/private_programs.js';
import { startStandIn } from './host/stand_in.js';
import { twoDevices } from './host/two_devices.js';
import {
  builtFile,
  type Host,
  isIdle,
  SHIM,
  scratchDirectory,
  sessionsBegun,
  startChain,
  startHost,
  until,
  VARIANT,
} from './shim_host.js';
import { freePort } from './support/free_port.js';
import { makeVmMemory, type VmMemory } from './support/vm_memory.js';

/** Programs and their cases, each with its sentence. Each case is a process of its own. */
export type CasePrograms = Readonly<Record<string, Readonly<Record<string, string>>>>;

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

function run(program: string, name: string, more: Readonly<Record<string, string>>): Promise<Ended> {
  const { VGPU_LOG: _log, CUDA_VISIBLE_DEVICES: _visible, ...clean } = process.env;
  const child = spawn(builtFile(path.join('programs', program)), [name], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...clean, LD_LIBRARY_PATH: SHIM, ...more },
    // Forking alone takes seven seconds under ThreadSanitizer on a crowded machine.
    timeout: VARIANT === 'shim' ? 30_000 : 120_000,
    killSignal: 'SIGKILL',
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  return new Promise((resolve) => child.once('close', (code, signal) => resolve({ code, signal, output })));
}

/** The library with the software device inside; where it is not built (with sanitizers) there are transports only. */
const INSIDE = path.join(SHIM, 'programs/inprocess');
const skipInside = existsSync(path.join(INSIDE, 'libcuda.so.1')) ? false : `${INSIDE} is not built`;

/** The stand-in for a driver has the software device inside. */
const skipStandIn =
  VARIANT !== 'shim' && 'the software device in the same process is built without sanitizers';

/** Without a host: the device runs in the program's own process. */
export function describeCasesInside(what: string, programs: CasePrograms): void {
  describe(`${what} without any transport`, { skip: skipInside }, () => {
    const profile = path.join(ROOT, 'profiles/devices/h100-80gb.json');
    for (const [program, cases] of Object.entries(programs)) {
      for (const [name, sentence] of Object.entries(cases)) {
        it(sentence, async () => {
          const env = { LD_LIBRARY_PATH: INSIDE, VGPU_INPROCESS_PROFILE: profile };
          const { code, signal, output } = await run(program, name, env);
          // the host's log goes to the program's own standard error here
          const own = output.replace(/^vgpu-hostd: .*\n/gm, '');
          assert.deepEqual({ code, signal, output: own }, { code: 0, signal: null, output: '' });
        });
      }
    }
  });
}

interface Way {
  readonly title: string;
  readonly over: 'ring' | 'socket' | 'tcp' | "a VM's memory";
  /** Default: a host with the software device. */
  readonly driver?: 'our own library' | 'a stand-in' | 'a stand-in before a host';
  /** STAND_IN of the stand-in (programs/stand_in_driver.c). */
  readonly words?: string;
  /** True if program and device share memory. Then the device's attributes must be 1, else 0. */
  readonly shares: boolean;
}

const MAPS = { driver: 'a stand-in', words: 'maps,real' } as const;
const MAPPING = 'with --device cuda and a driver that maps memory of a process';

const ways = {
  unix: { title: 'over unix', over: 'ring', shares: true },
  'unix without a ring': { title: 'over unix without a ring', over: 'socket', shares: false },
  tcp: { title: 'over tcp', over: 'tcp', shares: false },
  "a VM's memory": { title: "over a VM's memory", over: "a VM's memory", shares: true },
  chain: {
    title: 'with --device cuda over our own library',
    over: 'ring',
    driver: 'our own library',
    shares: false, // our library gives shared mappings no address on the device; the worker's memory is one
  },
  'a driver that maps': { title: MAPPING, over: 'ring', ...MAPS, shares: true },
  'a driver that maps, over a socket': {
    title: `${MAPPING}, over a socket`,
    over: 'socket',
    ...MAPS,
    shares: false,
  },
  'a driver that maps, over tcp': { title: `${MAPPING}, over tcp`, over: 'tcp', ...MAPS, shares: false },
  "a driver that maps, in a VM's memory": {
    title: `${MAPPING}, in a VM's memory`,
    over: "a VM's memory",
    ...MAPS,
    shares: true,
  },
  'a driver that copies late': {
    title: 'with --device cuda and a driver that copies after the call has returned',
    over: 'ring',
    driver: 'a stand-in',
    words: 'late,maps,real',
    shares: true,
  },
  'a driver for several processes': {
    title: 'with --device cuda and a driver whose processes share a device',
    over: 'ring',
    driver: 'a stand-in before a host',
    words: 'always,real',
    shares: false,
  },
} satisfies Record<string, Way>;
type Transport = keyof typeof ways;

/** Describes all of them once. */
function describeOver(what: string, programs: CasePrograms, transport: Transport, devices: 1 | 2 = 1): void {
  const way: Way = ways[transport];
  describe(`${what} ${way.title}`, { skip: way.driver?.startsWith('a stand-in') && skipStandIn }, () => {
    const scratch = scratchDirectory();
    let host: Host;
    let memory: VmMemory | undefined;

    before(async () => {
      const profile = devices === 2 ? twoDevices(path.join(scratch.path, 'two.json')) : undefined;
      const profiles = profile === undefined ? [] : ['--profile', profile];
      if (way.driver === 'our own library') {
        host = await startChain(scratch.path, profiles);
        return;
      }
      if (way.over === "a VM's memory") memory = makeVmMemory(scratch.path, 512);
      const listen = way.over === 'tcp' ? `tcp:127.0.0.1:${await freePort()}` : `unix:${scratch.path}/s`;
      const args = memory?.args ?? [];
      if (way.driver === undefined) {
        host = await startHost({ listen, args: [...profiles, ...args] });
        return;
      }
      const behind =
        way.driver === 'a stand-in'
          ? undefined
          : await startHost({ listen: `unix:${scratch.path}/behind`, args: profiles });
      host = await startStandIn(way.words ?? '', {
        listen,
        args,
        ...(profile === undefined ? {} : { profile }),
        ...(behind === undefined ? {} : { behind }),
      });
    });
    after(async () => {
      await host.stop();
      memory?.remove();
      scratch.remove();
    });

    for (const [program, cases] of Object.entries(programs)) {
      for (const [name, sentence] of Object.entries(cases)) {
        it(sentence, async () => {
          const env = {
            VGPU_HOST: host.address,
            SHARES_MEMORY: way.shares ? '1' : '0',
            ...(way.over === 'socket' ? { VGPU_TRANSPORT: 'socket' } : memory?.env),
          };
          const before = sessionsBegun(host);
          assert.deepEqual(await run(program, name, env), { code: 0, signal: null, output: '' });
          // Its line may come later than the end of the program; and the next one counts free memory.
          await until(
            'the session to begin and to end',
            () => sessionsBegun(host) > before && isIdle(host),
            20_000,
          );
          assert.doesNotMatch(host.log(), /Sanitizer|violation/);
          if (memory !== undefined) assert.match(host.log(), /begins, in its VM's shared memory/);
        });
      }
    }
  });
}

/** The same for what only happens where memory is shared: over rings, and once. */
export function describeCasesOverRings(what: string, programs: CasePrograms): void {
  describeOver(what, programs, 'unix');
}

/** The same for memory that the device reads and writes itself, as a GPU does, and not the host's processor. */
export function describeCasesOverMappingDriver(what: string, programs: CasePrograms): void {
  describeOver(what, programs, 'a driver that maps');
}

/** The same over a socket and over TCP, where this driver's host must refuse to share memory. */
export function describeCasesFarFromMappingDriver(what: string, programs: CasePrograms): void {
  describeOver(what, programs, 'a driver that maps, over a socket');
  describeOver(what, programs, 'a driver that maps, over tcp');
}

/** The same with this driver, in the memory that a VM shares with its host. */
export function describeCasesInVmOfMappingDriver(what: string, programs: CasePrograms): void {
  describeOver(what, programs, "a driver that maps, in a VM's memory");
}

/** The same with a driver whose processes share a device. */
export function describeCasesOfSeveralProcesses(what: string, programs: CasePrograms): void {
  describeOver(what, programs, 'a driver for several processes');
}

/** The same for copies whose bytes a GPU has later than the call has returned. */
export function describeCasesOverLateDriver(what: string, programs: CasePrograms): void {
  describeOver(what, programs, 'a driver that copies late');
}

const TRANSPORTS = ['unix', 'unix without a ring', 'tcp', 'chain'] as const;

/** Over each given transport and without a host. For programs whose calls and kernels run at the same time. */
export function describeCasesOverTransports(
  what: string,
  programs: CasePrograms,
  transports: readonly (typeof TRANSPORTS)[number][] = TRANSPORTS,
): void {
  for (const transport of transports) describeOver(what, programs, transport);
}

/**
 * Describes all of them four times and once without a host. `vmMemory`: once
 * more with rings and shared regions in a file, as a VM has them in the memory of a PCI device.
 */
export function describeCases(what: string, programs: CasePrograms, vmMemory = false): void {
  describeCasesInside(what, programs);
  describeCasesOverTransports(what, programs);
  if (vmMemory) describeOver(what, programs, "a VM's memory");
}

const TWO_DEVICES = ['unix', 'unix without a ring', 'chain', 'a driver that maps'] as const;

/** With two devices, over some of the ways to a host. */
export function describeCasesOnTwoDevices(
  what: string,
  programs: CasePrograms,
  transports: readonly Transport[] = TWO_DEVICES,
): void {
  for (const transport of transports) describeOver(what, programs, transport, 2);
}
