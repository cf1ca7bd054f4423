// Verdicts and the log they are read from: where it is, what is in it, and which part of it is old.

import assert from 'node:assert/strict';
import { after, before as beforeAll, describe, test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { ended, until } from '../support/process.js';
import {
  assertServes,
  assertVerdict,
  evidence,
  installedGpu,
  ready,
  settings,
  tell,
} from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const skipKnobs = skip || whyNoStandIn();

test('a consumer goes from the CPU to the GPU, and the verdict shows the evidence', {
  skip,
}, async (t) => {
  const guest = await ready(t, { design: 3 });
  const before = await guest.invocationId('ollama');
  // systemd calls it started before it has looked for GPUs.
  await until('CPU before', 60_000, async () =>
    (await guest.journal('ollama', before)).find(({ message }) => /library=cpu/.test(message)),
  );
  const verdict = await installedGpu(guest);
  assert.notEqual(verdict.invocationId, before);
  assert.equal(verdict.consumerVersion, '0.32.9');
  assert.equal(verdict.devices[0]?.name, 'NVIDIA H100 80GB HBM3 (simulated)');
  assert.match(evidence(verdict, 'readiness').join(), /it answers requests/);
  await assertServes(guest);
});

const file = '/var/log/consumer.log';
/** The consumer, which says nothing at all for a while. */
const silent = ['ExecStart=', 'ExecStart=/bin/sh -c "sleep 60; exec /usr/local/bin/ollama serve"'];

describe('output that does not go to the journal', { skip }, () => {
  for (const [name, lines, read] of [
    ['a file emptied at each start', [`StandardError=truncate:${file}`], true],
    [
      'standard output nowhere, standard error to the journal',
      ['StandardOutput=null', 'StandardError=journal'],
      true,
    ],
    ["a namespace of the journal's", ['LogNamespace=apart'], true],
    ['a file written over from its beginning', [`StandardError=file:${file}`], false],
    ['lines dropped by their level', ['LogLevelMax=warning'], false],
  ] as const) {
    test(`${name}: ${read ? 'gpu by what is read' : 'undetermined, with the remedy'}`, async (t) => {
      const guest = await ready(t);
      await settings(guest, ...lines);
      const told = await tell(guest, 'install', '--yes');
      if (read) {
        await assertVerdict(guest, told, { mode: 'gpu' });
        await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
      } else {
        const verdict = await assertVerdict(guest, told, {
          mode: 'undetermined',
          reason: 'output-bypasses-journal',
        });
        assert.match(
          verdict.summary,
          new RegExp(`\\(${lines[0]}; set (?:Standard|LogLevelMax=info).* under \\[Service\\]\\)`),
        );
        assert.match(verdict.next ?? '', /systemctl edit ollama\.service/);
        assert.ok(told.ms < 60_000, `${told.ms} ms: nothing was to be waited for`);
      }
      await assertServes(guest);
    });
  }

  test('old lines in the file never count: on the CPU now, it says cpu', async (t) => {
    const guest = await ready(t);
    await settings(guest, `StandardOutput=append:${file}`, `StandardError=append:${file}`);
    await installedGpu(guest);
    assert.match(await guest.read(file), /library=CUDA/);
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    // Started again by another user: the drop-in has noted where the new start begins.
    await guest.must('systemctl', 'restart', 'ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    await guest.hosts.stop();
    await guest.must('systemctl', 'restart', 'ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'cpu', reason: 'host-unreachable' });
    // A file that took the place of the one that the start wrote to (logrotate) says nothing of it.
    await guest.must('sh', '-c', `mv ${file} ${file}.1; cp ${file}.1 ${file}`);
    await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'undetermined',
      reason: 'output-bypasses-journal',
    });
    await guest.hosts.start();
    // Another address is a change: install restarts it, and knows where the file ended before.
    const nobody = ['--host', 'unix:/run/vgpu/nobody.sock', '--allow-unreachable-host'];
    const moved = await tell(guest, 'install', '--yes', ...nobody);
    await assertVerdict(guest, moved, { mode: 'cpu', reason: 'host-unreachable' });
  });
});

test('old lines in the file do not speak for a start that has said nothing yet', { skip }, async (t) => {
  const guest = await ready(t);
  await settings(guest, `StandardError=append:${file}`);
  await installedGpu(guest);
  await settings(guest, `StandardError=append:${file}`, ...silent);
  const told = await tell(
    guest,
    'install',
    '--yes',
    '--host',
    'unix:/run/vgpu/../vgpu/hostd.sock',
    '--timeout',
    '5',
  );
  assert.deepEqual(told.document.restart, { kind: 'restarted', job: 'done' });
  const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'readiness-timeout' });
  assert.deepEqual(verdict.devices, []);
});

describe('old lines in the journal', { skip }, () => {
  let guest: Guest;
  let gpu: Verdict;
  beforeAll(async () => {
    guest = await ready(undefined);
    gpu = await installedGpu(guest);
  });
  after(() => guest.stop());

  test('a former start said CUDA, this one is on the CPU: cpu, exit 3', async () => {
    await guest.hosts.stop('SIGKILL');
    await guest.must('systemctl', 'restart', 'ollama');
    const cpu = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'cpu',
      reason: 'host-unreachable',
    });
    assert.notEqual(cpu.invocationId, gpu.invocationId);
    assert.doesNotMatch(evidence(cpu, 'log-line').join('\n'), /library=CUDA/i);
    assert.deepEqual(cpu.devices, []);
    const status = await tell(guest, 'status');
    await assertVerdict(guest, status, { mode: 'cpu', reason: 'host-unreachable' });
    await assertServes(guest);
    await guest.hosts.start();
  });

  test('from an earlier start do not count for a start that has logged nothing yet', {
    skip: whyNoStandIn(),
  }, async () => {
    await settings(guest, ...silent);
    await guest.must('systemctl', 'restart', 'ollama');
    const told = await tell(guest, 'verify', '--timeout', '5');
    const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'readiness-timeout' });
    assert.deepEqual(verdict.devices, []);
    assert.deepEqual(evidence(verdict, 'log-line'), []);
  });

  test('from an earlier start do not count when they appear again before this one begins', async () => {
    const line = evidence(gpu, 'log-line').find((text) => /library=CUDA/i.test(text)) ?? '';
    assert.notEqual(line, '');
    await guest.write('/var/log/old.log', `${line}\n`);
    await settings(
      guest,
      'ExecStartPre=/bin/cat /var/log/old.log',
      'Environment=VGPU_HOST=unix:/nonexistent',
    );
    await guest.must('systemctl', 'restart', 'ollama');
    const told = await tell(guest, 'verify');
    await assertVerdict(guest, told, { mode: 'cpu', reason: 'host-unreachable' });
  });
});

/**
 * Rotates the journal and vacuums all but its newest files away, again and again, until told to stop. They reach ten seconds
 * back at least: a reader on a busy machine is seconds late, and no reader can have what was vacuumed before it came there.
 */
async function restless(guest: Guest): Promise<() => Promise<void>> {
  const script =
    'trap exit TERM; for ((i = 0; i < 11; i++)); do journalctl -q --rotate; done; echo up; while :; do journalctl -q --rotate; journalctl -q --vacuum-files=10; kill -USR2 $(pidof systemd-journald); sleep 1; done';
  const child = guest.spawn(['bash', '-c', script], { stdio: ['ignore', 'pipe', 'ignore'] });
  await new Promise<void>((resolve) => child.stdout?.once('data', () => resolve()));
  return async () => {
    const over = ended(child);
    child.kill('SIGTERM');
    await over;
  };
}

describe('a journal that never stops growing', { skip: skipKnobs }, () => {
  test('it rotates and is vacuumed while we follow, among many lines', async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_NOISE: '3000', STANDIN_DELAY_MS: '800' } });
    const oldest = (): Promise<string> => guest.must('sh', '-c', 'journalctl -q --no-pager | head -n 1');
    const stop = await restless(guest);
    const before = await oldest();
    try {
      await assertVerdict(guest, await tell(guest, 'install', '--yes'), { mode: 'gpu' });
      await until('files are vacuumed away', 60_000, async () => (await oldest()) !== before || undefined);
    } finally {
      await stop();
    }
  });

  test('journald drops lines of a consumer that says too much: undetermined, never a guess', async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_NOISE: '300' } });
    await settings(guest, 'LogRateLimitIntervalSec=30', 'LogRateLimitBurst=50');
    const told = await tell(guest, 'install', '--yes');
    await assertVerdict(guest, told, { mode: 'undetermined', reason: 'no-discovery-line' });
    await assertServes(guest);
  });
});

describe('lines in an unexpected form', { skip: skipKnobs }, () => {
  const garbage = Buffer.from([
    0xff,
    0xfe,
    0x80,
    0x0a,
    0xc3,
    0x28,
    0x0a,
    0x00,
    0x41,
    0x0a,
    ...Buffer.from('msg="inference compute" library=\xff\xfe\n', 'latin1'),
  ]);

  test('bytes that are not UTF-8, before and after the announcement', async (t) => {
    const guest = await ready(t, {
      start: false,
      env: { STANDIN_LINES_BEFORE: '/var/log/garbage', STANDIN_LINES_AFTER: '/var/log/garbage' },
    });
    await guest.write('/var/log/garbage', garbage);
    await installedGpu(guest);
    assert.ok(
      (await guest.journal('ollama')).some(({ message }) => message.includes('\xff')),
      'they reached the journal',
    );
    await settings(guest, 'Environment=OLLAMA_LLM_LIBRARY=cpu');
    await guest.must('systemctl', 'restart', 'ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'cpu', reason: 'library-forced-to-cpu' });
  });
});

describe('discovery that takes its time', { skip: skipKnobs }, () => {
  test('longer than --timeout: undetermined, in time; verify waits for it and reports that', async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_DELAY_MS: '8000' } });
    const told = await tell(guest, 'install', '--yes', '--timeout', '2');
    const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'readiness-timeout' });
    assert.match(verdict.summary, /did not answer requests in time/);
    assert.ok(told.ms < 40_000, `${told.ms} ms`);
    await guest.must('systemctl', 'restart', 'ollama');
    const verified = await tell(guest, 'verify');
    await assertVerdict(guest, verified, { mode: 'gpu' });
    assert.match(verified.stderr, /^waiting for ollama to say which device it uses \([\d.]+ s of at most/m);
  });
});
