// docs/howto/slurm.md, word for word: a controller with a node, and a second node, each a guest with a simulated host.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Guest } from './support/guest.js';
import { type Ran, until } from './support/process.js';
import { type Cluster, startCluster, whyNoSlurm } from './support/slurm.js';

const probe = '/opt/vgpu/current/vgpu-probe --compute';

describe('a cluster of two nodes', { skip: whyNoSlurm() }, () => {
  let cluster: Cluster;
  const node = (index: 0 | 1): Guest => cluster.nodes[index];
  before(async () => {
    cluster = await startCluster('docs/howto/slurm.md');
  });
  after(() => cluster.stop());
  const srun = (user: string, ...words: readonly string[]): Promise<Ran> => cluster.srun(user, ...words);

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
    await until('the job begins', 60_000, async () =>
      (await node(1).exists('/tmp/began')) ? true : undefined,
    );
    const inside = await node(1).runWith({ user: 'bob' }, 'bash', '-c', probe);
    assert.notEqual(inside.code, 0, inside.stdout);
    const owner = await node(1).runWith({ user: 'alice' }, 'bash', '-c', probe);
    assert.equal(owner.code, 0, `the limit that the page names: ${owner.stderr}`);
    await node(1).must('touch', '/tmp/end');
    assert.equal((await holds).code, 0);
    await until('the socket is closed again', 60_000, async () =>
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
