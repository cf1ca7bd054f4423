/** Several consumers in one guest: each installed, shown, guarded and taken away by itself; the last takes the shared parts. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../agent/systemd/journal-writer.js';
import { whyNoStandIn } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  differences,
  documentOf,
  installToGpu,
  prepareConsumer,
} from './support/installed.js';
import type { Listing } from './support/listing.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';
import { entries, said } from './support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const units = ['ollama.service', 'mine.service', 'ollama@1.service'];
const dropIn = (unit: string): string => `/etc/systemd/system/${unit}.d/50-vgpu.conf`;

/** A second service of another profile, and a template of the first: the same program on other ports. */
async function otherServices(guest: Guest): Promise<void> {
  const shipped = readFileSync(path.join(repository, 'profiles/ollama.json'), 'utf8');
  const mine = shipped
    .replace('"name": "ollama"', '"name": "mine"')
    .replace('"unit": "ollama.service"', '"unit": "mine.service"');
  await guest.must('mkdir', '-p', '/etc/vgpu-agent/profiles');
  await guest.write('/etc/vgpu-agent/profiles/mine.json', mine);
  const text = await guest.read('/etc/systemd/system/ollama.service');
  const on = (port: string): string =>
    text.replace('[Service]\n', `[Service]\nEnvironment=OLLAMA_HOST=127.0.0.1:${port}\n`);
  await guest.write('/etc/systemd/system/mine.service', on('21434'));
  await guest.write('/etc/systemd/system/ollama@.service', on('3143%i'));
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'start', 'mine', 'ollama@1');
}

interface Shown {
  readonly unit: string;
  readonly state: unknown;
  readonly mode: unknown;
  readonly drift: unknown;
}

/** The service's status of each consumer, when all are settled. */
async function settled(guest: Guest, count: number): Promise<readonly Shown[]> {
  let last: readonly Shown[] = [];
  try {
    return await until(`${count} consumers are settled on the GPU`, 180_000, async () => {
      const ran = await guest.run('vgpu-agent', 'status', '--json');
      const list = ran.stdout === '' ? [] : at(JSON.parse(ran.stdout), 'consumers');
      last = (Array.isArray(list) ? list : []).map((one) => ({
        unit: String(at(one, 'unit', 'name')),
        state: at(one, 'service', 'state'),
        mode: at(one, 'verdict', 'mode'),
        drift: at(one, 'drift', 'length'),
      }));
      const fine = last.every((one) => one.state === 'settled' && one.mode === 'gpu' && one.drift === 0);
      return fine && last.length === count ? last : undefined;
    });
  } catch (error) {
    throw new Error(`${String(error)}\n${JSON.stringify(last)}\n${await said(guest)}`);
  }
}

async function consumersOf(guest: Guest): Promise<readonly unknown[]> {
  const list = at(JSON.parse(await guest.read('/var/lib/vgpu-agent/manifest.json')), 'consumers');
  return Array.isArray(list) ? list.map((one) => at(one, 'unit')) : [];
}

describe('several consumers', { skip }, () => {
  let guest: Guest;
  let was: Listing;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await prepareConsumer(guest, 3);
    await otherServices(guest);
    was = await guest.listing();
  });
  after(() => guest.stop());

  test('a second and a third are installed beside a service, which does not take them back', async () => {
    await installToGpu(guest, '--service');
    await installToGpu(guest, '--profile', 'mine');
    await installToGpu(guest, '--unit', 'ollama@1');
    const shown = await settled(guest, 3);
    assert.deepEqual(
      shown.map((one) => one.unit),
      units,
    );
    assert.deepEqual(await consumersOf(guest), units);
    const unitFile = await guest.read('/etc/systemd/system/vgpu-agent.service');
    assert.match(unitFile, /^Before=mine\.service ollama\.service ollama@1\.service$/m);
    assert.deepEqual(await entries(guest, messageIds.repaired), [], await said(guest));
  });

  test('status shows all of them, for a person and without the service too', async () => {
    const { stdout } = await guest.agent('status', '--fresh');
    for (const unit of units) assert.ok(stdout.includes(`${unit}: active`), stdout);
    assert.equal(stdout.match(/^GPU \(simulated\)/gm)?.length, 3, stdout);
    const one = JSON.parse((await guest.agent('status', '--unit', 'mine', '--json')).stdout);
    assert.deepEqual([at(one, 'consumers', 'length'), at(one, 'unit', 'name')], [1, 'mine.service']);
  });

  test('each is guarded: the drop-in of every one comes back', async () => {
    for (const unit of units) {
      await guest.must('rm', dropIn(unit));
      await until(`${dropIn(unit)} is back`, 60_000, async () =>
        (await guest.exists(dropIn(unit))) ? true : undefined,
      );
    }
    await settled(guest, 3);
  });

  test('each is verified separately, and none is guessed', async () => {
    for (const unit of units) {
      const document = documentOf(await guest.agent('verify', '--unit', unit, '--json'));
      assert.deepEqual([at(document, 'verdict', 'unit'), at(document, 'verdict', 'mode')], [unit, 'gpu']);
    }
    const ran = await guest.agent('verify');
    assert.equal(ran.code, 2, ran.stderr);
    assert.match(
      ran.stderr,
      /several services have the GPU, so the command must name one: ollama\.service .*name it: --unit/s,
    );
  });

  test('a trace is of one of them, and leaves the others running', async () => {
    const start = await guest.invocationId('ollama');
    const ran = await guest.agent('doctor', '--trace', '--yes', '--unit', 'ollama@1');
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.equal(await guest.invocationId('ollama'), start);
    await settled(guest, 3);
  });

  test('one is taken away: it runs as before, the others keep the GPU and the service', async () => {
    const start = await guest.invocationId('mine');
    const ran = await guest.agent('uninstall', '--yes', '--unit', 'ollama.service');
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.match(
      ran.stdout,
      /ollama\.service is as it was before install; mine\.service and ollama@1\.service keep the GPU/,
    );
    assert.equal(await guest.exists(path.dirname(dropIn('ollama.service'))), false);
    await assertRunsWithoutShim(guest);
    assert.deepEqual(
      (await settled(guest, 2)).map((one) => one.unit),
      ['mine.service', 'ollama@1.service'],
    );
    assert.equal(await guest.invocationId('mine'), start);
    assert.equal(await guest.exists(dropIn('ollama.service')), false, 'the service brought it back');
    assert.match(
      await guest.read('/etc/systemd/system/vgpu-agent.service'),
      /^Before=mine\.service ollama@1\.service$/m,
    );
  });

  test('without a name nothing is taken away; with --all everything is as it was', async () => {
    const ran = await guest.agent('uninstall', '--yes');
    assert.equal(ran.code, 2, ran.stdout + ran.stderr);
    const all = documentOf(await guest.agent('uninstall', '--yes', '--all', '--json'));
    assert.deepEqual(
      [at(all, 'outcome'), at(all, 'before', 'length'), at(all, 'plan', 'consumers', 'length')],
      ['done', 1, 0],
    );
    assert.deepEqual(differences(was, await guest.listing()), []);
  });
});
