// The doctor on the host: not there, refusing, frozen, of another version, with an old driver, there too late;
// and on where the guest is told to look for it. One guest, broken in turn.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Breakage, breakages } from '../support/doctor.js';
import type { Guest } from '../support/guest.js';
import { assertAnswers } from '../support/installed.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { restartConsumer, settings } from '../support/scenario.js';

const conf = '/etc/vgpu/guest.conf';
const socket = /unix:\/run\/vgpu\/hostd\.sock/;
const fixIt = /^sudo vgpu-agent doctor --fix --profile ollama$/;

/** Starts the consumer again, and waits until it is done looking for GPUs: it answers only then. */
async function again(guest: Guest, ...lines: readonly string[]): Promise<void> {
  await settings(guest, ...lines);
  await restartConsumer(guest);
  await assertAnswers(guest);
}

const hostBack = (guest: Guest): Promise<void> => guest.hosts.start();
async function allBack(guest: Guest): Promise<void> {
  await guest.hosts.start();
  await again(guest);
}

/** The default device with the driver of another generation, as a file beside the socket that hostd can read. */
async function oldDriver(guest: Guest): Promise<string> {
  const text = await readFile(join(repository, 'profiles/devices/h100-80gb.json'), 'utf8');
  const device = { ...JSON.parse(text), driverVersion: '535.261.03', cudaVersion: '12.2' };
  await guest.write('/root/old-driver.json', JSON.stringify(device));
  return guest.path('/root/old-driver.json');
}

const kept = `cp -p ${conf} /root/guest.conf`;
const putBack = (guest: Guest): Promise<string> =>
  guest.must('sh', '-c', `cp -p /root/guest.conf ${conf} && chmod 0644 ${conf}`);

const table: readonly Breakage[] = [
  {
    name: 'a host that is not there',
    real: true,
    break: (guest) => guest.hosts.stop(),
    undo: hostBack,
    check: 'host',
    cause: /No program answers/,
    evidence: [socket, /no host: cannot connect to .*: No such file/],
    command: /^systemctl start vgpu-hostd$/,
    fix: false,
  },
  {
    name: 'a host that is frozen',
    break: (guest) => guest.hosts.startFaulty({ mode: 'silent' }),
    undo: hostBack,
    check: 'host',
    cause: /accepts the connection and does not answer/,
    evidence: [/no host: no answer within the limit/],
    command: /^systemctl restart vgpu-hostd$/,
    fix: false,
  },
  {
    name: 'something at the address that is no host',
    break: (guest) => guest.hosts.startFaulty({ mode: 'garbage' }),
    undo: hostBack,
    check: 'host',
    cause: /answers at the address of the host is not vgpu-hostd/,
    evidence: [/no host: the answer does not come from vgpu-hostd/],
    command: /^ss -xlp \| grep .*hostd\.sock$/,
    fix: false,
  },
  {
    name: 'a host that is too old',
    break: (guest) => guest.hosts.startFaulty({ mode: 'speaks', version: 0 }),
    undo: hostBack,
    check: 'versions',
    cause: /^The host is older than the shim/,
    evidence: [
      /it speaks wire version 0\.\d+, this guest speaks 1\.\d+: the host is older/,
      /the shim is \S+, wire version 1/,
    ],
    command: /^systemctl restart vgpu-hostd$/,
    fix: false,
  },
  {
    name: 'a limit of device memory that is smaller than the model',
    standIn: true,
    break: async (guest) => {
      await guest.write('/root/hostd.conf', '# this guest\nlimits connects=none\nallow any memory=64M\n');
      await guest.hosts.start({ args: ['--config', await guest.path('/root/hostd.conf')] });
      await again(guest, 'Environment=STANDIN_MODEL_BYTES=134217728');
      await until('the model to be refused', 60_000, async () => {
        const said = await guest.must('journalctl', '--no-pager', '-u', 'ollama', '-o', 'cat');
        return (
          said.includes('allocating 128.00 MiB on device 0: cudaMalloc failed: out of memory') || undefined
        );
      });
    },
    undo: allBack,
    check: 'device-memory',
    kind: 'warning',
    cause: /^The host refused \S+ device memory\..*"out of memory"/,
    evidence: [
      /refused \S+ 128\.0 MiB of device memory \d+ s ago(?:, \d+ times so far)?: all sessions of this guest may hold 64\.0 MiB of device memory together \(memory= in line 3 of hostd\.conf on the host\), and 6\d\.\d MiB were free/,
    ],
    command: /^sudoedit \/etc\/vgpu\/hostd\.conf && sudo systemctl reload vgpu-hostd$/,
    fix: false,
  },
  {
    name: 'a guest.conf that names another host',
    break: (guest) =>
      guest.must('sh', '-c', `${kept} && sed -i 's|^host=.*|host=unix:/nonexistent/hostd.sock|' ${conf}`),
    undo: putBack,
    check: 'guest-conf',
    cause: /names no host, or another/,
    evidence: [/unix:\/nonexistent\/hostd\.sock/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a guest.conf that is missing',
    break: (guest) => guest.must('sh', '-c', `${kept} && rm ${conf}`),
    undo: putBack,
    check: 'guest-conf',
    cause: /is missing/,
    evidence: [/guest\.conf/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a guest.conf that only root may read',
    break: (guest) => guest.must('sh', '-c', `${kept} && chmod 0600 ${conf}`),
    undo: putBack,
    check: 'guest-conf',
    cause: /cannot be read by every user/,
    evidence: [/guest\.conf/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'an address of its own in the unit',
    break: (guest) => again(guest, 'Environment=VGPU_HOST=unix:/nonexistent'),
    undo: (guest) => again(guest),
    check: 'guest-conf',
    evidence: [/VGPU_HOST=unix:\/nonexistent \[Environment=\]/],
    command: /^sudo systemctl edit ollama\.service && sudo systemctl restart ollama\.service$/,
    fix: false,
  },
  {
    name: 'a service that was started before the host',
    real: true,
    break: async (guest) => {
      await guest.hosts.stop();
      await again(guest);
      await guest.hosts.start();
    },
    undo: (guest) => again(guest),
    check: 'start-order',
    evidence: [/library=cpu/, /now vgpu-probe finds NVIDIA H100 80GB HBM3 \(simulated\)/, /does not run/],
    command: /^sudo systemctl restart ollama\.service && sudo vgpu-agent verify --profile ollama$/,
    fix: false,
  },
  {
    name: 'a discovery that ran out of time',
    standIn: true,
    break: async (guest) => {
      await guest.hosts.startFaulty({ mode: 'slow', seconds: 2 });
      await again(guest, 'Environment=STANDIN_DISCOVERY_TIMEOUT=1');
      await guest.hosts.start();
    },
    undo: (guest) => again(guest),
    check: 'discovery-time',
    evidence: [/timed out|deadline|timeout/, /now the host answers after \d+ ms/],
    command: /^sudo systemctl restart ollama\.service/,
    fix: false,
  },
  {
    name: 'a driver that is too old for the service',
    real: true,
    break: async (guest) => {
      await guest.hosts.start({ profile: await oldDriver(guest) });
      await again(guest, 'Environment=OLLAMA_LLM_LIBRARY=cuda_v12');
    },
    undo: allBack,
    check: 'driver-version',
    evidence: [/NVIDIA driver too old.*driver=535.*required_driver/, /driver 535\.261\.03, reported by NVML/],
    command: /^sudo systemctl restart ollama\.service$/,
    fix: false,
  },
];

breakages('the doctor on the host', table);
