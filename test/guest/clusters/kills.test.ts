// Hosts, agents and services are killed at random moments: of a guest with a list of two hosts, of a service without a log on
// Debian 13, of a container by podman, and of two nodes of Slurm. Whatever was killed, each verdict names a host that lives,
// or says that none does; a job has a GPU exactly when its node's host lives. VGPU_TEST_SEED repeats a run.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { random } from '../../agent/verdict/random.js';
import { prepare, quadlet } from '../containers/podman-guest.js';
import { long, whyNoStandIn } from '../support/consumer.js';
import { Guest } from '../support/guest.js';
import type { Hosts } from '../support/hosts.js';
import { at, prepareConsumer } from '../support/installed.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { testRoot, whyNoRoot } from '../support/roots.js';
import { generous, said } from '../support/service.js';
import { type Cluster, startCluster, whyNoSlurm } from '../support/slurm.js';
import { twoHosts } from '../support/two-hosts.js';

const skip =
  whyNoSlurm() ||
  whyNoStandIn() ||
  whyNoRoot('trixie') ||
  whyNoRoot('podman-trixie') ||
  whyNoRoot('bookworm');
const seed = Number(process.env['VGPU_TEST_SEED'] ?? Date.now() % 1_000_000);
const kills = long ? 40 : 8;
const SETTLE_MS = 180_000;

/** A host beside a guest, and the name of its device. */
interface Killable {
  readonly hosts: Hosts;
  readonly profile: string;
  readonly device: string;
  alive: boolean;
}

/** A guest, the hosts that it may use, and the unit of its consumer. */
interface Kind {
  readonly name: string;
  readonly guest: Guest;
  readonly hosts: readonly Killable[];
  readonly unit: string;
}

const worker = join(repository, 'build/shim/programs/code_shell');
const orders = 'begin\nload 0 /opt/worker.ptx\nfunction 1 0 nothing\nlaunch 1 1 1 1 1 1 1 0 -\nsync\n';
const kernel = '.version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n';
/** Launches a kernel and then waits, without a word. */
const command = "/bin/sh -c '{ cat /opt/orders; exec sleep infinity; } | exec /opt/worker >/dev/null'";

async function filesOf(guest: Guest): Promise<void> {
  await guest.write('/opt/orders', orders);
  await guest.write('/opt/worker.ptx', kernel);
  await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(config));
}

const config = { ...generous, hosts: { leaveAfterSeconds: 1, returnAfterSeconds: 1 } };

/** Ollama's stand-in as a service, with two hosts. */
async function serviceOfTwoHosts(): Promise<Kind> {
  const guest = await Guest.start();
  const hosts = twoHosts(guest).map((one) => ({ ...one, alive: true }));
  for (const one of hosts) await one.hosts.start({ profile: one.profile });
  await prepareConsumer(guest, 3);
  await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(config));
  const list = hosts.flatMap(({ address }) => ['--host', address]);
  const ran = await guest.agent('install', '--service', '--yes', ...list);
  assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  return { name: 'service with two hosts', guest, hosts, unit: 'ollama.service' };
}

async function oneHost(guest: Guest): Promise<readonly Killable[]> {
  await guest.hosts.start({ profile: 't4' });
  return [{ hosts: guest.hosts, profile: 't4', device: 'T4', alive: true }];
}

/** The unit exists and runs; 4 is the status of a verdict that waits for work. */
async function installed(guest: Guest): Promise<void> {
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'start', 'worker');
  const ran = await guest.agent('install', '--service', '--yes', '--unit', 'worker');
  assert.ok(ran.code === 0 || ran.code === 4, ran.stdout + ran.stderr);
}

async function serviceWithoutLog(): Promise<Kind> {
  const guest = await Guest.start({ root: testRoot('trixie'), readOnlyBinds: [`${worker}:/opt/worker`] });
  const hosts = await oneHost(guest);
  await filesOf(guest);
  await guest.write(
    '/etc/systemd/system/worker.service',
    `[Service]\nExecStart=${command}\nRestart=always\nRestartSec=0.2\n`,
  );
  await installed(guest);
  return { name: 'service without a log', guest, hosts, unit: 'worker.service' };
}

async function container(): Promise<Kind> {
  const readOnlyBinds = [`${testRoot('bookworm')}:/run/image`, `${worker}:/opt/worker`];
  const guest = await Guest.start({ root: testRoot('podman-trixie'), readOnlyBinds, size: '3g' });
  const hosts = await oneHost(guest);
  await guest.must('bash', '-c', prepare);
  await filesOf(guest);
  const volumes = ['worker', 'worker.ptx', 'orders'].map((name) => `Volume=/opt/${name}:/opt/${name}:ro`);
  await guest.write(
    '/etc/containers/systemd/worker.container',
    `${quadlet(`${volumes.join('\n')}\nExec=${command}\nPodmanArgs=--stop-timeout=1`)}Restart=always\nRestartSec=0.2\n`,
  );
  await installed(guest);
  return { name: 'container', guest, hosts, unit: 'worker.service' };
}

const living = ({ hosts }: Kind): readonly Killable[] => hosts.filter(({ alive }) => alive);

interface Seen {
  readonly mode: unknown;
  readonly device: string;
  readonly document: unknown;
}

async function verify({ guest, unit }: Kind): Promise<Seen> {
  const ran = await guest.agent('verify', '--json', '--unit', unit);
  const document: unknown = JSON.parse(ran.stdout);
  const device = String(at(document, 'verdict', 'devices', 0, 'name'));
  return { mode: at(document, 'verdict', 'mode'), device, document };
}

/** At any moment: GPU only with the device of a host that lives. */
async function neverWrong(kind: Kind): Promise<Seen> {
  const seen = await verify(kind);
  if (seen.mode === 'gpu')
    assert.ok(
      living(kind).some(({ device }) => seen.device.includes(device)),
      `${kind.name}: ${JSON.stringify(seen.document)}\n${await said(kind.guest)}`,
    );
  return seen;
}

/** In the end: GPU if a host lives, and the reason "host-unreachable" if none does. */
async function rightInTheEnd(kind: Kind): Promise<void> {
  let last: unknown;
  try {
    await until(`${kind.name}: the right verdict`, SETTLE_MS, async () => {
      const { mode, document } = await neverWrong(kind);
      last = document;
      const right =
        living(kind).length > 0
          ? mode === 'gpu'
          : mode !== 'gpu' && at(document, 'verdict', 'reason') === 'host-unreachable';
      if (right) return true;
      // Restarts for one cause have pauses that double; a person ends one.
      const waits = String(at(document, 'service', 'pendingRestart', 'waitsFor'));
      if (waits.startsWith('the last restart')) await kind.guest.agent('restart', '--unit', kind.unit);
      return undefined;
    });
  } catch (error) {
    assert.fail(`${String(error)}\n${JSON.stringify(last)}\n${await said(kind.guest)}`);
  }
}

describe(`hosts, agents and services killed at will, seed ${seed}`, { skip }, () => {
  const below = random(seed);
  const kinds: Kind[] = [];
  let cluster: Cluster;
  const nodesAlive: [boolean, boolean] = [true, true];
  before(async () => {
    for (const start of [serviceOfTwoHosts, serviceWithoutLog, container]) kinds.push(await start());
    cluster = await startCluster('docs/howto/slurm.md');
  });
  after(async () => {
    for (const { guest, hosts } of kinds) {
      for (const { hosts: one } of hosts) await one.stop('SIGKILL');
      await guest.stop();
    }
    await cluster.stop();
  });

  const pick = <T>(list: readonly T[]): T => {
    const one = list[below(list.length)];
    assert.ok(one !== undefined);
    return one;
  };

  /** Kills a host, or starts it if it is dead: what was done. */
  const toggle = async (one: Killable): Promise<string> => {
    if (one.alive) {
      await one.hosts.stop('SIGKILL');
      one.alive = false;
      return `killed the host with ${one.device}`;
    }
    one.alive = true;
    await one.hosts.start({ profile: one.profile });
    return `started the host with ${one.device}`;
  };

  const event = async (): Promise<[Kind | null, string]> => {
    const choice = below(kinds.length + 1);
    const kind = kinds[choice];
    if (kind === undefined) {
      const which = below(2) === 0 ? 0 : 1;
      const { hosts } = cluster.nodes[which];
      if (nodesAlive[which]) await hosts.stop('SIGKILL');
      else await hosts.start();
      nodesAlive[which] = !nodesAlive[which];
      return [null, `n${which + 1}: ${nodesAlive[which] ? 'started' : 'killed'} its host`];
    }
    const what = below(4);
    if (what === 0) {
      await kind.guest.run('systemctl', 'kill', '--signal=KILL', 'vgpu-agent');
      return [kind, 'killed vgpu-agent.service'];
    }
    if (what === 1) {
      await kind.guest.run('systemctl', 'kill', '--signal=KILL', kind.unit);
      return [kind, `killed ${kind.unit}`];
    }
    return [kind, await toggle(pick(kind.hosts))];
  };

  /** A job with a GPU computes where the host lives, and fails where not; without one it never has a GPU. */
  const jobsAreRight = async (): Promise<void> => {
    for (const [index, alive] of nodesAlive.entries()) {
      const job = [
        `--nodelist=n${index + 1}`,
        'bash',
        '-c',
        '/opt/vgpu/current/vgpu-probe --compute',
      ] as const;
      const withGpu = await cluster.srun('alice', '--gres=gpu:1', ...job);
      assert.equal(withGpu.code === 0, alive, `n${index + 1}: ${withGpu.stdout}${withGpu.stderr}`);
      assert.notEqual((await cluster.srun('bob', ...job)).code, 0, `n${index + 1}: without --gres`);
    }
  };

  test('everything is on the GPU', async () => {
    for (const kind of kinds) await rightInTheEnd(kind);
    await jobsAreRight();
  });

  test(`${kills} times`, async (t) => {
    t.diagnostic(`seed ${seed}`);
    for (let turn = 1; turn <= kills; turn += 1) {
      await sleep(below(2000));
      const [kind, what] = await event();
      t.diagnostic(`${turn}: ${kind?.name ?? 'Slurm'}: ${what}`);
      if (kind === null) await jobsAreRight();
      else {
        await neverWrong(kind);
        // Sometimes the next kill comes in the middle of the repair.
        if (below(3) > 0) await rightInTheEnd(kind);
      }
    }
    for (const kind of kinds) await rightInTheEnd(kind);
    await jobsAreRight();
  });

  test('with every host back, everything is on the GPU again', async () => {
    for (const { hosts } of kinds) for (const one of hosts) if (!one.alive) await toggle(one);
    for (const index of [0, 1] as const)
      if (!nodesAlive[index]) {
        await cluster.nodes[index].hosts.start();
        nodesAlive[index] = true;
      }
    for (const kind of kinds) await rightInTheEnd(kind);
    await jobsAreRight();
  });
});
