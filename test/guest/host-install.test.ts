/** Both ends installed, each in a guest of its own: host install, install, the verdict, host uninstall, the verdict. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertDocument } from '../agent/cli/commands/json-schemas.js';
import { fetched } from '../shim/nvml/hostd.js';
import { checkpointsOf, killedAt } from './support/checkpoints.js';
import { whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { at, differences, freshCache } from './support/installed.js';
import { type Ran, until } from './support/process.js';
import { repository } from './support/repository.js';
import { assertVerdict, tell } from './support/scenario.js';

const debian12 = await fetched('driver-535', 'usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1');
const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

/** The document of a run of `vgpu-agent host ...`, which fits its schema. */
async function hostdStatus(host: Guest): Promise<unknown> {
  return JSON.parse(await host.must('vgpu-hostd', 'status', '--json'));
}

async function tellHost(
  guest: Guest,
  code: number,
  command: string,
  ...args: readonly string[]
): Promise<unknown> {
  const ran = await guest.agent('host', command, '--json', ...args);
  assert.equal(ran.code, code, `${ran.stdout}\n${ran.stderr}`);
  return assertDocument(code === 0 || code === 5 ? `host-${command}` : 'error', ran.stdout);
}

function refused(ran: Ran, said: RegExp): void {
  assert.equal(ran.code, 6, `${ran.stdout}\n${ran.stderr}`);
  assert.match(ran.stderr, said);
}

test('a host that was installed serves a guest that was installed, and each gives back every byte', {
  skip,
}, async (t) => {
  const host = await Guest.start({}, t);
  await host.must('mkdir', '-p', '/etc/vgpu', '/etc/default');
  await host.write('/etc/default/vgpu-hostd', "# somebody's own\nVGPU_OPTIONS=--sessions=64\n");
  const before = await host.listing();

  await t.test('without a terminal a missing --device is status 2, and the message names it', async () => {
    const ran = await host.agent('host', 'install', '--yes');
    assert.equal(ran.code, 2, ran.stderr);
    assert.match(ran.stderr, /--device cuda for the GPU of this machine, --device software/);
  });

  await t.test('a missing driver is reported before anything is changed', async () => {
    refused(
      await host.agent('host', 'install', '--yes', '--device', 'cuda'),
      /needs NVIDIA's driver, and there is no \/dev\/nvidiactl, \/dev\/nvidia-uvm, \/dev\/nvidia0/,
    );
    const nodes = ['/dev/nvidiactl', '/dev/nvidia-uvm', '/dev/nvidia0'] as const;
    await host.must('touch', ...nodes);
    // In the sandbox of the unit, with every setting that it has.
    refused(
      await host.agent('host', 'install', '--yes', '--device', 'cuda'),
      /a worker of this host could not use the driver: [\s\S]*--self-check --device cuda shows every step/,
    );
    if (!debian12.skip) {
      await host.must('cp', debian12.path, '/usr/lib/x86_64-linux-gnu/libcuda.so.1');
      refused(
        await host.agent('host', 'install', '--yes', '--device', 'cuda'),
        /could not use the driver: [\s\S]*CUDA 12\.2, and vgpu-hostd needs CUDA 12\.4: install driver 550 or/,
      );
      await host.must('rm', '/usr/lib/x86_64-linux-gnu/libcuda.so.1');
    }
    await host.must('rm', ...nodes);
    assert.deepEqual(differences(before, await host.listing()), []);
  });

  await t.test('--dry-run shows the plan and changes nothing', async () => {
    const document = await tellHost(host, 0, 'install', '--device', 'software', '--dry-run');
    assert.equal(at(document, 'outcome'), 'dry-run');
    assert.ok(Number(at(document, 'plan', 'changes', 'length')) > 10);
    assert.deepEqual(differences(before, await host.listing()), []);
    assert.equal(await host.exists('/var/lib/vgpu-host'), false);
    const ran = await host.agent('host', 'uninstall', '--yes');
    assert.match(
      ran.stdout,
      /^nothing to do\nvgpu-agent host install has installed nothing on this machine$/m,
    );
  });

  await t.test(
    'killed at any moment, the next command gives back every byte, and stops what still runs',
    async () => {
      const install = ['host', 'install', '--yes', '--device', 'software'] as const;
      const uninstall = ['host', 'uninstall', '--yes'] as const;
      for (const at of [4, 50]) {
        assert.notEqual((await killedAt(host, at, ...install)).code, 0, `killed at ${at}`);
        assert.equal(await host.exists('/var/lib/vgpu-host/transaction.jsonl'), true);
        assert.equal((await host.agent(...uninstall)).code, 0);
        assert.deepEqual(differences(before, await host.listing()), [], `killed at ${at}`);
      }
      assert.equal((await host.agent(...install)).code, 0);
      const steps = await checkpointsOf(host, ...uninstall);
      assert.equal(await host.exists('/run/vgpu/hostd.sock'), false);
      assert.equal((await host.agent(...install)).code, 0);
      await killedAt(host, steps.length, ...uninstall);
      assert.equal(await host.property('vgpu-hostd', 'ActiveState'), 'active', 'stopping comes last');
      assert.equal((await host.agent(...uninstall)).code, 0);
      assert.notEqual(await host.property('vgpu-hostd', 'ActiveState'), 'active');
      assert.deepEqual(differences(before, await host.listing()), []);
    },
  );

  const addresses = ['unix:/run/vgpu/hostd.sock', 'tcp:127.0.0.1:14833', 'tcp:[::1]:14834'];
  await t.test('host install puts everything in place, and the daemon answers', async () => {
    const listen = addresses.flatMap((address) => ['--listen', address]);
    const document = await tellHost(
      ...([host, 0, 'install', '--yes', '--device', 'software', '--memory', '4G'] as const),
      ...listen,
    );
    assert.equal(at(document, 'outcome'), 'done');
    assert.equal(at(document, 'daemon', 'simulated'), true);
    assert.equal(
      await host.read('/etc/default/vgpu-hostd'),
      "# somebody's own\nVGPU_OPTIONS=--sessions=64\nVGPU_DEVICE=software\n",
    );
    assert.equal(at(document, 'daemon', 'totals', 'most'), 64, 'the options of the file count');
    assert.match(await host.must('vgpu-hostd', '--check-config'), /valid, 1 rule/);
    for (const unit of ['vgpu-hostd.socket', 'vgpu-hostd.service']) {
      assert.equal((await host.must('systemctl', 'is-enabled', unit)).trim(), 'enabled', unit);
    }
    assert.match(await host.must('man', '-w', 'vgpu-hostd'), /vgpu-hostd\.8$/m);
  });

  await t.test('a second time changes nothing and restarts nothing', async () => {
    const [start, listed] = [await host.invocationId('vgpu-hostd'), await host.listing()];
    const document = await tellHost(host, 0, 'install', '--yes');
    assert.deepEqual(at(document, 'plan', 'changes'), []);
    assert.equal(await host.invocationId('vgpu-hostd'), start);
    assert.deepEqual(differences(listed, await host.listing()), []);
  });

  const guest = await Guest.start({ binds: [`${host.state}/vgpu:/run/the-host`] }, t);
  await guest.installConsumer(3, { env: { STANDIN_KEEP_RUNNER: '1' } });
  await freshCache(guest);

  await t.test('install in a guest proves the GPU of that host, within its limit', async () => {
    const told = await tell(guest, 'install', '--yes', '--host', 'unix:/run/the-host/hostd.sock');
    await assertVerdict(guest, told, { mode: 'gpu' });
    await until("the runner's session", 60_000, async () =>
      Number(at(await hostdStatus(host), 'sessions', 'length')) > 0 ? true : undefined,
    );
  });

  await t.test(
    'an upgrade takes new sessions, and the sessions that were there go on in the old one',
    async () => {
      const [start, pid] = [
        await host.invocationId('vgpu-hostd'),
        await host.property('vgpu-hostd', 'MainPID'),
      ];
      const served = at(await hostdStatus(host), 'sessions', 0, 'session');
      // Another version of the package. What follows the sections of an ELF file is not looked at.
      const next = '/usr/lib/vgpu-next';
      await host.must(
        'bash',
        '-c',
        `${repository}/scripts/install-agent --into ${next} && echo >>${next}/build/shim/vgpu-hostd`,
      );
      const main = `${next}/dist/bundle/main.js`;
      const ran = await host.run('node', main, 'host', 'install', '--yes', '--json');
      assert.equal(ran.code, 0, ran.stdout + ran.stderr);
      const document = assertDocument('host-install', ran.stdout);
      const kinds = at(document, 'plan', 'changes');
      assert.ok(Array.isArray(kinds));
      assert.deepEqual(
        kinds.map((change) => [at(change, 'kind'), at(change, 'path') ?? at(change, 'action')]),
        [
          ['copy-file', '/usr/bin/vgpu-hostd'],
          ['service', 'hand-over'],
        ],
      );
      assert.equal(await host.invocationId('vgpu-hostd'), start, 'the unit was not restarted');
      await until('systemd knows the successor', 60_000, async () =>
        (await host.property('vgpu-hostd', 'MainPID')) === pid ? undefined : true,
      );
      const old = await host.must(
        'vgpu-hostd',
        'status',
        '--json',
        '--control',
        `/run/vgpu-hostd/control.sock.${pid}`,
      );
      assert.equal(at(JSON.parse(old), 'draining'), true);
      assert.equal(at(JSON.parse(old), 'sessions', 0, 'session'), served);
      assert.equal(at(await hostdStatus(host), 'totals', 'begun'), 0);
      // The guest's next process is the new daemon's; with its last session the old one ends.
      await guest.must('systemctl', 'restart', 'ollama');
      await until('the old daemon ends', 60_000, async () =>
        (await host.exists(`/proc/${pid}/exe`)) ? undefined : true,
      );
      await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
      assert.equal(await host.property('vgpu-hostd', 'ActiveState'), 'active');
      assert.equal(await host.property('vgpu-hostd', 'NRestarts'), '0');
      const metrics = ['--unix-socket', '/run/vgpu-hostd/metrics.sock', 'http://host/metrics'] as const;
      await until("the new runner's session", 60_000, async () =>
        /^vgpu_hostd_sessions [1-9]/m.test(await host.must('curl', '-s', ...metrics)) ? true : undefined,
      );
      await host.must('systemctl', 'reload', 'vgpu-hostd');
    },
  );

  // After the upgrade: a session over TCP stays for the time of reconnect=, and the old daemon with it.
  await t.test('programs of the host reach it at every address', async () => {
    const shim = `${repository}/build/shim`;
    for (const address of addresses) {
      const probe = [`${shim}/vgpu-probe`, '--library', `${shim}/libcuda.so.1`] as const;
      const ran = await host.runWith({ env: { VGPU_HOST: address } }, ...probe);
      assert.equal(at(JSON.parse(ran.stdout), 'simulated'), true, `${address}: ${ran.stdout}`);
    }
  });

  await t.test('while guests are served, nothing that ends their sessions is done unasked', async () => {
    refused(
      await host.agent('host', 'uninstall', '--yes'),
      /sessions? of guests (?:is|are) open and would end/,
    );
    const start = await host.invocationId('vgpu-hostd');
    const ran = await host.agent(
      'host',
      'install',
      '--yes',
      '--listen',
      'unix:/run/vgpu/hostd.sock',
      '--listen',
      'unix:/run/vgpu/second.sock',
    );
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(
      ran.stderr,
      /the addresses changed; that applies after a restart of vgpu-hostd\.service, which ends \d+ session/,
    );
    assert.equal(await host.invocationId('vgpu-hostd'), start);
  });

  await t.test('host uninstall gives back every byte, and the verdict says why there is no GPU', async () => {
    const document = await tellHost(host, 0, 'uninstall', '--yes', '--end-sessions');
    assert.equal(at(document, 'outcome'), 'done');
    await host.must('rm', '-rf', '/usr/lib/vgpu-next');
    assert.deepEqual(differences(before, await host.listing()), []);
    assert.equal(await host.exists('/run/vgpu/hostd.sock'), false);
    assert.equal(await host.exists('/run/vgpu-agent'), false, 'the lock goes too');
    await guest.must('systemctl', 'restart', 'ollama');
    const told = await tell(guest, 'verify');
    await assertVerdict(guest, told, { mode: 'cpu', reason: 'host-unreachable' });
  });

  await t.test('host uninstall leaves the units of the package alone', async () => {
    const [shim, units] = [`${repository}/build/shim`, `${repository}/units`];
    await host.must('cp', `${shim}/vgpu-hostd`, '/usr/bin/vgpu-hostd');
    await host.must(
      'sh',
      '-c',
      `cp ${units}/vgpu-hostd*.service ${units}/vgpu-hostd.socket /usr/lib/systemd/system/`,
    );
    await host.write('/etc/default/vgpu-hostd', 'VGPU_DEVICE=software\n');
    await host.must('systemctl', 'daemon-reload');
    await host.must('systemctl', 'start', 'vgpu-hostd.socket', 'vgpu-hostd.service');
    const document = await tellHost(host, 0, 'uninstall', '--yes');
    assert.deepEqual(at(document, 'plan', 'changes'), []);
    assert.equal(await host.property('vgpu-hostd', 'ActiveState'), 'active');
  });
});
