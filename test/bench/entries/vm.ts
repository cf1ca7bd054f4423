// Inside a real virtual machine: the shim through memory that the machine shares with its host, and over vsock. The
// machine is started here and not in the benchmark's guest, which has no hypervisor.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startMachine, whyNoMachine } from '../../shim/vm/machine.js';
import { type Comparison, type Entry, type Series, spread, type Unit } from '../measure.js';
import { repository, shim, shimBench } from '../paths.js';

const limitMs = 900_000;
const profile = 'h100-80gb.json';

interface Row {
  readonly key: string;
  readonly title: string;
  readonly unit: Unit;
  /** What ran beside it in the machine, as shim_bench names it. */
  readonly beside: readonly (readonly [key: string, name: string])[];
}

const process_ = ['process', 'the GPU in the process'] as const;
const rows: readonly Row[] = [
  {
    key: 'waiting',
    title: 'a call that waits for its answer (cuMemGetInfo)',
    unit: 'us',
    beside: [process_],
  },
  { key: 'oneway', title: 'a one-way call (cuMemsetD8), until it is back', unit: 'us', beside: [process_] },
  { key: 'launches', title: 'a launch of 2000, until all are carried out', unit: 'us', beside: [process_] },
  { key: 'pairs', title: 'a launch and a wait for its end', unit: 'us', beside: [process_] },
  ...(['4KiB', '1MiB', '256MiB'] as const).flatMap((size) =>
    (['to', 'from', 'pinned-to', 'pinned-from'] as const).map(
      (way): Row => ({
        key: `${way}:${size}`,
        title: `${size} ${way.endsWith('to') ? 'to' : 'from'} the device${way.startsWith('pinned') ? ', pinned' : ''}`,
        unit: 'GB/s',
        beside: [process_, ['memcpy', 'memcpy in the machine']],
      }),
    ),
  ),
];

export const vm: Entry = {
  name: 'vm',
  what: 'inside a virtual machine: through memory that it shares with its host, and over vsock',
  runs: 3,
  missing: whyNoMachine,
  outside: true,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-bench-vm-'));
  const inprocess = `${shim}/programs/inprocess/libcuda.so.1`;
  const machine = await startMachine(directory, {
    shared: 1024,
    memory: 2048,
    programs: [shimBench, inprocess, join(repository, 'profiles/devices', profile)],
  });
  try {
    const commands = Array.from({ length: runs }, () =>
      ['calls', 'launches', 'copies'].flatMap((what) =>
        // One after the other in every round, so that whatever else the machine does meets both.
        ['', 'VGPU_VM_MEMORY=none '].map(
          (way) =>
            `${way}VGPU_LOG=stderr VGPU_INPROCESS_PROFILE=/bin/${profile} /bin/shim_bench ${what} 1 /lib/vgpu/libcuda.so.1 /bin/libcuda.so.1`,
        ),
      ),
    ).flat();
    return read(await machine.boot(commands, true, limitMs));
  } finally {
    await machine.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** What the console showed, sample by sample and way by way. */
function read(console: string): readonly Comparison[] {
  const samples = new Map<string, number[]>();
  for (const run of console.split(/^vm: run /m).slice(1)) {
    if (!/^vm: exit 0$/m.test(run)) throw new Error(`shim_bench failed in the machine:\n${run}`);
    // A library says how it reached its host; the one in the process reaches none.
    const way = /through the VM's shared memory$/m.test(run) ? 'memory' : 'vsock';
    const wanted = run.startsWith('VGPU_VM_MEMORY=none') ? 'vsock' : 'memory';
    if (way !== wanted) throw new Error(`it went over ${way}, not over ${wanted}:\n${run}`);
    for (const [, key = '', series = '', value = ''] of run.matchAll(/^(\S+) (\S+) ([\d.]+)$/gm)) {
      const name = `${way} ${key} ${series}`;
      samples.set(name, [...(samples.get(name) ?? []), Number(value)]);
    }
  }
  return rows.map(({ key, title, unit, beside }): Comparison => {
    const series = (name: string, from: string): Series => {
      const found = samples.get(from) ?? [];
      if (!(spread(found).min > 0)) throw new Error(`shim_bench said nothing sound of ${from}`);
      return { name, unit, samples: found };
    };
    return {
      title,
      subject: series('through memory of both', `memory ${key} shim`),
      beside: [
        series('over vsock', `vsock ${key} shim`),
        ...beside.map(([short, name]) => series(name, `memory ${key} ${short}`)),
      ],
    };
  });
}
