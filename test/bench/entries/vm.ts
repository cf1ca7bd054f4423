// Inside a real virtual machine: the shim through memory that the machine shares with its host, over vsock, and through
// the rings of a vgpu-hostd that runs inside the same machine. The machine is started here and not in the benchmark's
// guest, which has no hypervisor.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startMachine, whyNoMachine } from '../../shim/vm/machine.js';
import { type Aim, type BesideSeries, type Comparison, type Entry, spread, type Unit } from '../measure.js';
import { repository, shim, shimBench } from '../paths.js';

const limitMs = 1_800_000;
const profile = 'h100-80gb.json';
const insideSocket = '/run/hostd.sock';

/** How the calls travel, in the order of a round; what the library says of it, and what the command begins with. */
const ways = {
  memory: { says: "through the VM's shared memory", settings: '' },
  vsock: { says: 'over the socket', settings: 'VGPU_VM_MEMORY=none ' },
  rings: { says: 'through shared memory', settings: `VGPU_HOST=unix:${insideSocket} ` },
} as const;
type Way = keyof typeof ways;

function isWay(name: string): name is Way {
  return name in ways;
}

/** The measurements of a transport, or of something beside it in the same machine. */
interface Beside {
  readonly name: string;
  readonly way: Way;
  /** As shim_bench names it. */
  readonly series: string;
  readonly aim?: Aim;
}

interface Row {
  readonly key: string;
  readonly title: string;
  readonly unit: Unit;
  readonly beside: readonly Beside[];
}

const overVsock = (aim?: Aim): Beside => ({
  name: 'over vsock',
  way: 'vsock',
  series: 'shim',
  ...(aim === undefined ? {} : { aim }),
});
const ringsInside = (aim?: Aim): Beside => ({
  name: 'rings, host in the machine',
  way: 'rings',
  series: 'shim',
  ...(aim === undefined ? {} : { aim }),
});
const inProcess: Beside = { name: 'the GPU in the process', way: 'memory', series: 'process' };
const memcpy: Beside = {
  name: 'memcpy in the machine',
  way: 'memory',
  series: 'memcpy',
  aim: { atLeast: 0.8 },
};

const rows: readonly Row[] = [
  {
    key: 'waiting',
    title: 'a call that waits for its answer (cuMemGetInfo)',
    unit: 'us',
    beside: [overVsock({ atMost: 0.1 }), ringsInside(), inProcess],
  },
  {
    key: 'oneway',
    title: 'a one-way call (cuMemsetD8), until it is back',
    unit: 'us',
    beside: [overVsock(), ringsInside(), inProcess],
  },
  {
    key: 'launches',
    title: 'a launch of 2000, until all are carried out',
    unit: 'us',
    beside: [overVsock(), ringsInside({ below: 1.5 }), inProcess],
  },
  {
    key: 'pairs',
    title: 'a launch and a wait for its end',
    unit: 'us',
    beside: [overVsock({ atMost: 0.1 }), ringsInside(), inProcess],
  },
  ...(['4KiB', '1MiB', '256MiB'] as const).flatMap((size) =>
    (['to', 'from', 'pinned-to', 'pinned-from'] as const).map(
      (way): Row => ({
        key: `${way}:${size}`,
        title: `${size} ${way.endsWith('to') ? 'to' : 'from'} the device${way.startsWith('pinned') ? ', pinned' : ''}`,
        unit: 'GB/s',
        beside: [overVsock(), ringsInside(), inProcess, memcpy],
      }),
    ),
  ),
];

export const vm: Entry = {
  name: 'vm',
  what: 'inside a virtual machine: through memory that it shares with its host, over vsock, and to a host inside it',
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
    memory: 3072,
    programs: [shimBench, inprocess, `${shim}/vgpu-hostd`, join(repository, 'profiles/devices', profile)],
  });
  try {
    const commands = Array.from({ length: runs }, () =>
      ['calls', 'launches', 'copies'].flatMap((what) =>
        // One after the other in every round, so that other load on the machine affects all of them.
        Object.values(ways).map(
          ({ settings }) =>
            `${settings}VGPU_LOG=stderr VGPU_INPROCESS_PROFILE=/bin/${profile} /bin/shim_bench ${what} 1 /lib/vgpu/libcuda.so.1 /bin/libcuda.so.1`,
        ),
      ),
    ).flat();
    const daemon = [
      `& /bin/vgpu-hostd --device software --listen unix:${insideSocket}`,
      `until ${insideSocket}`,
    ];
    return read(await machine.boot([...daemon, ...commands], true, limitMs));
  } finally {
    await machine.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The console's output, sample by sample and transport by transport. */
function read(console: string): readonly Comparison[] {
  const samples = new Map<string, number[]>();
  const runs = console.split(/^vm: run /m).filter((run) => run.includes('/bin/shim_bench'));
  for (const run of runs) {
    if (!/^vm: exit 0$/m.test(run)) throw new Error(`shim_bench failed in the machine:\n${run}`);
    // A library says how it reached its host; the one in the process reaches none.
    const said = /: \d+ device\(s\), (.*)$/m.exec(run)?.[1] ?? '';
    const way = Object.keys(ways)
      .filter(isWay)
      .find((one) => ways[one].says === said);
    const [command = ''] = run.split('\n');
    if (way === undefined || !command.startsWith(`${ways[way].settings}VGPU_LOG`))
      throw new Error(`it went "${said}", not as it was told:\n${run}`);
    for (const [, key = '', series = '', value = ''] of run.matchAll(/^(\S+) (\S+) ([\d.]+)$/gm)) {
      const name = `${way} ${key} ${series}`;
      samples.set(name, [...(samples.get(name) ?? []), Number(value)]);
    }
  }
  return rows.map(({ key, title, unit, beside }): Comparison => {
    const found = (name: string): readonly number[] => {
      const values = samples.get(name) ?? [];
      if (!(spread(values).min > 0)) throw new Error(`shim_bench said nothing sound of ${name}`);
      return values;
    };
    return {
      title,
      subject: { name: 'through memory of both', unit, samples: found(`memory ${key} shim`) },
      beside: beside.map(
        ({ name, way, series, aim }): BesideSeries => ({
          name,
          unit,
          samples: found(`${way} ${key} ${series}`),
          ...(aim === undefined ? {} : { aim }),
        }),
      ),
    };
  });
}
