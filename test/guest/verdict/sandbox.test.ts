// Verdicts about units that shut the shim in or out: sandbox settings, users, capabilities, variables, and
// consumers that take their GPU from another library. Never gpu without our library where the work is done.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { consumerDesigns, whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { repository } from '../support/repository.js';
import {
  assertServes,
  assertVerdict,
  type Expected,
  errorOf,
  evidence,
  installedGpu,
  ready,
  settings,
  tell,
} from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const concurrency = 2;

describe('a sandbox that does not keep the shim from its work', { skip, concurrency }, () => {
  for (const lines of [
    // A real Ollama ends without HOME, and writes its key there.
    ['DynamicUser=yes', 'ReadWritePaths=/usr/share/ollama', 'Environment=HOME=/usr/share/ollama'],
    ['PrivateNetwork=yes'], // a unix socket of the file system is not part of a network namespace
    // Each of them only forbids something, so what works with all of them works with each.
    [
      ...['MemoryDenyWriteExecute=yes', 'ProtectSystem=strict', 'ProtectHome=yes', 'PrivateTmp=yes'],
      ...['NoNewPrivileges=yes', 'PrivateDevices=yes', 'DevicePolicy=closed', 'ProtectKernelTunables=yes'],
      ...['ProtectControlGroups=yes', 'SystemCallFilter=@system-service', 'SystemCallArchitectures=native'],
      ...[
        'LockPersonality=yes',
        'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX',
        'CapabilityBoundingSet=',
      ],
      ...[
        'UMask=0077',
        'RestrictNamespaces=yes',
        'PrivateUsers=yes',
        'ProtectProc=invisible',
        'ProcSubset=pid',
        'ReadWritePaths=/usr/share/ollama',
      ],
    ],
  ]) {
    test(lines.join(' '), async (t) => {
      const guest = await ready(t);
      await settings(guest, ...lines);
      const verdict = await installedGpu(guest);
      const hasNetwork = !lines.includes('PrivateNetwork=yes');
      assert.equal(evidence(verdict, 'readiness').length, hasNetwork ? 1 : 0);
      assert.match(evidence(verdict, 'probe').join(), /were written and read back/);
      if (hasNetwork) await assertServes(guest);
    });
  }
});

describe('a sandbox that keeps the unit from the host, or from the store', { skip, concurrency }, () => {
  for (const [lines, reason, says] of [
    [
      ['RestrictAddressFamilies=AF_INET'],
      'transport-blocked-by-sandbox',
      /\(RestrictAddressFamilies=AF_INET \(without AF_UNIX\); to allow it, set RestrictAddressFamilies=AF_UNIX too\)/,
    ],
    [
      ['TemporaryFileSystem=/run'],
      'transport-blocked-by-sandbox',
      /to allow it, set BindPaths=\/run\/vgpu\/hostd\.sock/,
    ],
    [['InaccessiblePaths=/opt'], 'preload-ignored', /the loader did not preload it/],
  ] as const) {
    test(`${lines.join(' ')}: cpu, ${reason}, warned of before; taken away: gpu`, async (t) => {
      const guest = await ready(t);
      await settings(guest, ...lines);
      const told = await tell(guest, 'install', '--yes');
      const verdict = await assertVerdict(guest, told, { mode: 'cpu', reason });
      assert.match(verdict.summary, says);
      assert.ok(told.document.plan.warnings.some(({ code }) => code === 'sandbox-blocks-transport'));
      assert.match(told.stderr, /^warning: ollama\.service has /m);
      await assertServes(guest);
      if (reason === 'preload-ignored') {
        assert.equal(verdict.next, 'sudo vgpu-agent plan --profile ollama');
        const plan = await guest.agent('plan');
        // Nothing below a path that is inaccessible can be bound back (systemd.exec(5)): the path itself has to go.
        assert.match(
          plan.stdout,
          /^nothing to do\nwarning: ollama\.service has .*(?:take \/opt out of InaccessiblePaths=|BindReadOnlyPaths=)/s,
        );
      } else {
        assert.match(verdict.next ?? '', /systemctl edit ollama\.service/);
      }
      await settings(guest);
      await guest.must('systemctl', 'restart', 'ollama');
      await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    });
  }
});

describe('variables of the unit', { skip, concurrency }, () => {
  for (const [variable, reason, says] of [
    [
      'CUDA_VISIBLE_DEVICES=-1',
      'devices-hidden-by-environment',
      /\(CUDA_VISIBLE_DEVICES=-1: .*\); remove the variable\.$/,
    ],
    [
      'VGPU_HOST=unix:/nonexistent',
      'host-unreachable',
      /the unit sets VGPU_HOST=unix:\/nonexistent: cannot connect/,
    ],
  ] as const) {
    test(`${variable}: cpu, ${reason}`, async (t) => {
      const guest = await ready(t);
      await settings(guest, `Environment=${variable}`);
      const told = await tell(guest, 'install', '--yes');
      const verdict = await assertVerdict(guest, told, { mode: 'cpu', reason });
      assert.match(verdict.summary, says);
      await assertServes(guest);
    });
  }

  for (const [address, port] of [['0.0.0.0:12000', 12_000]] as const) {
    test(`OLLAMA_HOST=${address}: readiness follows it`, async (t) => {
      const guest = await ready(t);
      await settings(guest, `Environment=OLLAMA_HOST=${address}`);
      const verdict = await installedGpu(guest);
      const asked = verdict.evidence.find(({ kind }) => kind === 'readiness');
      assert.match(asked?.source ?? '', new RegExp(`^http://.*:${port}/api/version$`));
      assert.match(asked?.text ?? '', /it answers requests/);
      await assertServes(guest, port);
    });
  }
});

describe('files that the service may not read', { skip }, () => {
  for (const [name, closed] of [['the directory above it', '/opt']] as const) {
    test(`${name} is 0700: install refuses before the restart, exit 7, nothing changed`, async (t) => {
      const guest = await ready(t);
      await guest.must('ldconfig');
      await guest.must('mkdir', '-p', closed);
      await guest.must('chmod', '0700', closed);
      const before = await guest.listing();
      const start = await guest.invocationId('ollama');
      const ran = await guest.agent('install', '--yes', '--json');
      assert.equal(ran.code, 7, ran.stderr);
      const error = errorOf(ran);
      assert.match(
        error.message,
        new RegExp(
          `^the user "ollama" may not read /opt/vgpu/.*: ${closed} is closed to it; everything was undone$`,
        ),
      );
      assert.match(error.remedy ?? '', /namei -l/);
      assert.deepEqual(before.diff(await guest.listing()), []);
      assert.equal(await guest.invocationId('ollama'), start, 'the consumer was left alone');
    });
  }

  test('a umask of 077 does not close the store', async (t) => {
    const guest = await ready(t);
    const ran = await guest.run('sh', '-c', 'umask 077; exec vgpu-agent install --yes --json');
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(await guest.must('runuser', '-u', 'nobody', '--', 'cat', '/etc/vgpu/guest.conf'), /^host=/m);
  });
});

/** Puts a foreign libcuda and libnvidia-ml, with one invented device, into a directory of the guest. */
async function foreignDriver(guest: Guest, directory: string): Promise<void> {
  const built = join(repository, 'build/consumer/fake');
  await guest.must('install', '-D', `${built}/libcuda-fake.so`, `${directory}/libcuda.so.1`);
  await guest.must('install', `${built}/libnvidia-ml-fake.so`, `${directory}/libnvidia-ml.so.1`);
}

/** Has systemd start the consumer through a script that changes what we set. */
async function wrapper(guest: Guest, ...lines: readonly string[]): Promise<void> {
  await guest.write('/usr/local/bin/wrapper', ['#!/bin/sh', ...lines, ''].join('\n'), 0o755);
  await settings(guest, 'ExecStart=', 'ExecStart=/usr/local/bin/wrapper');
}

describe('a GPU of another library', { skip: skip || whyNoStandIn(), concurrency }, () => {
  for (const design of consumerDesigns().filter((one) => one !== 2)) {
    for (const keep of design === 1 ? [false] : [true, false]) {
      test(`design ${design} finds one through another driver${keep ? ', and keeps it loaded' : ''}: never gpu`, async (t) => {
        const guest = await ready(t, { design, start: false, env: keep ? { STANDIN_KEEP_RUNNER: '1' } : {} });
        await foreignDriver(guest, '/opt/driver');
        await wrapper(
          guest,
          'unset LD_PRELOAD',
          'LD_LIBRARY_PATH=/opt/driver exec /usr/local/bin/ollama serve',
        );
        const told = await tell(guest, 'install', '--yes');
        const expected: Expected =
          keep || design === 1
            ? { mode: 'degraded', reason: 'foreign-library-loaded' }
            : {
                mode: 'degraded',
                reason: ['foreign-library-loaded', 'environment-removed', 'probe-disagrees'],
              };
        const verdict = await assertVerdict(guest, told, expected);
        assert.match(verdict.evidence.find(({ weight }) => weight === 'for')?.text ?? '', /Invented H100/);
        await assertServes(guest);
      });
    }
  }

  test('a device in the log that vgpu-probe does not find, without a session, is never gpu', async (t) => {
    const guest = await ready(t);
    await installedGpu(guest);
    const line =
      'time=2026-01-01T00:00:00.000Z level=INFO source=types.go:42 msg="inference compute" id=GPU-1 filter_id="" library=CUDA compute=9.0 name=CUDA0 description="NVIDIA H200" libdirs=ollama,cuda_v12 driver=13.0 pci_id=0000:01:00.0 type=discrete total="141 GiB" available="141 GiB"';
    await guest.write(
      '/usr/local/bin/liar',
      `#!/bin/sh\necho '${line}' >&2\nexec python3 -m http.server 11434\n`,
      0o755,
    );
    await guest.must('mkdir', '-p', '/srv/api');
    await guest.write('/srv/api/version', '{"version":"0.13.5"}');
    await settings(guest, 'ExecStart=', 'ExecStart=/usr/local/bin/liar', 'WorkingDirectory=/srv');
    await guest.must('systemctl', 'restart', 'ollama');
    const verdict = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'degraded',
      reason: 'probe-disagrees',
    });
    assert.match(
      verdict.summary,
      /it names NVIDIA H200, vgpu-probe finds NVIDIA H100 80GB HBM3 \(simulated\)/,
    );
  });

  test('a foreign libcuda is preloaded beside ours: degraded', async (t) => {
    const guest = await ready(t, { start: false });
    await foreignDriver(guest, '/opt/driver');
    await settings(guest, 'Environment=LD_PRELOAD=/opt/driver/libcuda.so.1');
    const told = await tell(guest, 'install', '--yes');
    const verdict = await assertVerdict(guest, told, { mode: 'degraded', reason: 'foreign-library-loaded' });
    assert.match(verdict.summary, /\/opt\/driver\/libcuda\.so\.1/);
    assert.equal(verdict.next, 'sudo vgpu-agent plan --profile ollama');
  });
});

describe('a program that the loader trusts with nothing', { skip: skip || whyNoStandIn() }, () => {
  test('with file capabilities the ignored preload is reported, and the public links still give it the GPU', async (t) => {
    const guest = await ready(t, { design: 2 });
    await guest.must('setcap', 'cap_net_bind_service=ep', '/usr/local/bin/ollama');
    const verdict = await installedGpu(guest);
    assert.match(
      evidence(verdict, 'environment').join('\n'),
      /has it in LD_PRELOAD, but not loaded; .*`getcap \/usr\/local\/bin\/ollama` shows its file capabilities/,
    );
  });

  test('removed by UnsetEnvironment=: reported, and not called gpu because of the probe alone', async (t) => {
    const guest = await ready(t);
    await settings(guest, 'UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH');
    const told = await tell(guest, 'install', '--yes');
    assert.ok(told.document.plan.warnings.some(({ code }) => code === 'environment-overridden'));
    const { verdict } = told.document;
    assert.ok(verdict !== null);
    // Through the public links it works all the same, if a child was seen with our library.
    const seen = verdict.evidence.some(({ kind, weight }) => kind === 'maps' && weight === 'for');
    if (seen) await assertVerdict(guest, told, { mode: 'gpu' });
    else await assertVerdict(guest, told, { mode: 'degraded', reason: 'environment-removed' });
    assert.match(
      evidence(verdict, 'environment').join(),
      /lacks the unit's LD_LIBRARY_PATH: something removes it, such as UnsetEnvironment=/,
    );
  });
});
