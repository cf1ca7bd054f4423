// vsock beside the other streams: a host and a program on one kernel, in a virtual machine whose kernel has vsock's
// loopback, and, in the same rounds, over the streams that this machine has. What vsock would take here is this
// machine's time of the unix socket times their ratio in the virtual machine.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startHost } from '../../shim/shim_host.js';
import { freePort } from '../../shim/support/free_port.js';
import { startHostMachine } from '../../shim/vm/host_machine.js';
import { whyNoMachine } from '../../shim/vm/machine.js';
import { type Comparison, type Entry, type Series, spread, type Unit } from '../measure.js';
import { repository, shim, shimBench } from '../paths.js';
import { runTimed } from '../run-timed.js';

const limitMs = 300_000;
const profile = 'h100-80gb.json';
const process = 'the GPU in the process';

const rows: readonly { readonly key: string; readonly title: string; readonly unit: Unit }[] = [
  { key: 'waiting', title: 'a call that waits for its answer (cuMemGetInfo)', unit: 'us' },
  { key: 'issued', title: "a launch of 20,000: the program's processor time", unit: 'us' },
  { key: 'flood', title: 'a launch of 20,000, until all are carried out', unit: 'us' },
  { key: 'to:4KiB', title: '4 KiB to the device', unit: 'us' },
  { key: 'from:4KiB', title: '4 KiB from the device', unit: 'us' },
  { key: 'to:1MiB', title: '1 MiB to the device', unit: 'us' },
  { key: 'from:1MiB', title: '1 MiB from the device', unit: 'us' },
];

export const loopback: Entry = {
  name: 'loopback',
  what: "vsock's loopback beside a unix socket and TCP, in a virtual machine; and those two in this machine",
  runs: 3,
  missing: whyNoMachine,
  outside: true,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-bench-'));
  const inprocess = `${shim}/programs/inprocess/libcuda.so.1`;
  const machine = await startHostMachine(directory, {
    modules: ['vsock_loopback'],
    programs: [shimBench, inprocess, join(repository, 'profiles/devices', profile)],
    commands: ['loopback'],
    counts: true,
  });
  const tcp = `tcp:127.0.0.1:${await freePort()}`;
  const host = await startHost({ listen: `unix:${directory}/here`, args: ['--listen', tcp] });
  const samples = new Map<string, number[]>();
  const take = (way: string, printed: string): void => {
    for (const [, key = '', series = '', value = ''] of printed.matchAll(/^(\S+) (\S+) ([\d.]+)$/gm)) {
      const name = `${way} ${key} ${series}`;
      samples.set(name, [...(samples.get(name) ?? []), Number(value)]);
    }
  };
  try {
    const inside = ['vsock:1:14833', 'unix:/run/hostd.sock', 'tcp:127.0.0.1:14833'];
    await machine.beside(
      '/bin/vgpu-hostd --device software --listen vsock:14833 --listen unix:/run/hostd.sock --listen tcp:127.0.0.1:14833',
    );
    await machine.shows(/device 0:/);
    for (let run = 0; run < runs; run++) {
      for (const address of inside) {
        const said = await machine.run(
          `VGPU_HOST=${address} VGPU_TRANSPORT=socket VGPU_INPROCESS_PROFILE=/bin/${profile} /bin/shim_bench streams 1 /lib/vgpu/libcuda.so.1 /bin/libcuda.so.1`,
          limitMs,
        );
        if (!said.includes(`at ${address}: 1 device(s), over the socket`) || !said.includes('vm: exit 0'))
          throw new Error(`shim_bench failed in the machine:\n${said}`);
        take(address, said);
      }
      for (const address of [host.address, tcp]) {
        const { stdout } = runTimed(shimBench, ['streams', '1', `${shim}/libcuda.so.1`, inprocess], {
          VGPU_HOST: address,
          VGPU_TRANSPORT: 'socket',
          VGPU_INPROCESS_PROFILE: join(repository, 'profiles/devices', profile),
        });
        take(address, stdout);
      }
    }
    const series = (name: string, unit: Unit, found: string): Series => {
      const values = samples.get(found) ?? [];
      if (!(spread(values).min > 0)) throw new Error(`shim_bench said nothing sound of ${found}`);
      return { name, unit, samples: values };
    };
    const [vsock, socket, tcpInside] = inside;
    return rows.flatMap(({ key, title, unit }): Comparison[] => [
      {
        title: `in a VM: ${title}`,
        subject: series('over vsock', unit, `${vsock} ${key} shim`),
        beside: [
          series('over a unix socket', unit, `${socket} ${key} shim`),
          series('over TCP', unit, `${tcpInside} ${key} shim`),
          series(process, unit, `${vsock} ${key} process`),
        ],
      },
      {
        title: `here: ${title}`,
        subject: series('over a unix socket', unit, `${host.address} ${key} shim`),
        beside: [
          series('over TCP', unit, `${tcp} ${key} shim`),
          series(process, unit, `${host.address} ${key} process`),
        ],
      },
    ]);
  } finally {
    machine.stop();
    await host.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}
