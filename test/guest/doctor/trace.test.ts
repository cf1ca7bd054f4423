// doctor --trace: which library each CUDA symbol of a real start is taken from; and nothing of it stays, whatever
// happens to the doctor meanwhile. One guest.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { DoctorDocument } from '../../../agent/cli/commands/doctor.js';
import type { Finding } from '../../../agent/verdict/doctor/finding.js';
import { whyNoConsumer, whyNoOllama, whyNoStandIn } from '../support/consumer.js';
import { assertHealthy, doctor } from '../support/doctor.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { assertAnswers } from '../support/installed.js';
import { ended, until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { installedGpu, ready, restartConsumer, settings } from '../support/scenario.js';
import { said } from '../support/service.js';
import { Terminal, whyNoTerminal } from '../support/terminal.js';

const skipBoth =
  whyNoGuest() || whyNoHostd() || (process.arch === 'x64' ? false : 'the tracer is made for x86-64');
const skip = skipBoth || whyNoConsumer() || whyNoStandIn();
const noTerminal = await whyNoTerminal();
const fake = join(repository, 'build/consumer/fake/libcuda-fake.so');
const trace = ['--trace', '--yes'] as const;

function findingOf(document: DoctorDocument): Finding {
  const check = document.checks.find(({ id }) => id === 'traced-bindings');
  assert.ok(check !== undefined);
  return check.finding;
}

function evidenceOf(document: DoctorDocument): string {
  const finding = findingOf(document);
  return 'evidence' in finding ? finding.evidence.join('\n') : '';
}

/** No file of a trace, and the service runs without it. */
async function assertNothingLeft(guest: Guest): Promise<void> {
  const left = await guest.must('sh', '-c', 'find /run/systemd/system /run/vgpu-agent -name "*trace*"');
  assert.equal(left, '');
  const set = await guest.must('systemctl', 'show', '-p', 'Environment', '-p', 'NeedDaemonReload', 'ollama');
  assert.doesNotMatch(set, /trace/i);
  assert.match(set, /NeedDaemonReload=no/);
  const pid = await guest.property('ollama', 'MainPID');
  assert.doesNotMatch(await guest.must('cat', `/proc/${pid}/environ`), /TRACE/);
  assert.doesNotMatch(await guest.must('cat', `/proc/${pid}/maps`), /libvgpu-trace/);
}

/** Starts a trace of a service that takes a minute to look for GPUs, and waits until the traced start runs. */
async function inTheMiddle(guest: Guest): Promise<{ readonly end: Promise<number>; readonly pid: string }> {
  await settings(guest, 'Environment=STANDIN_DELAY_MS=60000');
  const child = guest.spawn(['vgpu-agent', 'doctor', ...trace], { stdio: 'ignore' });
  const end = ended(child);
  await until('the traced start runs', 60_000, async () => {
    const pid = await guest.property('ollama', 'MainPID');
    const maps = await guest.run('grep', '-q', 'libvgpu-trace', `/proc/${pid}/maps`);
    return maps.code === 0 ? true : undefined;
  });
  const [pid = ''] = (await guest.read('/run/vgpu-agent/lock')).split(' ');
  return { end, pid };
}

describe('doctor --trace', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await ready(undefined, { design: 3 });
    await installedGpu(guest);
  });
  after(() => guest?.stop());

  test('without --yes and without a terminal it refuses', async () => {
    const ran = await guest.agent('doctor', '--trace');
    assert.equal(ran.code, 2, ran.stderr);
    assert.match(ran.stderr, /doctor --trace --yes/);
    await assertNothingLeft(guest);
  });

  test('a healthy start shows the symbols of each process, and leaves nothing behind', async () => {
    const before = await guest.listing();
    const document = await doctor(guest, ...trace);
    assertHealthy(document);
    assert.match(
      evidenceOf(document),
      /^llama-server \(.*\): 11 symbols of libggml-cuda\.so -> vgpu-agent's libcuda\.so\.1/m,
    );
    assert.match(
      evidenceOf(document),
      /^ollama \(.*\): \d+ symbols that ollama looked up -> vgpu-agent's libnvidia-ml\.so\.1/m,
    );
    assert.equal(document.trace?.outcome, 'traced');
    assert.equal(document.trace?.strange, 0);
    const servers =
      document.trace?.processes.filter(({ program }) => program?.endsWith('/llama-server')) ?? [];
    assert.ok(servers.length >= 4, JSON.stringify(servers));
    for (const { bindings } of servers) {
      assert.deepEqual(bindings.map(({ way, vendor }) => `${way} ${vendor}`).sort(), [
        'dlsym vgpu',
        'driver vgpu',
        'linked vgpu',
      ]);
    }
    const main = document.trace?.processes.find(({ asked }) => !asked);
    assert.equal(main?.program, '/usr/local/bin/ollama', 'serve itself opens no driver');
    await assertNothingLeft(guest);
    assert.deepEqual(before.diff(await guest.listing()), []);
  });

  test('another libcuda that the unit puts before ours is named, with what is taken from it', async () => {
    await settings(guest, `Environment=LD_PRELOAD=${fake}`);
    try {
      const document = await doctor(guest, ...trace);
      const finding = findingOf(document);
      assert.ok(finding.kind === 'broken', JSON.stringify(finding));
      assert.match(
        finding.cause,
        /^(llama-server|ollama) \(.*\) calls \S+libcuda-fake\.so, from neither vgpu-agent nor NVIDIA/,
      );
      const line =
        /^llama-server \(.*\): 11 symbols of libggml-cuda\.so -> \S+libcuda-fake\.so, from neither vgpu-agent/m;
      assert.match(evidenceOf(document), line);
      assert.match(finding.remedy.command, /libcuda-fake\.so/);
    } finally {
      await settings(guest);
    }
  });

  test('in a sandbox, as a user made at the start, with RTLD_DEEPBIND: it says that not all is seen', async () => {
    await settings(
      guest,
      'ProtectSystem=strict',
      'PrivateTmp=yes',
      'DynamicUser=yes',
      'User=odd',
      'Group=odd',
      'Environment=STANDIN_DEEPBIND=1',
    );
    try {
      const document = await doctor(guest, ...trace);
      assert.equal(findingOf(document).kind, 'ok', 'what is linked is ours, and it is on the GPU');
      assert.match(evidenceOf(document), /11 symbols of libggml-cuda\.so -> vgpu-agent's libcuda\.so\.1/);
      assert.match(evidenceOf(document), /: lookups of \S+libggml-cuda\.so are not traced: RTLD_DEEPBIND/m);
      const bypassed = document.trace?.processes.flatMap((one) => one.bypassed) ?? [];
      assert.ok(bypassed.includes('/usr/local/lib/ollama/cuda_v12/libggml-cuda.so'), bypassed.join());
    } finally {
      await settings(guest);
    }
  });

  test('when LD_PRELOAD is ignored it says so, and not that no CUDA was used', async () => {
    await settings(guest, 'UnsetEnvironment=LD_PRELOAD');
    try {
      const finding = findingOf(await doctor(guest, ...trace));
      assert.ok(finding.kind === 'unknown', JSON.stringify(finding));
      assert.match(finding.why, /the tracer was not loaded/);
    } finally {
      await settings(guest);
    }
  });

  test('answered no on a terminal it restarts nothing, and says so', {
    skip: noTerminal,
  }, async (t) => {
    const start = await guest.invocationId('ollama');
    const terminal = await Terminal.start(guest, 'vgpu-agent doctor --trace', t);
    const question = /^\? Restart ollama\.service twice, with the tracer and without it\? \(y\/N\)/m;
    await terminal.shows(question);
    await terminal.type('n', 'Enter');
    const declined = await terminal.end();
    assert.equal(declined.code, 130, declined.text);
    assert.match(declined.text, /^--trace: nothing was restarted$/m);
    assert.equal(await guest.invocationId('ollama'), start);
  });

  test('a full /run: it fails before anything is restarted, and leaves nothing', async () => {
    const start = await guest.invocationId('ollama');
    // Not the real one: systemd writes there, too.
    await guest.must(
      'sh',
      '-c',
      'mkdir -p /run/vgpu-agent && mount -t tmpfs -o nr_inodes=3 none /run/vgpu-agent',
    );
    try {
      const ran = await guest.agent('doctor', ...trace);
      assert.equal(ran.code, 1, ran.stdout + ran.stderr);
      assert.match(ran.stderr, /ollama\.service cannot be traced: .*ENOSPC/s);
    } finally {
      await guest.must('umount', '/run/vgpu-agent');
    }
    assert.equal(await guest.invocationId('ollama'), start);
    await assertNothingLeft(guest);
  });

  test('stopped in the middle by SIGINT, it puts the service back before it ends', async () => {
    const { end, pid } = await inTheMiddle(guest);
    const meanwhile = await guest.agent('verify', '--timeout', '1');
    assert.match(
      meanwhile.stderr,
      /the service is being traced: vgpu-agent trace \(process \d+\) is changing this machine/,
    );
    assert.doesNotMatch(
      meanwhile.stdout,
      /lacks the unit's|libvgpu-trace/,
      'and is seen as it is without that',
    );
    await guest.must('kill', '-INT', pid);
    assert.equal(await end, 130);
    await assertNothingLeft(guest);
    await settings(guest);
    await restartConsumer(guest);
    await assertAnswers(guest);
  });

  test('with --yes it refuses while a request is served, says why, and changes nothing', async () => {
    const busy = '/var/tmp/busy';
    await guest.write(busy, '');
    await settings(guest, `Environment=STANDIN_BUSY=${busy}`);
    await restartConsumer(guest);
    await assertAnswers(guest);
    const start = await guest.invocationId('ollama');
    const ask =
      'exec 3<>/dev/tcp/127.0.0.1/11434; printf "POST /api/generate HTTP/1.0\\r\\n\\r\\n" >&3; cat <&3';
    const over = ended(guest.spawn(['bash', '-c', ask], { stdio: 'ignore' }));
    const ran = await guest.agent('doctor', ...trace);
    assert.equal(ran.code, 6, ran.stderr);
    assert.match(ran.stderr, /ollama\.service serves requests, and a trace restarts it/);
    assert.equal(await guest.invocationId('ollama'), start);
    await guest.must('rm', busy);
    await over;
    await assertNothingLeft(guest);
    await settings(guest);
    await restartConsumer(guest);
    await assertAnswers(guest);
  });

  test('killed in the middle, it leaves a trace that the next verify takes away and tells of', async () => {
    const { end, pid } = await inTheMiddle(guest);
    await guest.must('kill', '-KILL', pid);
    assert.equal(await end, 137);
    assert.equal(await guest.exists('/run/vgpu-agent/trace/unit'), true);
    await settings(guest);
    const ran = await guest.agent('verify');
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.match(
      ran.stderr.replace(/\s+/g, ' '),
      /a doctor --trace of ollama\.service was interrupted;.* started again/,
    );
    await assertNothingLeft(guest);
  });

  test('a libcuda that a program opens by its path is named, where no preload counts', async () => {
    await guest.installConsumer(1);
    const own = '/usr/local/lib/ollama/libcuda.so.1';
    await guest.must('install', '-D', '-m', '0755', fake, own);
    const document = await doctor(guest, ...trace);
    const finding = findingOf(document);
    assert.ok(finding.kind === 'broken', JSON.stringify(finding));
    assert.match(
      finding.cause,
      /^ollama \(process \d+\) calls \/usr\/local\/lib\/ollama\/libcuda\.so\.1, from neither vgpu-agent/,
    );
    assert.match(
      evidenceOf(document),
      /^ollama \(process \d+\): opened \/usr\/local\/lib\/ollama\/libcuda\.so\.1, from neither/m,
    );
    assert.match(finding.remedy.command, /^sudo mv \/usr\/local\/lib\/ollama\/libcuda\.so\.1 /);
    await guest.must('rm', own);
    await restartConsumer(guest);
  });

  test('our service keeps out of a trace, and takes away one that was killed', async () => {
    await guest.must('vgpu-agent', 'install', '--service', '--yes');
    await until('the service is settled', 60_000, async () => {
      const ran = await guest.run('vgpu-agent', 'status', '--json');
      return ran.stdout.includes('"state": "settled"') ? true : undefined;
    });
    const document = await doctor(guest, ...trace);
    assert.equal(findingOf(document).kind, 'ok');
    await assertNothingLeft(guest);
    const words = await said(guest);
    assert.doesNotMatch(words, /drift:|repaired in|could not be repaired|a restart is due/);

    const { end, pid } = await inTheMiddle(guest);
    await guest.must('kill', '-KILL', pid);
    assert.equal(await end, 137);
    await settings(guest);
    await until('the service took it away', 60_000, async () =>
      (await guest.exists('/run/vgpu-agent/trace')) ? undefined : true,
    );
    await assertNothingLeft(guest);
    assert.match(await said(guest), /a doctor --trace of ollama\.service was interrupted/);
  });
});

describe('doctor --trace of a real Ollama', { skip: skipBoth || whyNoOllama() }, () => {
  let guest: Guest;
  before(async () => {
    guest = await ready(undefined, { design: 'real' });
    await installedGpu(guest);
  });
  after(() => guest?.stop());

  test('a healthy start has only symbols of the shim, and leaves nothing behind', async () => {
    const before = await guest.listing();
    const document = await doctor(guest, ...trace);
    assertHealthy(document);
    assert.equal(document.verdict.mode, 'gpu');
    assert.match(
      evidenceOf(document),
      /^llama-server \(.*\): \d{2,} symbols of libggml-cuda\.so -> vgpu-agent's libcuda\.so\.1/m,
    );
    assert.match(
      evidenceOf(document),
      /^ollama \(.*\): \d+ symbols that ollama looked up -> vgpu-agent's libnvidia-ml\.so\.1/m,
    );
    assert.equal(document.trace?.strange, 0);
    const servers =
      document.trace?.processes.filter(({ program }) => program?.endsWith('/llama-server')) ?? [];
    assert.ok(servers.length >= 2, JSON.stringify(servers));
    for (const { bindings, program } of servers) {
      const ways = new Set(bindings.map(({ way, vendor }) => `${way} ${vendor}`));
      assert.deepEqual([...ways].sort(), ['dlsym vgpu', 'driver vgpu', 'linked vgpu'], program ?? '');
    }
    assert.equal(document.trace?.processes.find(({ asked }) => !asked)?.program, '/usr/local/bin/ollama');
    await assertNothingLeft(guest);
    await assertAnswers(guest);
    assert.deepEqual(before.diff(await guest.listing()), []);
  });

  test('another libcuda that the unit puts before ours is named, with what is taken from it', async () => {
    await settings(guest, `Environment=LD_PRELOAD=${fake}`);
    try {
      const finding = findingOf(await doctor(guest, ...trace));
      assert.ok(finding.kind === 'broken', JSON.stringify(finding));
      assert.match(finding.cause, /calls \S+libcuda-fake\.so, from neither vgpu-agent nor NVIDIA/);
      const line =
        /^llama-server \(.*\): \d{2,} symbols of libggml-cuda\.so -> \S+libcuda-fake\.so, from neither vgpu-agent/m;
      assert.match(finding.evidence.join('\n'), line);
    } finally {
      await settings(guest);
    }
  });
});
