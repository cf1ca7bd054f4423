import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { buildProgram, runProgram } from '../cuda/private_programs.js';
import { fetched, type Hostd, startHostd } from './hostd.js';

const NAME = 'NVIDIA H100 80GB HBM3 (simulated)';
const UUID = 'GPU-5a0d1c6e-80b0-4c1d-9e55-1f00a1b2c301';
const programs = [
  { version: '535', ...(await fetched('driver-535', 'usr/lib/nvidia/current/nvidia-smi')) },
  { version: '550', ...(await fetched('driver-550', 'usr/lib/nvidia/current/nvidia-smi')) },
];

describe("NVIDIA's nvidia-smi through the shim", () => {
  let host: Hostd;
  let holder = '';
  before(async () => {
    host = await startHostd();
    holder = await buildProgram({
      name: 'nvml_holder',
      sources: ['test/shim/programs/nvml_holder.c'],
      sanitize: 'none',
    });
  });
  after(() => host.stop());

  for (const { version, path, skip } of programs) {
    const smi = (...args: string[]) => runProgram(path, args, { env: host.env, limit: 20_000 });

    it(`${version} -L lists the device`, { skip }, async () => {
      const ended = await smi('-L');
      assert.equal(ended.stderr, '');
      assert.equal(ended.stdout, `GPU 0: ${NAME} (UUID: ${UUID})\n`);
      assert.equal(ended.code, 0);
    });

    it(`${version} prints its table`, { skip }, async () => {
      const ended = await smi();
      assert.equal(ended.code, 0, ended.stdout);
      assert.match(ended.stdout, /Driver Version: 580\.65\.06 +CUDA Version: 13\.0/);
      assert.match(ended.stdout, /\| +0 +NVIDIA H100 80GB HBM3 \(s\.\.\. +Off +\| +00000000:01:00\.0 Off/);
      assert.match(ended.stdout, /700W \| +0MiB \/ +8\d{4}MiB \| +0% +Default/);
      assert.match(ended.stdout, /No running processes found/);
    });

    it(`${version} lists no process when there is none, and no power value when the device reports none`, {
      skip,
    }, async () => {
      assert.equal((await smi('--query-compute-apps=pid', '--format=csv,noheader')).stdout, '');
      const all = (await smi('-q')).stdout;
      assert.match(all, /Current Power Limit +: 700\.00 W/);
      assert.doesNotMatch(all, /\d{5,}\.\d\d W/);
    });

    it(`${version} answers queries, and its used memory follows all sessions`, { skip }, async () => {
      const fields = 'name,uuid,pci.bus_id,driver_version,compute_cap,memory.used,clocks.max.sm,power.limit';
      const query = async (): Promise<string> =>
        (await smi(`--query-gpu=${fields}`, '--format=csv,noheader')).stdout.trim();
      const about = `${NAME}, ${UUID}, 00000000:01:00.0, 580.65.06, 9.0`;
      assert.equal(await query(), `${about}, 0 MiB, 1980 MHz, 700.00 W`);

      const held = spawn(holder, [String(1234 * 1024 * 1024)], { env: { ...process.env, ...host.env } });
      const ended = once(held, 'exit');
      await once(held.stdout, 'data');
      assert.equal(await query(), `${about}, 1234 MiB, 1980 MHz, 700.00 W`);
      held.stdin.end();
      await ended;
      // The program did not free its memory. The host does, when it notices the end.
      let last = '';
      for (let tries = 0; tries < 50 && !last.includes(', 0 MiB'); tries++) {
        await sleep(20);
        last = await query();
      }
      assert.equal(last, `${about}, 0 MiB, 1980 MHz, 700.00 W`);
    });

    it(`${version} without a host says that there is no driver`, { skip }, async () => {
      const env = { ...host.env, VGPU_HOST: 'unix:/nonexistent.sock' };
      const ended = await runProgram(path, [], { env, limit: 10_000 });
      assert.match(ended.stdout, /couldn't communicate with the NVIDIA driver/);
      assert.equal(ended.code, 9);
      assert.equal(ended.stderr, '');
    });
  }
});
