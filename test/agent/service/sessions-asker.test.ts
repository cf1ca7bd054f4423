/** The program that stays and answers each line: reused, replaced when it ends, and never believed out of step. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { sessionsAsker } from '../../../agent/service/sessions-asker.js';
import type { SessionsAnswer } from '../../../agent/verdict/observation.js';
import type { SessionsQuestion } from '../../../agent/verdict/watch-present.js';

const question: SessionsQuestion = {
  program: '/opt/x/vgpu-probe',
  pid: process.pid,
  host: 'unix:/x',
  signal: new AbortController().signal,
};
const once: SessionsAnswer = { kind: 'unknown', message: 'asked once' };
const told = JSON.stringify({
  schema: 1,
  ok: true,
  host: 'h',
  simulated: true,
  turnedAway: { count: 0, status: 0, age: 0 },
  refusedKernels: { count: 0, age: 0, program: '', kernel: '' },
  memory: null,
  sessions: [],
});

function asker(script: string) {
  const started: string[] = [];
  const made = sessionsAsker(
    async () => once,
    (file, args) => {
      started.push([file, ...args].join(' '));
      const child = spawn('sh', ['-c', script], { stdio: ['pipe', 'pipe', 'ignore'] });
      return { child, input: child.stdin, answered: () => {} };
    },
  );
  return { ...made, started };
}

test('one program answers all questions of a user and a host, started by systemd as that user', async (t) => {
  const { ask, stop, started } = asker(`while read -r line; do echo '${told}'; done`);
  t.after(stop);
  for (const _ of [1, 2]) assert.equal((await ask(question)).kind, 'told');
  assert.equal(started.length, 1);
  assert.match(
    started[0] ?? '',
    /^systemd-run .*--pipe -- setpriv .*--no-new-privs -- \/opt\/x\/vgpu-probe --sessions --follow --host unix:\/x /,
  );
  assert.equal((await ask({ ...question, host: 'unix:/y' })).kind, 'told');
  assert.equal(started.length, 2);
});

test('one that ends, such as a vgpu-probe that does not know --follow, is asked once in the former way', async (t) => {
  const { ask, stop, started } = asker('exit 2');
  t.after(stop);
  assert.deepEqual(await ask(question), once);
  assert.deepEqual(await ask(question), once);
  assert.equal(started.length, 2, 'and tried again the next time');
});

test('of a process that has ended nothing is asked', async (t) => {
  const { ask, stop, started } = asker('cat');
  t.after(stop);
  assert.equal((await ask({ ...question, pid: 2 ** 22 })).kind, 'unknown');
  assert.deepEqual(started, []);
});
