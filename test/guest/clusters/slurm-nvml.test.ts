// AutoDetect=nvml and accounting as docs/howto/slurm.md describes them: one node with Slurm's NVML plugin, slurmdbd and MariaDB.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { shellBlocks, showsLine } from '../../pages.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { testRoot, whyNoRoot } from '../support/roots.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoRoot('slurm-nvml-trixie');
const page = 'docs/howto/slurm.md';
const mark = 'run: test/guest/clusters/slurm-nvml.test.ts';
const shell = join(repository, 'build/shim/programs/driver_shell');
const held = 1024 ** 3;

const configuration = `ClusterName=test
SlurmctldHost=n1(10.11.0.1)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
GresTypes=gpu
JobAcctGatherFrequency=task=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=10.11.0.1
NodeName=n1 NodeAddr=10.11.0.1 Gres=gpu:1
PartitionName=all Nodes=n1 Default=YES State=UP
`;
/** The page's lines for accounting in hostd.conf and in slurm.conf. */
const [rules = '', accounting = ''] = [
  ...readFileSync(join(repository, page), 'utf8').matchAll(/^```conf\n([\s\S]*?)^```$/gm),
].map(([, lines]) => lines);
const database = `AuthType=auth/munge
DbdHost=n1
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
`;
const setUp = `rm -f /usr/local/bin/vgpu-agent && ${repository}/scripts/install-agent
ip link add net0 type veth peer name net1 && ip address add 10.11.0.1/24 dev net0 && ip link set net0 up
hostname n1 && echo '10.11.0.1 n1' >>/etc/hosts
head -c 1024 /dev/urandom >/etc/munge/munge.key && chown munge: /etc/munge/munge.key && chmod 0400 /etc/munge/munge.key
mkdir -p /var/lib/slurm/slurmctld /var/spool/slurmd /run/slurm && chown -R slurm: /var/lib/slurm /run/slurm
chown slurm: /etc/slurm/slurmdbd.conf && chmod 0600 /etc/slurm/slurmdbd.conf
useradd --uid 1500 alice
systemctl restart munge mariadb
mariadb -e 'create database slurm_acct_db; create user slurm@localhost identified via unix_socket;
  grant all on slurm_acct_db.* to slurm@localhost'
systemctl restart slurmdbd
vgpu-agent install --unit slurmd --timeout 3 --yes || test $? = 4
`;
/** Holds GPU memory for some of the samples that Slurm takes each second. */
const job = `#!/bin/bash
echo "devices $CUDA_VISIBLE_DEVICES"
{ printf 'init\\nretain 0\\nctx 0\\nalloc ${held}\\n'; exec sleep 8; } | ${shell}
`;

describe('a node with AutoDetect=nvml and accounting', { skip }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-slurm-'));
  let guest: Guest;
  const bash = (text: string): Promise<string> => guest.must('bash', '-e', '-o', 'pipefail', '-c', text);
  const [block] = shellBlocks(page).filter((one) => one.mark === mark);
  before(async () => {
    guest = await Guest.start({ root: testRoot('slurm-nvml-trixie') });
    writeFileSync(join(directory, 'hostd.conf'), rules);
    await guest.hosts.start({ args: ['--config', join(directory, 'hostd.conf')] });
    await guest.write('/etc/slurm/cgroup.conf', 'CgroupPlugin=disabled\n');
    await guest.write('/etc/slurm/slurmdbd.conf', database);
    await guest.write('/opt/job', job, 0o755);
    await guest.write('/etc/slurm/slurm.conf', configuration + accounting);
    await bash(setUp);
  });
  after(async () => {
    await guest.stop();
    rmSync(directory, { recursive: true });
  });

  test('slurmd finds the GPU, its file and its cores through NVML', async () => {
    assert.ok(block !== undefined);
    const ran = await guest.run('bash', '-e', '-c', `sudo() { "$@"; }\n${block.text}`);
    assert.equal(ran.code, 0, ran.stderr);
    assert.equal(block.shows.length, 1);
    for (const line of block.shows)
      assert.ok(showsLine(ran.stdout + ran.stderr, line), ran.stdout + ran.stderr);
    assert.match(
      await bash('slurmd -C'),
      /Found gpu:nvidia_h100_80gb_hbm3_\(simulated\):1 with Autodetect=nvml/,
    );
    await bash('systemctl stop slurmd && systemctl restart slurmctld && systemctl start slurmd');
    const idle = async (): Promise<true | undefined> =>
      (await guest.run('sinfo', '--noheader', '--format=%t')).stdout === 'idle\n' ? true : undefined;
    await until('the node is idle', 60_000, idle).catch(async (error: unknown) =>
      assert.fail(
        `${String(error)}\n${await bash('scontrol show node n1; journalctl -u slurmctld -u slurmd -o cat | tail')}`,
      ),
    );
  });

  /** The record of a job of this user in Slurm's database. */
  const accounted = async (user: string): Promise<string> => {
    const ran = await guest.runWith({ user }, 'srun', '--chdir=/', '--gres=gpu:1', '/opt/job');
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(ran.stdout, /^devices 0$/m);
    assert.match(ran.stdout, /^alloc 0 /m);
    return until('the step is in the database', 60_000, async () => {
      const format = '--format=JobID,User,State,ElapsedRaw,AllocTRES,TRESUsageInMax';
      const text = await guest.must('sacct', '--allusers', '--noheader', '--parsable2', format);
      const last = text.trim().split('\n').at(-1) ?? '';
      return /^\d+\.0\|\|COMPLETED\|/.test(last) &&
        text.split('\n').some((line) => line.includes(`|${user}|`))
        ? last
        : undefined;
    });
  };

  for (const user of ['root', 'alice'])
    test(`sacct has the GPU, the time and the GPU memory of a job of ${user}`, async () => {
      const step = await accounted(user);
      assert.match(step, /\|COMPLETED\|(?:[89]|\d\d)\|.*gres\/gpu=1/);
      assert.match(step, /gres\/gpumem=1G/);
      assert.match(step, /gres\/gpuutil=0/, 'as the page says');
    });
});
