// The page in Cockpit: a real cockpit in a guest, a real browser, the service on the system bus.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { cockpitFiles, cockpitPage } from '../../agent/lib/paths.js';
import { messageIds } from '../../agent/systemd/journal-writer.js';
import { Browser } from './support/browser.js';
import { whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { uninstall } from './support/installed.js';
import { repository } from './support/repository.js';
import { testRoot, whyNoRoot } from './support/roots.js';
import { entries, installService, publicLink, settledOnGpu } from './support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const long = process.env['VGPU_TEST_LONG'] === '1' ? false : 'half a minute more: VGPU_TEST_LONG=1';

/** A device's name comes from the host, through the consumer's log, into the evidence. */
const deviceName = '<img src=x onerror="parent.hit=1"><b>RTX';
const source = join(repository, 'units/cockpit');

/** The page's document, which Cockpit has in a frame. */
const page = `document.querySelector('iframe[name$="/vgpu-agent"]').contentDocument`;
const shown = `${page}.body.innerText`;

/** A browser that has logged in and opened the page. */
async function openPage(guest: Guest, user: string, t: { after(fn: () => Promise<void>): void }) {
  const browser = await Browser.start(guest, t);
  await browser.open('https://127.0.0.1:9090/vgpu-agent');
  const field = (name: string) => `document.querySelector('#login-${name}')`;
  await browser.shows('the login form', `${field('user-input')}.offsetParent !== null`);
  await browser.evaluate(`${field('user-input')}.value = '${user}'; ${field('password-input')}.value = 'secret';
    ${field('button')}.click()`);
  await browser.shows('the page', `${page}.querySelector('#notice') !== null`);
  return browser;
}

const hasText = (text: string) => `${shown}.includes(${JSON.stringify(text)})`;
const click = (method: string) => `${page}.querySelector('[data-method=${method}]').click()`;

describe("the page in Debian 13's Cockpit", { skip: skip || whyNoRoot('cockpit-trixie') }, () => {
  check('cockpit-trixie');
});

describe("the page in Debian 12's Cockpit", { skip: skip || long || whyNoRoot('cockpit-bookworm') }, () => {
  check('cockpit-bookworm');
});

function check(root: string): void {
  let guest: Guest;
  let scratch: string;
  after(async () => {
    await guest.stop();
    rmSync(scratch, { recursive: true, force: true });
  });
  before(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'vgpu-test-cockpit-'));
    const device = JSON.parse(readFileSync(join(repository, 'profiles/devices/h100-80gb.json'), 'utf8'));
    device.devices[0].name = deviceName;
    const profile = join(scratch, 'device.json');
    writeFileSync(profile, JSON.stringify(device));
    guest = await Guest.start({ root: testRoot(root) });
    await guest.hosts.start({ profile });
    await installService(guest);
    await guest.must(
      'sh',
      '-c',
      `rm /etc/cockpit/disallowed-users && useradd --create-home --shell /bin/bash guest &&
       useradd --create-home --shell /bin/bash --groups sudo admin &&
       printf 'root:secret\\nguest:secret\\nadmin:secret\\n' | chpasswd && systemctl --quiet unmask systemd-logind dbus-org.freedesktop.login1 user@ &&
       systemctl start systemd-logind cockpit.socket`,
    );
  });

  test('install --service brings it, where Cockpit is', async () => {
    for (const name of cockpitFiles)
      assert.equal(
        await guest.read(`${cockpitPage}/${name}`),
        readFileSync(join(source, name), 'utf8'),
        name,
      );
  });

  test('root sees the verdict, a repair, and can act', async (t) => {
    const browser = await openPage(guest, 'root', t);

    await t.test('verdict, evidence and host', async () => {
      await browser.shows('the verdict', hasText('GPU (simulated)'));
      const article = `${page}.querySelector('article[data-unit="ollama.service"]').innerText`;
      const text = String(await browser.evaluate(article));
      assert.match(text, /^ollama\.service \(ollama\)\s*GPU \(simulated\)$/m);
      assert.match(text, /^for GPU\s+log-line\s/m);
      assert.match(text, /^Drift now\s+none$/m);
      assert.match(String(await browser.evaluate(shown)), /^Address\s+unix:\/run\/vgpu\/hostd\.sock$/m);
    });

    await t.test('markup in a log line and in a name stays text', async () => {
      await browser.shows('the name as text', hasText(deviceName));
      const line = `[...${page}.querySelectorAll('td')].find((one) => one.textContent.includes('onerror'))`;
      assert.match(String(await browser.evaluate(`${line}.textContent`)), /<img src=x onerror=/);
      assert.equal(await browser.evaluate(`${page}.querySelectorAll('img, b').length`), 0);
      assert.equal(await browser.evaluate('window.hit'), undefined);
    });

    await t.test('a drift and its repair appear without a reload of the page', async () => {
      await browser.evaluate('window.marked = true');
      await guest.must('rm', publicLink);
      await browser.shows('the counts', hasText('drifts found: 1, repairs: 1, failed repairs: 0,'));
      const [repaired = ''] = await entries(guest, messageIds.repaired);
      assert.notEqual(repaired, '');
      await browser.shows('the entry of the journal', hasText(repaired));
      assert.equal(await browser.evaluate('window.marked'), true);
    });

    await t.test('each button calls its method', async () => {
      await settledOnGpu(guest);
      await browser.evaluate(click('Verify'));
      await browser.shows('the result', hasText('Verified: GPU (simulated).'));
      await browser.evaluate(click('Repair'));
      await browser.shows('the result', hasText('Repair ended; state: settled.'));
      const good = await guest.read('/etc/vgpu-agent/agent.json');
      await guest.write('/etc/vgpu-agent/agent.json', '{"schema": 1, "profil": "x"}\n');
      await browser.evaluate(click('Reload'));
      await browser.shows('the refusal', `/Reload agent\\.json failed: .*profil/s.test(${shown})`);
      await guest.write('/etc/vgpu-agent/agent.json', good);
      await browser.evaluate(click('Reload'));
      await browser.shows('the result', hasText('agent.json was read, and is in force.'));
    });

    await t.test('a lost host is shown, and its return too', async () => {
      await guest.hosts.stop('SIGKILL');
      await browser.shows('the host is gone', hasText('does not answer: '));
      await guest.hosts.start({ profile: join(scratch, 'device.json') });
      await browser.shows('the host is back', `/State\\s+answers: /.test(${shown})`);
      await settledOnGpu(guest);
    });

    await t.test('while the service does not run, nothing of it is shown', async () => {
      await guest.must('systemctl', 'stop', 'vgpu-agent');
      await browser.shows('the notice', hasText('The service is not running: systemctl start vgpu-agent'));
      assert.equal(await browser.evaluate(`${page}.querySelector('#facts').hidden`), true);
      assert.equal(await browser.evaluate(`${page}.querySelectorAll('article, dd').length`), 0);
      await guest.must('systemctl', 'start', 'vgpu-agent');
      await browser.shows('the verdict again', hasText('GPU (simulated)'));
    });

    await t.test('each consumer has its own verdict', async () => {
      const unit = await guest.read('/etc/systemd/system/ollama.service');
      const other = 'Environment=OLLAMA_HOST=127.0.0.1:3143%i CUDA_VISIBLE_DEVICES=-1';
      await guest.write(
        '/etc/systemd/system/ollama@.service',
        unit.replace('[Service]\n', `[Service]\n${other}\n`),
      );
      await guest.must('systemctl', 'daemon-reload');
      await guest.must('systemctl', 'start', 'ollama@1');
      const installed = await guest.agent('install', '--yes', '--unit', 'ollama@1.service');
      assert.equal(installed.code, 3, installed.stdout + installed.stderr);
      const verdict = (name: string) =>
        `${page}.querySelector('article[data-unit="${name}"] .verdict').textContent`;
      await browser.shows('the second one', `${verdict('ollama@1.service')} === 'CPU'`);
      // The service has begun again for the second one, and judges each by itself.
      await browser.shows('the first one', `${verdict('ollama.service')} === 'GPU (simulated)'`);
      const article = `${page}.querySelector('article[data-unit="ollama@1.service"]').innerText`;
      const text = String(await browser.evaluate(article));
      assert.match(text, /^Reason\s+devices-hidden-by-environment$/m);
      assert.match(text, /^against GPU\s/m);
      await uninstall(guest, '--unit', 'ollama@1.service');
      await browser.shows('it is gone', `${page}.querySelectorAll('article').length === 1`);
    });

    await t.test('no facts are shown while the service hangs', async () => {
      const main = await guest.property('vgpu-agent', 'MainPID');
      const node = (await guest.must('pgrep', '-P', main, 'node')).trim();
      await guest.must('kill', '-STOP', node);
      await browser.evaluate(click('Verify'));
      // The watchdog ends it after 10 s, or the limit of a read comes first.
      await browser.shows('nothing is shown', `${page}.querySelector('#facts').hidden`);
      await browser.shows('the verdict of the next one', hasText('GPU (simulated)'));
    });
  });

  test('another user sees the verdict, and is told why he cannot act', async (t) => {
    const browser = await openPage(guest, 'guest', t);
    await browser.shows('the verdict', hasText('GPU (simulated)'));
    await browser.evaluate(click('Verify'));
    await browser.shows('the refusal', hasText('Verify failed: '));
    assert.match(
      String(await browser.evaluate(`${page}.querySelector('#result').textContent`)),
      /^Verify failed: .*Turn on administrative access in Cockpit, or ask an administrator\.$/,
    );
    await browser.shows('why there is no journal', hasText('The journal cannot be read'));
  });

  test("Cockpit's switch for administrative access gives the buttons and the journal", async (t) => {
    const browser = await openPage(guest, 'admin', t);
    await browser.shows('why there is no journal', hasText('The journal cannot be read'));
    // Of Cockpit's own pages: the button in its head, and the field of its dialogue.
    const button = (text: string) =>
      `[...document.querySelectorAll('button')].find((one) => one.innerText === '${text}')`;
    await browser.shows('the switch', `${button('Limited access')} !== undefined`);
    await browser.evaluate(`${button('Limited access')}.click()`);
    const field = `document.querySelector('[role=dialog] input[type=password]')`;
    await browser.shows('the dialogue', `${field} !== null`);
    await browser.evaluate(`${field}.focus()`);
    await browser.type('secret');
    await browser.evaluate(`${button('Authenticate')}.click()`);
    await browser.shows('administrative access', `${button('Administrative access')} !== undefined`);
    await browser.shows('the journal', `${page}.querySelectorAll('#journal li').length > 0`);
    await browser.shows('the verdict', hasText('GPU (simulated)'));
    await browser.evaluate(click('Verify'));
    await browser.shows('the result', hasText('Verified: GPU (simulated).'));
  });

  test('uninstall takes it away', async () => {
    await uninstall(guest);
    assert.equal(await guest.exists(cockpitPage), false);
    assert.equal(await guest.exists('/usr/share/cockpit/shell'), true);
  });
}
