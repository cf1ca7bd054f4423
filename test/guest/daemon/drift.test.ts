// Each drift that happens to real machines is repaired and told in one line, with the consumer on the GPU.

import assert from 'node:assert/strict';
import { dirname } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { cockpitPage } from '../../../agent/lib/paths.js';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import {
  entries,
  generous,
  installService,
  linkTarget,
  property,
  publicLink,
  repairs,
  said,
  settledOnGpu,
  status,
  untilEntry,
} from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const right = '/opt/vgpu/current/libcuda.so.1';
const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';

describe('drift', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await installService(guest);
  });
  after(() => guest.stop());

  const linkIsRight = async (): Promise<boolean> => (await linkTarget(guest)) === right;

  test('a public link that dangles', async () => {
    await repairs(guest, () => guest.must('ln', '-sfn', '/nonexistent', publicLink), linkIsRight);
  });

  test('the directory of a shell, or of Cockpit, that was installed after the service started', async () => {
    const files = [`${cockpitPage}/page.js`, '/usr/share/fish/vendor_completions.d/vgpu-agent.fish'];
    for (const file of files) assert.equal(await guest.exists(file), false, file);
    const look = 'busctl call org.vgpu.Agent1 /org/vgpu/Agent1 org.vgpu.Agent1 Repair';
    await repairs(
      guest,
      () => guest.must('sh', '-c', `mkdir -p /usr/share/cockpit ${dirname(files[1] ?? '')} && ${look}`),
      () => guest.exists(`${cockpitPage}/page.js`),
    );
    for (const file of files) assert.equal(await guest.exists(file), true, file);
  });

  test('a public link that was removed', async () => {
    await repairs(guest, () => guest.must('rm', publicLink), linkIsRight);
  });

  test('a public link that was replaced by a file', async () => {
    await repairs(
      guest,
      () => guest.must('sh', '-c', `rm ${publicLink}; cp /bin/true ${publicLink}`),
      linkIsRight,
    );
  });

  test('a loader cache without us', async () => {
    const cached = async (): Promise<boolean> => (await guest.must('ldconfig', '-p')).includes(right);
    const drift = 'mv /etc/ld.so.conf.d/000-vgpu.conf /tmp/; ldconfig -X';
    await repairs(guest, () => guest.must('sh', '-c', drift), cached);
  });

  test('a plain run of ldconfig is no drift, or is repaired', async () => {
    await guest.must('ldconfig');
    await settledOnGpu(guest);
    assert.ok(await linkIsRight());
  });

  test('a drop-in that was edited: the edit is kept aside', async () => {
    const ours = await guest.read(dropIn);
    await repairs(
      guest,
      () => guest.write(dropIn, '[Service]\nEnvironment="LD_PRELOAD="\n'),
      async () => (await guest.read(dropIn)) === ours,
    );
    assert.match(await guest.read(`${dropIn}.vgpu-save`), /LD_PRELOAD=/);
  });

  test('a drop-in that was removed with its directory', async () => {
    await repairs(
      guest,
      () => guest.must('rm', '-r', '/etc/systemd/system/ollama.service.d'),
      () => guest.exists(dropIn),
    );
  });

  test('a file of the store that was truncated, while the consumer has it mapped', async () => {
    const size = async (): Promise<string> => (await guest.must('stat', '-L', '-c', '%s', right)).trim();
    const whole = await size();
    await repairs(
      guest,
      () => guest.must('truncate', '-s', '100', right),
      async () => (await size()) === whole,
    );
  });

  test("the unit rewritten as Ollama's installer does", async () => {
    const start = await guest.invocationId('ollama');
    await guest.must(
      'sh',
      '-c',
      'cp /etc/systemd/system/ollama.service /tmp/o; cat /tmp/o >/etc/systemd/system/ollama.service; systemctl daemon-reload; systemctl restart ollama',
    );
    assert.notEqual(await guest.invocationId('ollama'), start);
    /* The service may restart it once more by itself: the start that counts is the one there is at each look. */
    const judged = async (): Promise<true | undefined> => {
      const now = await guest.invocationId('ollama');
      return at(await status(guest), 'verdict', 'invocationId') === now ? true : undefined;
    };
    await until('a verdict about the new start', 60_000, judged).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await said(guest)}`);
    });
    await settledOnGpu(guest);
  });

  test("the service's own unit file removed", async () => {
    await repairs(
      guest,
      () => guest.must('rm', '/etc/systemd/system/vgpu-agent.service'),
      () => guest.exists('/etc/systemd/system/vgpu-agent.service'),
    );
  });

  test('while dpkg works the repair waits, and names dpkg', async () => {
    const holder = guest.spawn(
      [
        'python3',
        '-c',
        'import fcntl,time\nf=open("/var/lib/dpkg/lock","a")\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint("held",flush=True)\ntime.sleep(600)',
      ],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    try {
      await new Promise<void>((resolve) => holder.stdout?.once('data', () => resolve()));
      await guest.must('rm', publicLink);
      const line = await untilEntry(guest, messageIds.packageManager);
      assert.match(line, /waiting for the package manager: process \d+, which holds \/var\/lib\/dpkg\/lock/);
      assert.equal(await linkTarget(guest), '');
    } finally {
      holder.kill('SIGTERM');
    }
    await until('the repair', 60_000, async () => ((await linkIsRight()) ? true : undefined));
    await settledOnGpu(guest);
  });

  test('a resume from sleep is looked at', async () => {
    // logind does not run here, so its name is free for the one who signals.
    await guest.must('node', '--input-type=module', '-e', resume);
    await untilEntry(guest, messageIds.resumed);
    await settledOnGpu(guest);
  });

  test('a restart of vgpu-hostd is noticed and reported, and the consumer is on the GPU again', async () => {
    const lost = await entries(guest, messageIds.hostLost);
    await guest.hosts.start();
    await untilEntry(guest, messageIds.hostLost, lost.length);
    await untilEntry(guest, messageIds.hostBack);
    await settledOnGpu(guest);
  });

  // The cost of a freeze of each length, and one restart for each cause: judge/machine.test.ts.
  for (const signal of ['SIGKILL', 'SIGSTOP'] as const) {
    test(`the host gone by ${signal} while the consumer runs, and back`, { timeout: 400_000 }, async () => {
      const lost = (await entries(guest, messageIds.hostLost)).length;
      const back = (await entries(guest, messageIds.hostBack)).length;
      const restarts = (await entries(guest, messageIds.consumerRestarted)).length;
      if (signal === 'SIGSTOP') await guest.hosts.freeze();
      else await guest.hosts.stop('SIGKILL');
      // A session that ends is noticed at once, a host that freezes at the next tick (5 s) after 2 s.
      await untilEntry(guest, messageIds.hostLost, lost, 60_000);
      await until('the verdict degraded', 60_000, async () =>
        (await property(guest, 'Verdict')) === 's "degraded"' ? true : undefined,
      );
      assert.equal(await property(guest, 'Reason'), 's "host-unreachable"');
      if (signal === 'SIGSTOP') await guest.hosts.thaw();
      else await guest.hosts.start();
      await untilEntry(guest, messageIds.hostBack, back, 60_000);
      // A frozen host that comes back within ten seconds has the session still: this test does not decide whether it took longer.
      if (signal === 'SIGKILL') await untilEntry(guest, messageIds.consumerRestarted, restarts, 60_000);
      await settledOnGpu(guest);
    });
  }
});

const resume = `
import { createRequire } from 'node:module';
const dbus = createRequire('${repository}/package.json')('dbus-next');
const bus = dbus.sessionBus({ busAddress: 'unix:socket=/run/dbus/system_bus_socket' });
await bus.requestName('org.freedesktop.login1', 0);
for (const sleeping of [true, false]) {
  bus.send(dbus.Message.newSignal('/org/freedesktop/login1', 'org.freedesktop.login1.Manager', 'PrepareForSleep', 'b', [sleeping]));
}
setTimeout(() => bus.disconnect(), 300);
`;

/** The entry in the journal may be read before the bus has the state. */
async function untilDegraded(guest: Guest): Promise<void> {
  await until('the state degraded', 60_000, async () =>
    (await property(guest, 'State')) === 's "degraded"' ? true : undefined,
  );
}

test('a repair that cannot succeed stops after its limit and says so everywhere', {
  skip,
  timeout: 400_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);
  // Nothing can be written there.
  await guest.must(
    'sh',
    '-c',
    'ln -sfn /nonexistent /usr/lib/x86_64-linux-gnu/libcuda.so.1; systemctl stop vgpu-agent; mkdir -p /etc/systemd/system/vgpu-agent.service.d; printf "[Service]\\nReadOnlyPaths=/usr/lib/x86_64-linux-gnu\\n" >/etc/systemd/system/vgpu-agent.service.d/x.conf; ln -sfn /nonexistent /usr/lib/x86_64-linux-gnu/libcuda.so.1; systemctl daemon-reload; systemctl start vgpu-agent',
  );
  const line = await untilEntry(guest, messageIds.repairLimit, 0, 60_000);
  assert.match(
    line,
    /libcuda\.so\.1 could not be repaired: .*it failed 5 times in a row, so the next try is in 60 minutes/,
  );
  await untilDegraded(guest);
  assert.match(await guest.must('vgpu-agent', 'metrics'), /^vgpu_agent_state\{state="degraded"\} 1$/m);
  const shown = await guest.agent('status');
  assert.match(shown.stdout, /degraded/);
  assert.match(shown.stdout, /the next try is in 60 minutes/);
  assert.equal((await entries(guest, messageIds.repairFailed)).length, 4);
  // Repaired by a person: a reload begins again.
  await guest.must(
    'sh',
    '-c',
    'rm -r /etc/systemd/system/vgpu-agent.service.d; systemctl daemon-reload; systemctl restart vgpu-agent',
  );
  await settledOnGpu(guest);
});

test('a program that keeps changing it back meets the limit of repairs in an hour', { skip }, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest, { ...generous, repair: { perHour: 3, backoffSeconds: 0 } });
  for (let time = 0; time < 4; time += 1) {
    await guest.must('ln', '-sfn', '/nonexistent', publicLink);
    if (time < 3) await untilEntry(guest, messageIds.repaired, time);
  }
  assert.match(
    await untilEntry(guest, messageIds.repairLimit),
    /the limit of 3 repairs in an hour is reached/,
  );
  await untilDegraded(guest);
  await guest.must('systemctl', 'reload', 'vgpu-agent');
  await until('the repair after a reload', 60_000, async () =>
    (await linkTarget(guest)) === right ? true : undefined,
  );
});

test('with restarts switched off a due restart is reported and not made', {
  skip: skip || whyNoStandIn(),
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest, { ...generous, restart: { ...generous.restart, enabled: false } });
  const start = await guest.invocationId('ollama');
  await guest.hosts.stop();
  await until('the loss', 60_000, async () =>
    (await property(guest, 'Verdict')) === 's "degraded"' ? true : undefined,
  );
  await guest.hosts.start();
  assert.match(
    await untilEntry(guest, messageIds.restartDeferred),
    /restarts are switched off in agent\.json/,
  );
  assert.equal(await guest.invocationId('ollama'), start);
  assert.match(await property(guest, 'PendingRestart'), /host answers again/);
});
