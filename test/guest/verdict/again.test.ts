// The commands around a verdict: verify and status over an installation's life, taking back on failure,
// stopping in the middle.

import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { after, before as beforeAll, describe, test } from 'node:test';
import { consumerDesigns, whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { ended, until } from '../support/process.js';
import {
  assertServes,
  assertVerdict,
  errorOf,
  evidence,
  installedGpu,
  ready,
  settings,
  tell,
} from '../support/scenario.js';
import { settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const quickest = consumerDesigns().find((design) => design === 2) ?? consumerDesigns()[0] ?? 3;
const link = '/usr/lib/x86_64-linux-gnu/libcuda.so.1';

/** A guest whose listing can come back byte for byte: this machine's loader cache may be old. */
async function settled(...[t, options]: Parameters<typeof ready>): Promise<Guest> {
  const guest = await ready(t, options);
  await guest.must('ldconfig');
  return guest;
}

describe('verify and status', { skip }, () => {
  test('over the life of an installation', async (t) => {
    const guest = await settled(t, { design: quickest });

    const bare = await tell(guest, 'status');
    assert.equal(bare.code, 0);
    assert.deepEqual([bare.document.installed, bare.document.verdict, bare.document.drift], [null, null, []]);
    const never = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'cpu',
      reason: 'shim-not-loaded',
    });
    assert.equal(never.next, 'sudo vgpu-agent install');

    const before = await guest.listing();
    const running = await guest.invocationId('ollama');
    const dry = await tell(guest, 'install', '--dry-run');
    assert.deepEqual([dry.code, dry.document.outcome, dry.document.changed], [0, 'dry-run', 0]);
    const plan = await tell(guest, 'plan');
    assert.deepEqual(plan.document.plan, dry.document.plan);
    assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
    assert.equal(await guest.invocationId('ollama'), running);

    const first = await installedGpu(guest);
    const status = await tell(guest, 'status');
    await assertVerdict(guest, status, { mode: 'gpu' });
    assert.deepEqual(status.document.drift, []);
    assert.equal(status.document.installed?.profile, 'ollama');
    assert.equal(status.document.host.answer.kind, 'answers');
    const start = await guest.invocationId('ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    assert.equal(await guest.invocationId('ollama'), start, 'verify restarts nothing');

    // The consumer crashes and systemd starts it again: the new start is judged.
    await settings(guest, 'RestartSec=100ms');
    await guest.must('systemctl', 'kill', '--signal=SEGV', 'ollama');
    await until('systemd starts it again', 60_000, async () => {
      const now = await guest.invocationId('ollama');
      const active = await guest.property('ollama', 'ActiveState');
      return now !== start && active === 'active' ? true : undefined;
    });
    const second = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    assert.notEqual(second.invocationId, first.invocationId);

    // A user replaces a public link: drift, while the service still is on the GPU.
    await guest.must('ln', '-sfn', '/nonexistent', link);
    const drifted = await tell(guest, 'status');
    await assertVerdict(guest, drifted, { mode: 'gpu' });
    assert.ok(
      drifted.document.drift.some(({ change }) => change === `link ${link}`),
      JSON.stringify(drifted.document.drift),
    );
    const told = await guest.agent('status');
    assert.match(
      told.stdout,
      /^drift {7}\d changes? would repair it: sudo vgpu-agent install\n {12}link .*libcuda\.so\.1$/m,
    );
    await installedGpu(guest);
    assert.deepEqual((await tell(guest, 'status')).document.drift, []);

    const removed = await tell(guest, 'uninstall', '--yes');
    assert.equal(removed.code, 0, removed.stderr);
    const gone = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'cpu',
      reason: 'shim-not-loaded',
    });
    assert.equal(gone.next, 'sudo vgpu-agent install');
    assert.equal((await tell(guest, 'status')).document.installed, null);
    await assertServes(guest);
  });
});

/** One guest: each test leaves it on the GPU. */
describe('an installation', { skip }, () => {
  let guest: Guest;
  beforeAll(async () => {
    guest = await ready(undefined, { design: quickest });
    await installedGpu(guest);
  });
  after(() => guest.stop());

  test('an upgrade that fails goes back to the former version', async () => {
    const before = await guest.listing();
    const ran = await guest.agent(
      'install',
      '--yes',
      '--rollback-on-failure',
      '--host',
      'unix:/run/vgpu/nobody.sock',
      '--allow-unreachable-host',
    );
    assert.equal(ran.code, 7, ran.stderr);
    assert.deepEqual(before.diff(await guest.listing()), []);
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
  });

  test('another GPU at the host since: degraded until the consumer looks again', async () => {
    await guest.hosts.start({ profile: 't4' });
    const verdict = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'degraded',
      reason: 'probe-disagrees',
    });
    assert.match(verdict.summary, /it names NVIDIA H100 80GB HBM3 \(simulated\), vgpu-probe finds .*T4/);
    await guest.must('systemctl', 'restart', 'ollama');
    const again = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    assert.match(again.devices[0]?.name ?? '', /T4/);
    assert.equal(again.devices[0]?.compute, '7.5');
  });

  test('the package manager is not asked about our own library', async () => {
    await guest.write('/run/dpkg-query', '#!/bin/sh\ntouch /run/asked\n', 0o755);
    await guest.must('mount', '--bind', '/run/dpkg-query', '/usr/bin/dpkg-query');
    await guest.agent('plan');
    assert.equal(await guest.exists('/run/asked'), false);
    const library = '/usr/local/lib/libcuda.so';
    for (const other of [
      `touch ${library}`,
      `ln -s $(readlink -f /opt/vgpu/current)/libcuda.so.1 ${library}`, // past the link that follows upgrades
    ]) {
      await guest.must('sh', '-c', other);
      await guest.agent('plan');
      await guest.must('rm', library);
      assert.ok(await guest.exists('/run/asked'), `about another one it is: ${other}`);
      await guest.must('rm', '/run/asked');
    }
    await guest.must('umount', '/usr/bin/dpkg-query');
  });

  test('a service that is stopped is undetermined, not cpu', async () => {
    await guest.must('systemctl', 'stop', 'ollama');
    for (const command of ['verify', 'status'] as const) {
      const told = await tell(guest, command);
      const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'unit-failed' });
      assert.match(verdict.summary, /^ollama is not running \(inactive \(dead\)/);
      assert.ok(told.ms < 60_000, `${told.ms} ms`);
    }
    await guest.must('systemctl', 'start', 'ollama');
  });

  test('--timeout bounds verify too, and a fraction of a second is allowed', {
    skip: whyNoStandIn(),
  }, async () => {
    await settings(guest, 'Environment=STANDIN_DELAY_MS=600000');
    await guest.must('systemctl', 'restart', 'ollama');
    const waited = async (timeout: string): Promise<number> => {
      const told = await tell(guest, 'verify', '--timeout', timeout);
      // On a busy machine the journal and the probe do not answer in so short a time either.
      const reason = ['readiness-timeout', 'journal-unavailable', 'host-slow'] as const;
      const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason });
      const seconds = Number(/no answer in (\d+\.\d) s/.exec(evidence(verdict, 'readiness').join())?.[1]);
      assert.ok(seconds >= Number(timeout) && seconds * 1000 <= told.ms, `${seconds} s of ${told.ms} ms`);
      return seconds;
    };
    assert.ok((await waited('0.5')) < (await waited('8')));
    await settings(guest);
    await guest.must('systemctl', 'restart', 'ollama');
  });
});

describe('install that does not restart', { skip }, () => {
  test('gives no verdict; verify then says that the consumer is older than the shim', async (t) => {
    const guest = await ready(t, { design: quickest });
    const begun = await guest.invocationId('ollama');
    const told = await tell(guest, 'install', '--yes', '--no-restart');
    assert.equal(told.code, 0, told.stderr);
    assert.equal(told.document.verdict, null);
    assert.deepEqual(told.document.restart, { kind: 'not-planned' });
    assert.equal(await guest.invocationId('ollama'), begun);
    const verify = await tell(guest, 'verify');
    const verdict = await assertVerdict(guest, verify, { mode: 'cpu', reason: 'consumer-not-restarted' });
    assert.match(
      verdict.summary,
      /it was started before the shim was in place \(process \d+ \(ollama\) lacks the unit's LD_LIBRARY_PATH\)/,
    );
    await guest.must('systemctl', 'restart', 'ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
  });
});

describe('--rollback-on-failure', { skip }, () => {
  test('the host is down: exit 7, everything as before, and the consumer runs', async (t) => {
    const guest = await settled(t, { design: quickest, host: false });
    const before = await guest.listing();
    const begun = await guest.invocationId('ollama');
    const insists = ['--yes', '--rollback-on-failure', '--allow-unreachable-host'];
    const told = await tell(guest, 'install', ...insists);
    assert.equal(told.code, 7, told.stderr);
    const { outcome, changed, verdict } = told.document;
    assert.deepEqual(
      [outcome, changed, verdict?.mode, verdict?.reason],
      ['rolled-back', 0, 'cpu', 'host-unreachable'],
    );
    assert.match(verdict?.next ?? '', /^sudo vgpu-agent install --profile ollama --host /);
    assert.deepEqual(before.diff(await guest.listing()), []);
    assert.notEqual(await guest.invocationId('ollama'), begun, 'restarted, so that it lets our library go');
    await assertServes(guest);
    const main = await guest.property('ollama', 'MainPID');
    assert.doesNotMatch(await guest.must('cat', `/proc/${main}/environ`, `/proc/${main}/maps`), /vgpu/);
    assert.equal((await tell(guest, 'status')).document.interrupted, false);

    const text = await guest.agent('install', ...insists, '--quiet');
    assert.equal(text.code, 7);
    assert.match(text.stdout, /^everything was undone; ollama\.service runs as before$/m);
    assert.match(text.stdout, /^after the repair: sudo vgpu-agent install/m);
    // Without the option the CPU is reported with the same reason, and the installation stays.
    await assertVerdict(guest, await tell(guest, 'install', '--yes', '--allow-unreachable-host'), {
      mode: 'cpu',
      reason: 'host-unreachable',
    });
    assert.ok(await guest.exists('/opt/vgpu/current'));
  });

  test('with the GPU there it is no different, and a service that does not begin takes everything back', async (t) => {
    const guest = await ready(t, { design: quickest });
    await installedGpu(guest, '--rollback-on-failure');
    const again = await guest.agent('uninstall', '--yes');
    assert.equal(again.code, 0, again.stderr);

    const dropIns = '/run/systemd/system/vgpu-agent.service.d';
    await guest.must('mkdir', '-p', dropIns);
    await guest.runWith({ stdin: '[Service]\nExecStartPre=/bin/false\n' }, 'tee', `${dropIns}/broken.conf`);
    const before = await guest.listing();
    const ran = await guest.agent('install', '--yes', '--service', '--rollback-on-failure');
    assert.equal(ran.code, 7, ran.stderr);
    assert.match(ran.stderr, /vgpu-agent\.service is installed but not up: .*Everything was undone/);
    assert.deepEqual(before.diff(await guest.listing()), []);
    assert.equal(await guest.exists('/etc/systemd/system/vgpu-agent.service'), false);
    await assertServes(guest);
    await guest.must('rm', `${dropIns}/broken.conf`);

    // It begins, sees another file than is there, cannot write it, and gives up after some tries.
    await guest.write(`${dropIns}/narrow.conf`, '[Service]\nInaccessiblePaths=-/etc/vgpu/guest.conf\n');
    const unsettled = await guest.agent('install', '--yes', '--service', '--rollback-on-failure');
    assert.equal(unsettled.code, 1, unsettled.stderr);
    assert.match(
      unsettled.stderr,
      /installed but not up: .*it failed 5 times in a row, so the next try is in 60 minutes/s,
    );
    await assertServes(guest);

    // Its changes stay, and no undo log is left.
    await guest.must('rm', `${dropIns}/narrow.conf`);
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'restart', 'vgpu-agent');
    await installedGpu(guest, '--service', '--rollback-on-failure');
    await settledOnGpu(guest);
    assert.equal(await guest.must('ls', '/var/lib/vgpu-agent'), 'backup\nmanifest.json\n');
  });
});

/** Sends a signal to the agent that runs in the guest: the program itself, not what started it. */
async function signalAgent(guest: Guest, signal: string): Promise<void> {
  await guest.must('pkill', `--signal=${signal}`, '--full', 'bin/vgpu-agent');
}

interface Running {
  readonly child: ChildProcess;
  readonly said: () => string;
  readonly stdout: () => string;
  readonly end: Promise<number>;
}

function launch(guest: Guest, ...args: readonly string[]): Running {
  const child = guest.spawn(['vgpu-agent', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  let stdout = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  return { child, said: () => said, stdout: () => stdout, end: ended(child) };
}

describe('stopped in the middle', { skip: skip || whyNoStandIn(), concurrency: 2 }, () => {
  test('while the verdict is waited for: exit 130, what was installed stays', async (t) => {
    const guest = await ready(t, { design: quickest, start: false, env: { STANDIN_DELAY_MS: '6000' } });
    // SIGTERM: commands/followers.test.ts; SIGINT: command-line-terminal.test.ts.
    const agent = launch(guest, 'install', '--yes', '--json');
    await until('it looks at the consumer', 60_000, () =>
      agent.said().includes('finding out where ollama.service runs') ? true : undefined,
    );
    const asked = Date.now();
    await signalAgent(guest, 'HUP');
    assert.equal(await agent.end, 130, agent.said());
    assert.ok(Date.now() - asked < 40_000, 'at once');
    const error = errorOf({ code: 130, stdout: agent.stdout(), stderr: agent.said() });
    assert.match(error.message, /^stopped while waiting for the verdict; what was installed stays$/);
    assert.match(error.remedy ?? '', /vgpu-agent verify .*vgpu-agent uninstall/);
    const status = await tell(guest, 'status');
    assert.equal(status.document.interrupted, false);
    assert.notEqual(status.document.installed, null);
    assert.equal((await guest.agent('uninstall', '--yes')).code, 0);
    // A person who stops it with --rollback-on-failure keeps what is installed, too.
    const insisting = launch(guest, 'install', '--yes', '--rollback-on-failure');
    await until('it looks at the consumer', 60_000, () =>
      insisting.said().includes('finding out where ollama.service runs') ? true : undefined,
    );
    await signalAgent(guest, 'INT');
    assert.equal(await insisting.end, 130, insisting.said());
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    const kept = await tell(guest, 'status');
    assert.notEqual(kept.document.installed, null);
    assert.equal(kept.document.interrupted, false);
    assert.equal((await guest.agent('uninstall', '--yes')).code, 0);
    // Twice: it ends at once, and the next command finishes the work.
    const hurried = launch(guest, 'install', '--yes');
    await until('it looks at the consumer', 60_000, () =>
      hurried.said().includes('finding out where ollama.service runs') ? true : undefined,
    );
    await signalAgent(guest, 'INT');
    await signalAgent(guest, 'INT').catch(() => undefined); // it may be gone already
    assert.equal(await hurried.end, 130);
    await installedGpu(guest);
  });

  test('SIGINT while files are changed: the step is finished, everything is taken back, exit 130', async (t) => {
    const guest = await settled(t, { design: quickest });
    const before = await guest.listing();
    const consumer = await guest.invocationId('ollama');
    // ldconfig waits until the signal was sent, except with `-p`, which only reads the cache.
    await guest.must('mkdir', '/run/slow');
    await guest.must('cp', '/sbin/ldconfig', '/run/slow/real');
    await guest.write(
      '/run/slow/ldconfig',
      '#!/bin/sh\n[ "$1" = -p ] || { touch /run/slow/called; until [ -e /run/slow/go ]; do sleep 0.1; done; }\nexec /run/slow/real "$@"\n',
      0o755,
    );
    await guest.must('mount', '--bind', '/run/slow/ldconfig', '/sbin/ldconfig');
    const agent = launch(guest, 'install', '--yes');
    await until('it runs ldconfig', 60_000, async () =>
      (await guest.exists('/run/slow/called')) ? true : undefined,
    );
    await signalAgent(guest, 'INT');
    await guest.must('touch', '/run/slow/go');
    const code = await agent.end;
    await guest.must('umount', '/sbin/ldconfig');
    assert.equal(code, 130, agent.said());
    assert.match(agent.said(), /^undone: link .*libcuda\.so\.1$/m);
    assert.deepEqual(before.diff(await guest.listing()), []);
    assert.equal(await guest.invocationId('ollama'), consumer);
    assert.equal((await tell(guest, 'status')).document.interrupted, false);
  });
});
