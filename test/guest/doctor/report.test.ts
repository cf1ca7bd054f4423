// doctor --report and --fix: what the tarball has and must not have, questions, exit codes, and the service beside.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { consumers, named, whyNoConsumer } from '../support/consumer.js';
import { assertHealthy, doctor } from '../support/doctor.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { errorOf } from '../support/scenario.js';
import { installService, linkTarget, publicLink, settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

/** Planted where secrets and names stand on real machines; none may come out. */
const planted = {
  unit: 'plantedUnitSecret1',
  file: 'plantedFileSecret2',
  log: 'plantedLogSecret3',
  bearer: 'plantedBearer4',
  host: 'moonbase-seven',
  domain: 'lab.example',
  user: 'marguerite',
  address: '198.51.100.77',
};

for (const consumer of consumers()) {
  describe(`doctor --report, ${named(consumer)}`, { skip }, () => {
    let guest: Guest;
    before(async () => {
      guest = await Guest.start();
      await guest.hosts.start();
      await guest.must('hostname', planted.host);
      await guest.write('/etc/hostname', `${planted.host}\n`);
      await guest.must(
        'sh',
        '-c',
        `echo "10.9.8.7 db.${planted.domain}" >>/etc/hosts; useradd -m ${planted.user}`,
      );
      const lines = [
        `level=INFO msg="login" api_key=${planted.log} user=${planted.user}`,
        `Authorization: Bearer ${planted.bearer}`,
        `peer ${planted.address} at db.${planted.domain} (${planted.host}) reads /home/${planted.user}/models`,
      ];
      await guest.write('/etc/planted-lines', `${lines.join('\n')}\n`);
      await guest.must('chmod', '0644', '/etc/planted-lines');
      await guest.write(
        '/etc/ollama.env',
        `OLLAMA_FILE_PASSWORD=${planted.file}\nHARMLESS=${planted.file}\n`,
      );
      const env = { OLLAMA_API_KEY: planted.unit, MODELS: `/home/${planted.user}/models` };
      await installService(guest, undefined, env, consumer);
      const extra = '/etc/systemd/system/ollama.service.d/60-env.conf';
      // Printed once it serves, between its own lines.
      const prints = 'ExecStartPost=/bin/cat /etc/planted-lines';
      await guest.write(extra, `[Service]\nEnvironmentFile=/etc/ollama.env\n${prints}\n`);
      await guest.must('sh', '-c', 'systemctl daemon-reload; systemctl restart ollama');
      await settledOnGpu(guest);
    });
    after(() => guest?.stop());

    test('a healthy machine with the service has no finding', async () => {
      assertHealthy(await doctor(guest));
    });

    test('without a terminal and without --yes nothing is inspected or written, and the message names the option', async () => {
      const ran = await guest.agent('doctor', '--report', '/root/no.tar.gz');
      assert.equal(ran.code, 2, ran.stderr);
      assert.equal(ran.stdout, '');
      assert.doesNotMatch(ran.stderr, /journal\.txt/);
      assert.match(ran.stderr, /try: vgpu-agent doctor --report \/root\/no\.tar\.gz --yes/);
      assert.equal(await guest.exists('/root/no.tar.gz'), false);
    });

    test('the contents are listed, and nothing that was planted is in the tarball', async () => {
      const ran = await guest.agent('doctor', '--json', '--yes', '--report', '/root/report.tar.gz');
      assert.equal(ran.code, 0, ran.stderr);
      const told = at(assertDocument('doctor', ran.stdout), 'report', 'files');
      assert.ok(Array.isArray(told));
      const names: readonly unknown[] = told.map((file: unknown) => at(file, 'name'));
      const listing = await guest.must('tar', '-tzf', '/root/report.tar.gz');
      assert.deepEqual(
        listing.trim().split('\n').sort(),
        names.map((name) => `vgpu-report/${String(name)}`).sort(),
      );
      for (const name of names) assert.ok(ran.stderr.includes(String(name)), `${String(name)} is not listed`);
      assert.equal((await guest.must('stat', '-c', '%a', '/root/report.tar.gz')).trim(), '600');

      const all = await guest.must('tar', '-xzOf', '/root/report.tar.gz');
      for (const word of [...Object.values(planted), '10.9.8.7']) {
        assert.ok(!all.toLowerCase().includes(word.toLowerCase()), `${word} is in the report`);
      }
      // The useful parts are there: the log with the lines scrubbed, unit and drop-ins, facts, versions.
      assert.match(all, /msg="inference compute".*library=CUDA/);
      assert.match(all, /api_key=\[redacted\] user=\[user-\d\]/);
      assert.match(all, /^HARMLESS=\[redacted\]$/m);
      assert.match(all, /# \/etc\/systemd\/system\/ollama\.service\.d\/50-vgpu\.conf/);
      assert.match(all, /^systemd \d+/m);
      const text = await guest.must('tar', '-xzOf', '/root/report.tar.gz', 'vgpu-report/doctor.json');
      assert.equal(at(JSON.parse(text), 'verdict', 'mode'), 'gpu');
    });

    test('a file that is there is not written over', async () => {
      const former = await guest.must('sha256sum', '/root/report.tar.gz');
      const ran = await guest.agent('doctor', '--json', '--yes', '--report', '/root/report.tar.gz');
      assert.equal(ran.code, 2);
      assert.match(errorOf(ran).message, /is there already/);
      assert.equal(await guest.must('sha256sum', '/root/report.tar.gz'), former);
    });
  });

  describe(`doctor --fix, ${named(consumer)}`, { skip }, () => {
    let guest: Guest;
    before(async () => {
      guest = await Guest.start();
      await guest.hosts.start();
      await guest.installConsumer(consumer === 'real' ? consumer : 2);
    });
    after(() => guest?.stop());

    test('without an installation the first red line says so, and --fix does not install', async () => {
      const document = await doctor(guest, '--fix', '--yes');
      assert.equal(document.first, 'installed');
      assert.deepEqual(document.fix, { outcome: 'nothing', changes: 0, broken: ['installed'] });
      assert.equal(await guest.exists('/opt/vgpu'), false);
    });

    test('it repairs the files of vgpu-agent and checks again', async () => {
      assert.equal((await guest.agent('install', '--yes')).code, 0);
      await guest.must('ln', '-sfn', '/nonexistent', publicLink);
      const asked = await guest.agent('doctor', '--fix');
      assert.equal(asked.code, 2, 'without a terminal and --yes');
      assert.equal(await linkTarget(guest), '/nonexistent');
      const document = await doctor(guest, '--fix', '--yes');
      assertHealthy(document);
      assert.equal(document.fix?.outcome, 'done');
      assert.deepEqual(document.fix?.broken, ['public-links']);
      assert.ok((document.fix?.changes ?? 0) > 0);
    });

    test('the text: the first red line is the reason, its command is on a line of its own and last', async () => {
      await guest.must('rm', publicLink);
      const ran = await guest.agent('doctor');
      assert.equal(ran.code, 5, ran.stdout);
      assert.match(ran.stdout, /^BROKEN {2}public-links$/m);
      assert.match(ran.stdout, /^ {6}sudo vgpu-agent doctor --fix --profile ollama$/m);
      assert.match(ran.stdout, /^first: public-links\nnext: sudo vgpu-agent doctor --fix --profile ollama$/m);
      assert.equal((await guest.agent('doctor', '--fix', '--yes')).code, 0);
    });

    test('a user who is not root gets the command with sudo', async () => {
      const ran = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'doctor');
      assert.equal(ran.code, 6, 'not root');
      assert.match(ran.stderr, /doctor must run as root\n {2}try: sudo vgpu-agent doctor/);
    });
  });
}
