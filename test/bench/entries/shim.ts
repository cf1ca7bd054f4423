// The shim over its unix socket and the rings that come with it: calls, copies, and the start of a process.

import { join } from 'node:path';
import { type Comparison, type Entry, type Series, spread, type Unit } from '../measure.js';
import { repository, shim, shimBench } from '../paths.js';
import { runTimed } from '../run-timed.js';

/** A comparison as shim_bench prints it: its first series is ours, the others ran beside it. */
interface Printed {
  readonly key: string;
  readonly title: string;
  readonly unit: Unit;
  readonly series: readonly (readonly [key: string, name: string])[];
}

const ask = 'a socketpair, same bytes';
const inside = 'the simulated GPU in the process';

/** A call through the shim beside the same call in the process, and beside a socketpair with as many bytes. */
const besideSocket = (call: string): Printed['series'] => [
  ['shim', call],
  ['process', inside],
  ['raw', ask],
];

export const shimCalls: Entry = {
  name: 'shim-calls',
  what: 'one call through libcuda.so.1, the rings and vgpu-hostd',
  runs: 15,
  measure: async (runs) =>
    read(run('calls', runs), [
      {
        key: 'waiting',
        title: 'a call that waits for its answer (cuMemGetInfo: 48 bytes there, 56 back)',
        unit: 'us',
        series: [
          ['shim', 'cuMemGetInfo'],
          ['process', inside],
          ['raw', ask],
          ['ring', 'a ring, same bytes, both ends awake'],
        ],
      },
      {
        key: 'oneway',
        title: 'a one-way call (cuMemsetD8: 72 bytes), until it is back',
        unit: 'us',
        series: besideSocket('cuMemsetD8'),
      },
      {
        key: 'many',
        title: 'a one-way call of 8000, until all are carried out',
        unit: 'us',
        series: besideSocket('cuMemsetD8'),
      },
    ]),
};

export const shimLaunches: Entry = {
  name: 'shim-launches',
  what: 'a kernel that does nothing (256 threads), through the shim and on the simulated GPU',
  runs: 15,
  measure: async (runs) =>
    read(run('launches', runs), [
      {
        key: 'launches',
        title: 'a launch of 2000, until all are carried out',
        unit: 'us',
        series: [
          ['shim', 'cuLaunchKernel'],
          ['process', inside],
          ['raw', 'a socketpair, 72 bytes each'],
        ],
      },
      {
        key: 'pairs',
        title: 'a launch and a wait for its end',
        unit: 'us',
        series: besideSocket('cuLaunchKernel'),
      },
    ]),
};

export const shimTokens: Entry = {
  name: 'shim-tokens',
  what: 'the calls of one token of llama.cpp with CUDA graphs: 6 uploads, a graph of 64 nodes, the logits',
  runs: 15,
  measure: async (runs) =>
    read(run('tokens', runs), [
      {
        key: 'tokens',
        title: 'a token: 8 one-way calls and 7 waits',
        unit: 'us',
        series: [
          ['shim', 'through the shim'],
          ['process', inside],
          ['ring', '7 round trips of a ring'],
        ],
      },
    ]),
};

const sizes = ['4KiB', '64KiB', '1MiB', '16MiB', '256MiB'] as const;

export const shimCopies: Entry = {
  name: 'shim-copies',
  what: "copies to and from the simulated device's memory (the host's RAM)",
  runs: 7,
  measure: async (runs) =>
    read(
      run('copies', runs),
      sizes.flatMap((size) => [
        copy(`to:${size}`, `${size} to the device`, 'cuMemcpyHtoD'),
        copy(`from:${size}`, `${size} from the device`, 'cuMemcpyDtoH'),
        copy(`pinned-to:${size}`, `${size} to the device, pinned`, 'cuMemcpyHtoD', []),
        copy(`pinned-from:${size}`, `${size} from the device, pinned`, 'cuMemcpyDtoH', []),
      ]),
    ),
};

/** `beside`: what else carries the bytes; nothing does for pinned memory, which the other end has, too. */
function copy(
  key: string,
  title: string,
  call: string,
  beside: Printed['series'] = [['socket', ask]],
): Printed {
  return {
    key,
    title,
    unit: 'GB/s',
    series: [['shim', call], ['process', inside], ...beside, ['memcpy', 'memcpy']],
  };
}

export const shimStart: Entry = {
  name: 'shim-start',
  what: 'a process from exec to a device that answers, and its end',
  runs: 25,
  measure: async (runs) =>
    read(run('start', runs), [
      {
        key: 'ready',
        title: 'load libcuda.so.1, cuInit, cuDeviceGetCount, exit',
        unit: 'us',
        series: [
          ['shim', 'a program that does it'],
          ['true', '/bin/true'],
        ],
      },
      {
        key: 'probe',
        title: 'vgpu-probe: also context, 1 MiB there and back, NVML',
        unit: 'us',
        series: [
          ['shim', 'vgpu-probe --json'],
          ['true', '/bin/true'],
        ],
      },
    ]),
};

function run(what: 'calls' | 'launches' | 'tokens' | 'copies' | 'start', runs: number): string {
  const beside = what === 'start' ? `${shim}/vgpu-probe` : `${shim}/programs/inprocess/libcuda.so.1`;
  return runTimed(shimBench, [what, String(runs), `${shim}/libcuda.so.1`, beside], {
    VGPU_HOST: 'unix:/run/vgpu/hostd.sock',
    VGPU_INPROCESS_PROFILE: join(repository, 'profiles/devices/h100-80gb.json'),
  }).stdout;
}

function read(output: string, expected: readonly Printed[]): readonly Comparison[] {
  const samples = new Map<string, number[]>();
  for (const line of output.trim().split('\n')) {
    const [comparison = '', series = '', value = ''] = line.split(' ');
    const key = `${comparison} ${series}`;
    const list = samples.get(key) ?? [];
    list.push(Number(value));
    samples.set(key, list);
  }
  return expected.map(({ key, title, unit, series }): Comparison => {
    const [subject, ...beside] = series.map(([short, name]): Series => {
      const found = samples.get(`${key} ${short}`) ?? [];
      if (!(spread(found).min > 0)) throw new Error(`shim_bench said nothing sound of ${key} ${short}`);
      return { name, unit, samples: found };
    });
    if (subject === undefined) throw new Error(`${key} has no series`);
    return { title, subject, beside };
  });
}
