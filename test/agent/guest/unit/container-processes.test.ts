/** The processes of a container that only docker's daemon knows, for several callers at a time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { withContainers } from '../../../../agent/guest/unit/container-processes.js';
import type { Manager } from '../../../../agent/systemd/types.js';
import { unit } from '../../install/plan/support.js';

const unused = async (): Promise<never> => {
  throw new Error('not expected here');
};

const manager: Manager = {
  unit: async () =>
    unit({ execStart: ['/usr/bin/docker', 'run', '--rm', '--name', 'web', 'image:1'], mainPid: 0 }),
  processes: async () => [],
  reload: unused,
  restart: unused,
  start: unused,
  stop: unused,
  watchExit: unused,
  kill: unused,
  close() {},
};

test('callers that come while docker is asked get the same answer, from one question', async () => {
  let questions = 0;
  const containers = withContainers(manager, {
    pid: async () => {
      questions += 1;
      await sleep(30);
      return process.pid;
    },
    composed: async (same) => same,
  });
  const answers = await Promise.all([1, 2, 3].map(async () => containers.processes('web.service')));
  for (const pids of answers) assert.ok(pids.includes(process.pid), pids.join());
  assert.equal(questions, 1);
  assert.ok((await containers.processes('web.service')).includes(process.pid), 'known');
  assert.equal(questions, 1, 'as long as the container lives');
});

test('docker is asked again 100 ms after an answer without a container', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  let questions = 0;
  const containers = withContainers(manager, {
    pid: async () => {
      questions += 1;
      return questions < 2 ? null : process.pid;
    },
    composed: async (same) => same,
  });
  assert.deepEqual(await containers.processes('web.service'), []);
  assert.deepEqual(await containers.processes('web.service'), [], 'at once');
  assert.equal(questions, 1);
  now += 110;
  assert.ok((await containers.processes('web.service')).includes(process.pid));
});
