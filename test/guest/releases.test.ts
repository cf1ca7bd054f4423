// The core of what the agent does, on each Debian release and with each Node: install, again, verify, the service, a
// drift, the doctor, a second consumer, uninstall. What only one release shows (another systemd, another glibc) shows here.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  at,
  differences,
  documentOf,
  installToGpu,
  prepareConsumer,
  uninstall,
} from './support/installed.js';
import { until } from './support/process.js';
import { nodeVersions, releases, testNode, testRoot, whyNoNode, whyNoRoot } from './support/roots.js';
import { tell } from './support/scenario.js';
import { generous, linkTarget, publicLink, said, settledOnGpu, status } from './support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

const long = process.env['VGPU_TEST_LONG'] === '1';
const notHere = `only on ${releases[0]}, and everywhere with VGPU_TEST_LONG=1`;

/** Each release and each Node once; with VGPU_TEST_LONG=1 each with each. */
const pairs = releases.flatMap((release, index) =>
  nodeVersions.flatMap((node, at) =>
    long || at === (index + 1) % nodeVersions.length ? [[release, node] as const] : [],
  ),
);

describe('every release', { concurrency: 3, skip }, () => {
  for (const [release, node] of pairs) {
    test(`${release} with Node ${node}: from a bare guest to the GPU, kept there, and back`, {
      skip: whyNoRoot(release) || whyNoNode(node),
    }, async (t) => {
      const guest = await Guest.start({ root: testRoot(release), node: testNode(node) }, t);
      await guest.hosts.start();
      await prepareConsumer(guest, 3);
      // A second consumer, of a template: the same program on another port.
      const text = await guest.read('/etc/systemd/system/ollama.service');
      const other = text.replace('[Service]\n', '[Service]\nEnvironment=OLLAMA_HOST=127.0.0.1:3143%i\n');
      await guest.write('/etc/systemd/system/ollama@.service', other);
      await guest.must('systemctl', 'daemon-reload');
      await guest.must('systemctl', 'start', 'ollama@1');
      const before = await guest.listing();
      const consumer = () => guest.invocationId('ollama');

      await t.test(
        'install proves the GPU by the log and the probe, whatever systemd says in its words',
        async () => {
          const document = await installToGpu(guest);
          const evidence = at(document, 'verdict', 'evidence');
          assert.ok(Array.isArray(evidence));
          const speaking = evidence
            .filter((one) => at(one, 'weight') === 'for')
            .map((one) => at(one, 'kind'));
          // Not the maps: every process of a unit with LD_PRELOAD has the library.
          for (const kind of ['log-line', 'probe'])
            assert.ok(speaking.includes(kind), `${kind} in ${speaking}`);
        },
      );

      await t.test('again changes and restarts nothing', async () => {
        const start = await consumer();
        assert.equal(at(await installToGpu(guest), 'changed'), 0);
        assert.equal(await consumer(), start);
      });

      await t.test('verify and the doctor find it whole', async () => {
        const verified = await tell(guest, 'verify', '--compute');
        assert.equal(verified.code, 0, verified.stdout);
        const doctor = await tell(guest, 'doctor');
        assert.equal(doctor.code, 0, doctor.stdout);
        // Each release has its own glibc: its loader is asked, and what it says is understood.
        const loader = doctor.document.checks.find(({ id }) => id === 'loader-choice')?.finding;
        assert.equal(loader?.kind, 'ok', JSON.stringify(loader));
        assert.match(JSON.stringify(loader), /libcuda\.so\.1, by LD_PRELOAD \(the shim\)/);
      });

      await t.test('the service is settled when install --service ends', async () => {
        await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
        documentOf(await guest.agent('install', '--service', '--yes', '--json'));
        assert.equal(at(await status(guest), 'service', 'state'), 'settled', await said(guest));
        assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0', await said(guest));
      });

      await t.test('the service puts back a public link that was taken away', async () => {
        const target = await linkTarget(guest);
        await guest.must('rm', publicLink);
        // In words: an entry with fields needs systemd-journald compiled for this Node.
        await until('the repair is told', 60_000, async () =>
          / repaired in \d+ ms/.test(await said(guest)) ? true : undefined,
        );
        assert.equal(await linkTarget(guest), target);
        await settledOnGpu(guest);
      });

      const here = release === releases[0] || long;
      await t.test('the doctor names a link that is gone', { skip: !here && notHere }, async () => {
        await guest.must('systemctl', 'stop', 'vgpu-agent');
        await guest.must('rm', publicLink);
        const doctor = await tell(guest, 'doctor');
        assert.notEqual(doctor.code, 0);
        assert.match(doctor.stdout, /libcuda\.so\.1/);
        documentOf(await guest.agent('install', '--yes', '--json'));
      });

      await t.test(
        'installs and uninstalls a second consumer without changing the first',
        {
          skip: !here && notHere,
        },
        async () => {
          const start = await consumer();
          await installToGpu(guest, '--unit', 'ollama@1');
          assert.equal(await consumer(), start, 'the first one is not restarted');
          // The service has a new list of consumers and judges each of them again.
          await settledOnGpu(guest);
          const list = at(documentOf(await guest.agent('status', '--json')), 'consumers');
          assert.ok(Array.isArray(list));
          const units = list.map((one) => at(one, 'unit', 'name'));
          assert.deepEqual(units.toSorted(), ['ollama.service', 'ollama@1.service']);
          await uninstall(guest, '--unit', 'ollama@1');
          assert.equal(await guest.exists('/etc/systemd/system/ollama@1.service.d'), false);
          assert.equal(await consumer(), start);
          assert.equal((await tell(guest, 'verify')).code, 0);
        },
      );

      await t.test('uninstall gives everything back', async () => {
        await uninstall(guest);
        await guest.must('rm', '-rf', '/etc/vgpu-agent');
        assert.deepEqual(differences(before, await guest.listing()), []);
        assert.equal(await guest.property('vgpu-agent', 'ActiveState'), 'inactive');
        assert.equal(await guest.exists('/run/vgpu-agent'), false);
      });
    });
  }
});

test('install --service fails, and says why, when the service does not stay up', { skip }, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, 3);
  // As a Node that refuses an option does: it ends before it has said anything.
  await guest.write(
    '/etc/systemd/system/vgpu-agent.service.d/test.conf',
    '[Service]\nExecStart=\nExecStart=/bin/false\n',
  );
  const ran = await guest.agent('install', '--service', '--yes');
  assert.equal(ran.code, 1, ran.stdout + ran.stderr);
  assert.match(ran.stderr, /vgpu-agent\.service is installed but not up/);
  assert.match(ran.stderr, /journalctl -u vgpu-agent/);
});
