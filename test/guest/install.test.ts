/** install on a bare guest, with each of the consumer's designs: what is on the machine afterwards, and that it stays. */
import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { test } from 'node:test';
import { multiarch } from './states/state.js';
import { consumerDesigns, realOllama, whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  consumerProcesses,
  differences,
  documentOf,
  installToGpu,
  prepareConsumer,
  uninstall,
} from './support/installed.js';
import { until } from './support/process.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const repositoryShim = 'build/shim';

for (const design of consumerDesigns()) {
  test(`install turns a bare guest with design ${design} to GPU mode, and uninstall back`, {
    skip,
  }, async (t) => {
    const guest = await Guest.start({}, t);
    await guest.hosts.start({ profile: 'l40s' });
    await prepareConsumer(guest, design, { STANDIN_KEEP_RUNNER: '1' });
    const before = await guest.listing();
    const former = await guest.invocationId('ollama');

    await t.test(
      'it says so, with the library, the compute capability and the name of the device',
      async () => {
        const document = await installToGpu(guest);
        assert.equal(at(document, 'outcome'), 'done');
        assert.equal(String(at(document, 'verdict', 'devices', 0, 'library')).toLowerCase(), 'cuda');
        assert.equal(at(document, 'verdict', 'devices', 0, 'compute'), '8.9');
        assert.match(String(at(document, 'verdict', 'devices', 0, 'name')), /L40S \(simulated\)$/);
        assert.equal(at(document, 'verdict', 'invocationId'), await guest.invocationId('ollama'));
        assert.notEqual(await guest.invocationId('ollama'), former);
      },
    );

    await t.test('the store holds what was built, and every public link leads there', async () => {
      const after = await guest.listing();
      const current = after.at('/opt/vgpu/current')?.target ?? '';
      assert.match(current, /^versions\/[0-9a-f]{16}$/);
      const tracer = process.arch === 'x64' ? ['libvgpu-trace.so'] : [];
      for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1', 'vgpu-probe', ...tracer]) {
        const stored = after.at(`/opt/vgpu/${current}/${name}`);
        const built = await guest.must('sha256sum', `${await checkout(guest)}/${repositoryShim}/${name}`);
        assert.equal(stored?.sha256, built.split(' ')[0], name);
        assert.equal(stored?.mode, name === 'vgpu-probe' ? 0o755 : 0o644, name);
      }
      for (const name of ['libcuda.so', 'libcuda.so.1', 'libnvidia-ml.so', 'libnvidia-ml.so.1']) {
        assert.equal(after.at(`${multiarch}/${name}`)?.type, 'link', name);
        const real = (await guest.must('readlink', '-f', `${multiarch}/${name}`)).trim();
        assert.equal(real, `/opt/vgpu/${current}/${basename(name, '.1').replace(/\.so$/, '.so.1')}`);
      }
      assert.equal(
        (await guest.read('/etc/vgpu/guest.conf')).split('\n').filter((line) => !line.startsWith('#'))[0],
        'host=unix:/run/vgpu/hostd.sock',
      );
    });

    await t.test('the loader cache names the shim before every other library', async () => {
      const cache = await guest.must('ldconfig', '-p');
      for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1']) {
        const first = cache.split('\n').find((line) => line.trim().startsWith(`${name} (`));
        assert.match(first ?? '', new RegExp(`=> /opt/vgpu/current/${name.replaceAll('.', '\\.')}$`));
      }
      // A process without the drop-in's environment gets the shim as well.
      const probe = await guest.run('env', '-i', '/opt/vgpu/current/vgpu-probe', '--json');
      assert.equal(at(documentOf(probe), 'simulated'), true);
    });

    await t.test(
      'the drop-in is in force: environment and memory of the processes have the shim',
      async () => {
        const dropIns = await guest.property('ollama', 'DropInPaths');
        assert.equal(dropIns, '/etc/systemd/system/ollama.service.d/50-vgpu.conf');
        assert.equal(await guest.property('ollama', 'NeedDaemonReload'), 'no');
        const store = (await guest.must('readlink', '-f', '/opt/vgpu/current')).trim();
        // The runner that stays has it mapped too, as with a loaded model.
        const least = realOllama() === undefined && design > 1 ? 2 : 1;
        const processes = await until('the processes that use it', 60_000, async () => {
          const found = await consumerProcesses(guest);
          const users = found.filter(({ libraries }) => libraries.includes(`${store}/libcuda.so.1`));
          return users.length > 0 && found.length >= least ? found : undefined;
        });
        for (const { command, environment } of processes) {
          assert.match(environment['LD_LIBRARY_PATH'] ?? '', /(^|:)\/opt\/vgpu\/current(:|$)/, command);
          assert.match(
            environment['LD_PRELOAD'] ?? '',
            /^\/opt\/vgpu\/current\/libcuda\.so\.1:\/opt\/vgpu\/current\/libnvidia-ml\.so\.1$/,
            command,
          );
        }
        const foreign = processes.flatMap(({ libraries }) =>
          libraries.filter((file) => /libcuda|libnvidia-ml/.test(file) && !file.startsWith(`${store}/`)),
        );
        assert.deepEqual(foreign, []);
      },
    );

    await t.test('a second install changes no byte and no time, and restarts nothing', async () => {
      const installed = await guest.listing();
      const start = await guest.invocationId('ollama');
      const document = await installToGpu(guest);
      assert.deepEqual(at(document, 'plan', 'changes'), []);
      assert.equal(at(document, 'changed'), 0);
      assert.equal(at(document, 'restart', 'kind'), 'not-planned');
      assert.equal(await guest.invocationId('ollama'), start);
      assert.deepEqual(installed.diff(await guest.listing(), { mtimes: 'all' }), []);
    });

    await t.test('after a reboot it is as before', async () => {
      await guest.reboot();
      const document = documentOf(await guest.agent('verify', '--json'));
      assert.equal(at(document, 'verdict', 'mode'), 'gpu');
    });

    await t.test('uninstall takes all of it back', async () => {
      await uninstall(guest);
      assert.deepEqual(differences(before, await guest.listing()), []);
      await assertRunsWithoutShim(guest);
      assert.equal((await guest.agent('verify')).code, 3);
    });
  });
}

/** Another content of the shim, as an older version had: the same libraries, a probe with a byte more at its end. */
async function withOlderShim(guest: Guest, work: () => Promise<void>): Promise<void> {
  const shim = `${await checkout(guest)}/${repositoryShim}`;
  await guest.must(
    'bash',
    '-ec',
    `cp -a ${shim} /tmp/older; printf o >>/tmp/older/vgpu-probe; mount --bind /tmp/older ${shim}`,
  );
  await work();
  await guest.must('umount', shim);
}

/** The checkout's path, which the guest sees at the same place. */
async function checkout(guest: Guest): Promise<string> {
  const main = (await guest.must('readlink', '-f', '/usr/local/bin/vgpu-agent')).trim();
  return main.replace(/\/dist\/bundle\/main\.js$/, '');
}

test('install replaces an older version, and uninstall goes back to before the first one', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, consumerDesigns().at(-1) ?? 3);
  const before = await guest.listing();
  await withOlderShim(guest, async () => {
    await installToGpu(guest);
  });
  const older = (await guest.must('readlink', '/opt/vgpu/current')).trim();
  // A program that is not the consumer, and continues with the older version.
  const user = 'older-user.service';
  await guest.must(
    'systemd-run',
    '--quiet',
    `--unit=${user}`,
    '--setenv=LD_PRELOAD=/opt/vgpu/current/libcuda.so.1',
    'sleep',
    'infinity',
  );

  const document = await installToGpu(guest);
  const newer = (await guest.must('readlink', '/opt/vgpu/current')).trim();
  assert.notEqual(newer, older);
  assert.equal(newer, `versions/${String(at(document, 'plan', 'storeId'))}`);
  const mapped = (await consumerProcesses(guest)).flatMap(({ libraries }) => libraries);
  assert.ok(mapped.includes(`/opt/vgpu/${newer}/libcuda.so.1`), mapped.join('\n'));
  assert.deepEqual(
    mapped.filter((file) => file.includes(older)),
    [],
  );

  await t.test('a version is kept until no process uses it', async () => {
    assert.ok(await guest.exists(`/opt/vgpu/${older}/libcuda.so.1`));
    await guest.must('systemctl', 'stop', user);
    const start = await guest.invocationId('ollama');
    // The manifest knows of it, and the next install with anything to do takes it away; so does uninstall.
    await guest.must('rm', `${multiarch}/libnvidia-ml.so`);
    documentOf(await guest.agent('install', '--yes', '--json', '--no-restart'));
    assert.equal(await guest.exists(`/opt/vgpu/${older}`), false);
    assert.equal(await guest.invocationId('ollama'), start);
  });

  await uninstall(guest);
  assert.deepEqual(differences(before, await guest.listing()), []);
  await assertRunsWithoutShim(guest);
});

test('going back to an older version is an install like any other', { skip }, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, consumerDesigns().at(-1) ?? 3);
  const before = await guest.listing();
  await installToGpu(guest);
  const newer = (await guest.must('readlink', '/opt/vgpu/current')).trim();
  await withOlderShim(guest, async () => {
    await installToGpu(guest);
    assert.notEqual((await guest.must('readlink', '/opt/vgpu/current')).trim(), newer);
    assert.equal(await guest.exists(`/opt/vgpu/${newer}`), false, 'nobody uses it any more');
    await uninstall(guest);
  });
  assert.deepEqual(differences(before, await guest.listing()), []);
});

test('install --no-restart prepares everything and leaves the running consumer alone', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, consumerDesigns()[0] ?? 1);
  const start = await guest.invocationId('ollama');
  const document = documentOf(await guest.agent('install', '--yes', '--json', '--no-restart'));
  assert.equal(at(document, 'verdict'), null);
  assert.equal(await guest.invocationId('ollama'), start);
  await guest.must('systemctl', 'restart', 'ollama');
  assert.equal(
    at(documentOf(await guest.agent('verify', '--json')), 'verdict', 'mode'),
    'gpu',
    'the next start takes it',
  );
});
