// Slurm as docs/howto/slurm.md sets it up: a controller with a node, and a second node, each a guest with a simulated host.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { shellBlocks } from '../../pages.js';
import { Guest, whyNoGuest } from './guest.js';
import { whyNoHostd } from './hosts.js';
import { type Ran, runOk, until } from './process.js';
import { repository } from './repository.js';
import { testRoot, whyNoRoot } from './roots.js';

/** Why no cluster can be started here, or false; for the `skip` option of a test. */
export function whyNoSlurm(): string | false {
  return whyNoGuest() || whyNoHostd() || whyNoRoot('slurm-trixie');
}

export interface Cluster {
  /** n1, which is the controller too, and n2. */
  readonly nodes: readonly [Guest, Guest];
  /** Runs srun at the controller. */
  srun(user: string, ...words: readonly string[]): Promise<Ran>;
  stop(): Promise<void>;
}

const mark = 'run: test/guest/slurm.test.ts';

/** A cluster as it is before the page. */
const configuration = `ClusterName=test
SlurmctldHost=n1(10.11.0.1)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
`;

function bash(guest: Guest, text: string): Promise<string> {
  return guest.must('bash', '-e', '-o', 'pipefail', '-c', text);
}

async function startNode(name: string, key: string): Promise<Guest> {
  const guest = await Guest.start({ root: testRoot('slurm-trixie') });
  await guest.hosts.start();
  await guest.write('/etc/slurm/slurm.conf', configuration);
  await guest.write('/etc/slurm/cgroup.conf', 'CgroupPlugin=disabled\n');
  await bash(
    guest,
    `rm -f /usr/local/bin/vgpu-agent && ${repository}/scripts/install-agent
     hostname ${name} && printf '10.11.0.1 n1\\n10.11.0.2 n2\\n' >>/etc/hosts
     base64 -d <<<'${key}' >/etc/munge/munge.key && chown munge: /etc/munge/munge.key && chmod 0400 /etc/munge/munge.key
     mkdir -p /var/lib/slurm/slurmctld /var/spool/slurmd && chown -R slurm: /var/lib/slurm
     useradd --uid 1500 alice && useradd --uid 1501 bob && systemctl restart munge`,
  );
  return guest;
}

/** Starts both nodes, runs the commands of the page on them, and waits until both are idle. */
export async function startCluster(page: string): Promise<Cluster> {
  const key = randomBytes(1024).toString('base64');
  const nodes = [await startNode('n1', key), await startNode('n2', key)] as const;
  const stop = async (): Promise<void> => {
    for (const guest of nodes) await guest.stop();
  };
  try {
    const [first, second] = await Promise.all(nodes.map((guest) => guest.pid()));
    const link = ['link', 'add', 'net0', 'type', 'veth', 'peer', 'name', 'net0', 'netns', String(second)];
    await runOk('nsenter', ['--target', String(first), '--net', 'ip', ...link]);
    for (const [index, guest] of nodes.entries()) {
      await bash(guest, `ip address add 10.11.0.${index + 1}/24 dev net0 && ip link set net0 up`);
    }
    const blocks = shellBlocks(page).filter((block) => block.mark === mark);
    assert.equal(blocks.length, 2);
    for (const guest of nodes) {
      for (const { text } of blocks) await bash(guest, `sudo() { "$@"; }\n${text}`);
    }
    await bash(nodes[0], 'systemctl restart slurmctld');
    for (const guest of nodes) await bash(guest, 'systemctl restart slurmd');
    await until('both nodes are idle', 120_000, async () => {
      const { stdout } = await nodes[0].run('sinfo', '--noheader', '--Node', '--format=%N %t');
      return stdout === 'n1 idle\nn2 idle\n' ? true : undefined;
    });
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    nodes,
    srun: (user, ...words) => nodes[0].runWith({ user }, 'srun', '--chdir=/', ...words),
    stop,
  };
}
