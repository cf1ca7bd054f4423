// docs/howto/slurm.md, word for word: a controller with a node, and a second node, each a guest with a simulated host.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { shellBlocks } from '../pages.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { type Ran, runOk, until } from './support/process.js';
import { repository } from './support/repository.js';
import { testRoot, whyNoRoot } from './support/roots.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoRoot('slurm-trixie');
const mark = 'run: test/guest/slurm.test.ts';
const probe = '/opt/vgpu/current/vgpu-probe --compute';

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

describe('a cluster of two nodes', { skip }, () => {
  const nodes: Guest[] = [];
  const node = (index: number): Guest => {
    const found = nodes[index];
    if (found === undefined) throw new Error(`no node ${index}`);
    return found;
  };
  const bash = (guest: Guest, text: string): Promise<string> =>
    guest.must('bash', '-e', '-o', 'pipefail', '-c', text);
  before(async () => {
    const key = randomBytes(1024).toString('base64');
    for (const index of [0, 1]) {
      const guest = await Guest.start({ root: testRoot('slurm-trixie') });
      nodes.push(guest);
      await guest.hosts.start();
      await guest.write('/etc/slurm/slurm.conf', configuration);
      await guest.write('/etc/slurm/cgroup.conf', 'CgroupPlugin=disabled\n');
      await bash(
        guest,
        `rm -f /usr/local/bin/vgpu-agent && ${repository}/scripts/install-agent
         hostname n${index + 1} && printf '10.11.0.1 n1\\n10.11.0.2 n2\\n' >>/etc/hosts
         base64 -d <<<'${key}' >/etc/munge/munge.key && chown munge: /etc/munge/munge.key && chmod 0400 /etc/munge/munge.key
         mkdir -p /var/lib/slurm/slurmctld /var/spool/slurmd && chown -R slurm: /var/lib/slurm
         useradd --uid 1500 alice && useradd --uid 1501 bob && systemctl restart munge`,
      );
    }
    const [first, second] = await Promise.all(nodes.map((guest) => guest.pid()));
    const link = ['link', 'add', 'net0', 'type', 'veth', 'peer', 'name', 'net0', 'netns', String(second)];
    await runOk('nsenter', ['--target', String(first), '--net', 'ip', ...link]);
    for (const [index, guest] of nodes.entries()) {
      await bash(guest, `ip address add 10.11.0.${index + 1}/24 dev net0 && ip link set net0 up`);
    }
    const blocks = shellBlocks('docs/howto/slurm.md').filter((block) => block.mark === mark);
    assert.equal(blocks.length, 2);
    for (const guest of nodes) {
      for (const { text } of blocks) await bash(guest, `sudo() { "$@"; }\n${text}`);
    }
    await bash(node(0), 'systemctl restart slurmctld');
    for (const guest of nodes) await bash(guest, 'systemctl restart slurmd');
    await until('both nodes are idle', 60_000, async () => {
      const { stdout } = await node(0).run('sinfo', '--noheader', '--Node', '--format=%N %t');
      return stdout === 'n1 idle\nn2 idle\n' ? true : undefined;
    });
  });
  after(async () => {
    for (const guest of nodes) await guest.stop();
  });
  const srun = (user: string, ...words: readonly string[]): Promise<Ran> =>
    node(0).runWith({ user, timeoutMs: 60_000 }, 'srun', '--chdir=/', ...words);

  for (const name of ['n1', 'n2']) {
    test(`a job with a GPU computes on ${name}`, async () => {
      const ran = await srun(
        'alice',
        `--nodelist=${name}`,
        '--gres=gpu:1',
        'bash',
        '-c',
        `hostname; ${probe}`,
      );
      assert.equal(ran.code, 0, ran.stdout + ran.stderr);
      assert.match(ran.stdout, new RegExp(`^${name}\n`));
      assert.match(ran.stdout, /simulated/);
    });

    test(`a job without a GPU cannot reach the host of ${name}`, async () => {
      const ran = await srun('alice', `--nodelist=${name}`, 'bash', '-c', `hostname; ${probe}`);
      assert.notEqual(ran.code, 0, ran.stdout);
      assert.match(ran.stdout, new RegExp(`^${name}\n`), 'the job itself ran');
    });
  }

  test("while a job has the GPU, another user's job on the node cannot reach the host", async () => {
    const job = 'touch /tmp/began; while [ ! -e /tmp/end ]; do sleep 0.1; done';
    const holds = srun('alice', '--nodelist=n2', '--overcommit', '--gres=gpu:1', 'bash', '-c', job);
    await until('the job begins', 30_000, async () =>
      (await node(1).exists('/tmp/began')) ? true : undefined,
    );
    const inside = await node(1).runWith({ user: 'bob' }, 'bash', '-c', probe);
    assert.notEqual(inside.code, 0, inside.stdout);
    const owner = await node(1).runWith({ user: 'alice' }, 'bash', '-c', probe);
    assert.equal(owner.code, 0, `the limit that the page names: ${owner.stderr}`);
    await node(1).must('touch', '/tmp/end');
    assert.equal((await holds).code, 0);
    await until('the socket is closed again', 30_000, async () =>
      /user:/.test((await node(1).must('getfacl', '-cn', '/run/vgpu')).replace('user::', ''))
        ? undefined
        : true,
    );
  });

  test('a killed host fails the job, and the next host serves the next job', async () => {
    const job = ['--nodelist=n2', '--gres=gpu:1', 'bash', '-c', probe];
    await node(1).hosts.stop('SIGKILL');
    assert.notEqual((await srun('alice', ...job)).code, 0);
    await node(1).hosts.start();
    const ran = await srun('alice', ...job);
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  });

  test('a job that requests more GPUs than a node has is refused', async () => {
    const ran = await srun('alice', '--nodelist=n1', '--immediate=5', '--gres=gpu:2', 'true');
    assert.notEqual(ran.code, 0);
    assert.match(ran.stderr, /Requested node configuration is not available/);
  });
});
