// A thread's short calls while another thread of the program waits for the device, and without that. With --device cuda the
// driver is the stand-in, whose answer to "is it done" takes about a microsecond, as a driver's does.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startStandIn } from '../../shim/host/stand_in.js';
import { builtFile, startHost } from '../../shim/shim_host.js';
import type { Comparison, Entry } from '../measure.js';
import { shim } from '../paths.js';
import { runTimed } from '../run-timed.js';

const WAITS = ['stream', 'context', 'event', 'read'] as const;

export const besideWaiter: Entry = {
  name: 'beside',
  what: "a thread's calls beside a thread that waits for the device",
  runs: 3,
  outside: true,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-bench-'));
  const hosts = [
    { device: 'the simulated GPU', host: await startHost({ listen: `unix:${directory}/s` }) },
    { device: '--device cuda', host: await startStandIn('real,maps', { listen: `unix:${directory}/c` }) },
  ];
  try {
    return hosts.flatMap(({ device, host }) =>
      (['rings', 'a socket'] as const).map((transport): Comparison => {
        const [alone, beside]: [number[], number[]] = [[], []];
        for (let run = 0; run < runs; run++) {
          for (const what of WAITS) {
            const { stdout } = runTimed(builtFile('programs/beside_waiter'), [what], {
              VGPU_HOST: host.address,
              LD_LIBRARY_PATH: shim,
              ...(transport === 'a socket' ? { VGPU_TRANSPORT: 'socket' } : {}),
            });
            const [, with_ = '', without = ''] = /^[\d.]+ \d+ ([\d.]+) ([\d.]+)$/m.exec(stdout) ?? [];
            beside.push(Number(with_));
            alone.push(Number(without));
          }
        }
        return {
          title: `${device}, over ${transport}: a call beside a thread that waits`,
          subject: { name: 'beside it', unit: 'us', samples: beside },
          beside: [{ name: 'without it', unit: 'us', samples: alone, aim: { atMost: 1.25 } }],
        };
      }),
    );
  } finally {
    for (const { host } of hosts) await host.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}
