// The wizard, typed at on a terminal that tmux draws. One guest; every test leaves it as it found it.

import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { ChangeDocument } from '../../../agent/cli/commands/common.js';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoConsumer } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import type { Listing } from '../support/listing.js';
import { ready, settings } from '../support/scenario.js';
import { Terminal, whyNoTerminal } from '../support/terminal.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || (await whyNoTerminal());

/** A question stands as `? ...` while it is asked, and as `> ...` once it is answered. */
const asks = {
  consumer: /^\? Which service should use the GPU of the host\?$/m,
  host: /^\? Use the GPU of the host at unix:\/run\/vgpu\/hostd\.sock\?$/m,
  noHost: /^\? No host answers\. What now\?$/m,
  address: /^\? Where does vgpu-hostd listen\?/m,
  service: /^\? Install the service vgpu-agent\.service too\?$/m,
  go: /^\? Change this, and restart ollama\.service\?$/m,
};
const stopped = /^vgpu-agent: stopped at the question; nothing was changed$/m;
const same = (service: string): RegExp =>
  new RegExp(
    `^ {2}sudo vgpu-agent install --profile ollama --host unix:/run/vgpu/hostd\\.sock ${service} --yes$`,
    'm',
  );

/** Lines that are too wide, and are neither a command to copy nor quoted from a file. */
function tooWide(text: string, columns: number): readonly string[] {
  const quoted = /^ {4}[+-]|^ {2,}(?:sudo|systemctl) |^next: |^ +\S+$/;
  return text.split('\n').filter((line) => line.length > columns && !quoted.test(line));
}

/** With the lines that were wrapped in one. */
const flat = (text: string): string => text.replace(/\n +/g, ' ');

describe('vgpu-agent setup', { skip, concurrency: 1 }, () => {
  let guest: Guest;
  let untouched: Listing;
  const ends: (() => Promise<void>)[] = [];

  before(async () => {
    guest = await ready({ after: (end) => void ends.push(end) });
    await guest.must('ldconfig');
  });
  beforeEach(async () => {
    untouched = await guest.listing();
  });
  after(async () => {
    for (const end of ends.reverse()) await end();
  });

  const assertUntouched = async (): Promise<void> => {
    assert.deepEqual(untouched.diff(await guest.listing(), { mtimes: 'all' }), []);
  };

  test('asks two things, shows the plan, asks once more, and ends with the verdict', async (t) => {
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    const first = await terminal.shows(asks.host);
    assert.match(first, /^ {2}services {2}ollama\.service: /m);
    assert.match(first, /^ {2}libraries no other library in the way$/m);
    assert.match(first, /unix:\/run\/vgpu\/hostd\.sock answers: NVIDIA .* \(simulated\)$/m);
    assert.match(first, /vsock:2:14833 does not answer: /m);
    assert.match(first, /^ {2}installed nothing yet$/m);
    assert.doesNotMatch(first, /Which service/, 'there is one: no question');
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('2', 'Enter');
    const asked = await terminal.shows(asks.go);
    assert.match(asked, /^> Install the service vgpu-agent\.service too\? No$/m);
    assert.match(asked, /^\+ link \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1$/m, 'the plan is above');
    assert.deepEqual(tooWide(asked, 80), []);
    await assertUntouched();
    await terminal.type('1', 'Enter');
    const { code, text } = await terminal.end();
    assert.equal(code, 0, text);
    assert.match(text, /^\[1\/14\] directory \/opt\/vgpu\/ \(0755\)$/m, 'each step stays');
    assert.match(text, /^\[14\/14\] systemctl restart ollama\.service$/m);
    assert.match(text, /^GPU \(simulated\) {2}ollama\.service \(ollama /m);
    assert.match(text, /^installed \(14 changes\); the same without questions:$/m);
    assert.match(text, same('--no-service'));
    assert.match(text, /^From now on\n {2}sudo vgpu-agent verify /m);
    assert.doesNotMatch(text, /^[?|/\\-] /m, 'no question and no spinning line is left');
    assert.deepEqual(tooWide(text, 80), []);

    const again = await Terminal.start(guest, 'vgpu-agent setup', t);
    await again.shows(asks.host);
    await again.type('Enter');
    await again.shows(asks.service);
    await again.type('2', 'Enter');
    const told = await again.end();
    assert.equal(told.code, 0, told.text);
    assert.match(told.text, /^ {2}installed for ollama, host unix:\/run\/vgpu\/hostd\.sock$/m);
    assert.match(told.text, /^nothing to do$/m, 'a second time nothing is left to be agreed to');
    await guest.must('vgpu-agent', 'uninstall', '--yes');
  });

  test('the command line that it prints does the same', async (t) => {
    const flags = ['--profile', 'ollama', '--host', 'unix:/run/vgpu/hostd.sock', '--service'];
    const byFlags = assertDocument(
      'install',
      await guest.must('vgpu-agent', 'install', ...flags, '--dry-run', '--json'),
    ) as ChangeDocument;
    const file = '/run/setup.json';
    const terminal = await Terminal.start(guest, `vgpu-agent setup --json >${file}`, t);
    await terminal.shows(asks.host);
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('Enter');
    await terminal.shows(asks.go);
    await terminal.type('1', 'Enter');
    const { code, text } = await terminal.end();
    assert.equal(code, 0, text);
    const wizard = assertDocument('setup', await guest.read(file)) as ChangeDocument & {
      readonly commandLine: string;
    };
    assert.equal(wizard.verdict?.mode, 'gpu');
    assert.equal(wizard.commandLine, `sudo vgpu-agent install ${flags.join(' ')} --yes`);
    assert.deepEqual(wizard.plan, byFlags.plan);
    assert.ok(wizard.plan?.kind === 'ready');
    assert.equal(wizard.changed, wizard.plan.changes.length);
    assert.ok(wizard.changed > 14, 'the service is more than what was installed without it');
    const again = await guest.agent('install', ...flags, '--yes');
    assert.equal(again.code, 0, again.stderr);
    assert.match(again.stdout, /^nothing to do$/m);
    await guest.must('vgpu-agent', 'uninstall', '--yes');
  });

  test('Ctrl-C at any question changes nothing and says so: exit 130', async (t) => {
    const start = await guest.invocationId('ollama');
    const ways: readonly (readonly (readonly [question: RegExp, ...keys: string[]])[])[] = [
      [[asks.host]],
      [[asks.host, '2', 'Enter'], [asks.address]],
      [[asks.host, 'Enter'], [asks.service]],
      [[asks.host, 'Enter'], [asks.service, 'Enter'], [asks.go]],
    ];
    for (const way of ways) {
      const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
      for (const [question, ...keys] of way) {
        await terminal.shows(question);
        if (keys.length > 0) await terminal.type(...keys);
      }
      await terminal.type('C-c');
      const { code, text } = await terminal.end();
      assert.equal(code, 130, text);
      assert.match(text, stopped);
      await assertUntouched();
    }
    assert.equal(await guest.invocationId('ollama'), start);
  });

  test('"No" and Ctrl-D change nothing either', async (t) => {
    const declined = await Terminal.start(guest, 'vgpu-agent setup', t);
    await declined.shows(asks.host);
    await declined.type('Enter');
    await declined.shows(asks.service);
    await declined.type('Enter');
    await declined.shows(asks.go);
    await declined.type('2', 'Enter');
    const no = await declined.end();
    assert.equal(no.code, 130, no.text);
    assert.match(no.text, /^nothing was changed; the same without questions:$/m);
    assert.match(no.text, same('--service'));

    const left = await Terminal.start(guest, 'vgpu-agent setup', t);
    await left.shows(asks.host);
    await left.type('C-d');
    const end = await left.end();
    assert.equal(end.code, 130, end.text);
    assert.match(end.text, stopped);
    await assertUntouched();
  });

  test('"Back" returns to the previous question, also from the plan, and other answers make another plan', async (t) => {
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    const first = await terminal.shows(asks.host);
    assert.doesNotMatch(first, /^ *>? *Back /m, 'nothing is before the first');
    await terminal.type('2', 'Enter');
    await terminal.shows(asks.address);
    await terminal.type('unix:relative', 'Enter');
    await terminal.shows(/"unix:relative" is not an address: the path of the socket must be absolute/);
    await terminal.type('C-u', 'back', 'Enter');
    await terminal.shows(asks.host);
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('3', 'Enter');
    await terminal.shows(asks.host);
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('Enter');
    const withService = await terminal.shows(asks.go);
    assert.match(withService, /^> systemctl start vgpu-agent\.service$/m);
    await terminal.type('3', 'Enter');
    await terminal.shows(asks.service);
    await terminal.type('2', 'Enter');
    const without = await terminal.shows(asks.go);
    assert.doesNotMatch(
      without.slice(without.lastIndexOf('\n> Install the service')),
      /^> systemctl start vgpu-agent\.service$/m,
    );
    await terminal.type('C-c');
    assert.equal((await terminal.end()).code, 130);
    await assertUntouched();
  });

  test('with two services it asks which, and Ctrl-C there changes nothing', async (t) => {
    const unit = '/etc/systemd/system/llama-server.service';
    await guest.write(unit, '[Service]\nExecStart=/bin/sleep infinity\n');
    await guest.must('systemctl', 'daemon-reload');
    untouched = await guest.listing();
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    const asked = await terminal.shows(asks.consumer);
    assert.match(asked, /^ {2}llama-server {2}llama-server\.service$/m);
    assert.match(asked, /^> ollama {8}ollama\.service$/m, 'Enter alone takes the usual one');
    await terminal.type('1', 'Enter');
    const next = await terminal.shows(asks.host);
    assert.match(next, /^ {2}Back +to the question before this$/m);
    await terminal.type('3', 'Enter');
    await terminal.shows(asks.consumer);
    await terminal.type('C-c');
    const { code, text } = await terminal.end();
    assert.equal(code, 130, text);
    assert.match(text, stopped);
    await assertUntouched();
    await guest.must('rm', unit);
    await guest.must('systemctl', 'daemon-reload');
  });

  test('without a host that answers it says what it tried, looks again when told to, and refuses', async (t) => {
    await guest.hosts.stop();
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    const asked = await terminal.shows(asks.noHost);
    assert.match(asked, /unix:\/run\/vgpu\/hostd\.sock does not answer: /);
    await terminal.type('2', 'Enter');
    await terminal.shows(asks.address);
    await terminal.type('tcp:127.0.0.1:9', 'Enter');
    await terminal.shows(/^tcp:127\.0\.0\.1:9 does not answer: Connection refused$/m);
    await terminal.type('C-u', 'back', 'Enter');
    await terminal.shows(asks.noHost);
    await guest.hosts.start();
    await terminal.type('Enter');
    await terminal.shows(asks.host);
    await terminal.type('C-c');
    assert.equal((await terminal.end()).code, 130);

    await guest.hosts.stop();
    const second = await Terminal.start(guest, 'vgpu-agent setup', t);
    await second.shows(asks.noHost);
    await second.type('3', 'Enter');
    const { code, text } = await second.end();
    assert.equal(code, 6, text);
    assert.match(text, /^vgpu-agent: no host answers:$/m);
    assert.match(flat(text), /start vgpu-hostd on the host, then sudo vgpu-agent setup/);
    await guest.hosts.start();
    await assertUntouched();
  });

  test('it refuses before it asks: not root, no terminal, no service, a service that is masked', async (t) => {
    const user = await Terminal.start(guest, 'runuser -u nobody -- vgpu-agent setup', t);
    const notRoot = await user.end();
    assert.equal(notRoot.code, 6, notRoot.text);
    assert.match(notRoot.text, /^vgpu-agent: setup must run as root$/m);
    assert.match(notRoot.text, /sudo vgpu-agent setup/);

    const piped = await guest.agent('setup');
    assert.equal(piped.code, 2, piped.stderr);
    assert.match(piped.stderr, /setup needs an interactive terminal/);
    assert.match(piped.stderr, /vgpu-agent install --profile NAME --host ADDRESS --service --yes/);

    const unit = '/etc/systemd/system/ollama.service';
    await guest.must('mv', unit, '/run/ollama.service');
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'stop', 'ollama');
    const none = await (await Terminal.start(guest, 'vgpu-agent setup', t)).end();
    assert.equal(none.code, 6, none.text);
    assert.match(flat(none.text), /no service here can be given a GPU: .*ollama\.service is absent/);
    await guest.must('ln', '-s', '/dev/null', unit);
    await guest.must('systemctl', 'daemon-reload');
    const masked = await (await Terminal.start(guest, 'vgpu-agent setup', t)).end();
    assert.equal(masked.code, 6, masked.text);
    assert.match(flat(masked.text), /ollama\.service is masked/);
    assert.match(masked.text, /systemctl unmask ollama\.service/);
    await guest.must('rm', unit);
    await guest.must('mv', '/run/ollama.service', unit);
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'start', 'ollama');
  });

  test('another library is shown before the first question', async (t) => {
    const library = '/usr/lib/x86_64-linux-gnu/libcuda.so.1';
    await guest.must('cp', '/usr/lib/x86_64-linux-gnu/libm.so.6', library);
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    const asked = await terminal.shows(asks.host);
    assert.match(
      flat(asked),
      / libraries \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1 is from neither vgpu-agent nor NVIDIA/,
    );
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('2', 'Enter');
    assert.match(await terminal.shows(asks.go), /^~ link \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1$/m);
    await terminal.type('C-c');
    assert.equal((await terminal.end()).code, 130);
    await guest.must('rm', library);
  });

  test("without a GPU verdict it ends with the doctor's first finding", async (t) => {
    await settings(
      guest,
      'Environment=CUDA_VISIBLE_DEVICES=-1',
      'UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH',
    );
    const terminal = await Terminal.start(guest, 'vgpu-agent setup', t);
    await terminal.shows(asks.host);
    await terminal.type('Enter');
    await terminal.shows(asks.service);
    await terminal.type('2', 'Enter');
    await terminal.shows(asks.go);
    await terminal.type('1', 'Enter');
    const { code, text } = await terminal.end();
    assert.equal(code, 3, text);
    assert.match(text, /^CPU {2}ollama\.service/m);
    assert.match(text, /^BROKEN {2}(environment|overrides)$/m);
    assert.match(text, /^ {2}do: /m, 'and what to do');
    assert.match(text, /^ {2}sudo vgpu-agent doctor +why not, check by check$/m);
    assert.deepEqual(tooWide(text, 80), []);
    await guest.must('vgpu-agent', 'uninstall', '--yes');
    await settings(guest);
  });

  test('uses no colours with NO_COLOR, and names install on a terminal that cannot be drawn on', async (t) => {
    const plain = await Terminal.start(guest, 'NO_COLOR=1 vgpu-agent setup', t);
    await plain.shows(asks.host);
    assert.ok(!(await plain.painted()).includes('\u001b['), 'nothing is coloured or bold');
    await plain.type('C-c');
    await plain.end();

    const dumb = await Terminal.start(guest, 'TERM=dumb vgpu-agent setup', t);
    const { code, text } = await dumb.end();
    assert.equal(code, 2, text);
    assert.match(text, /setup needs an interactive terminal[\s\S]*vgpu-agent install --profile/);
    await assertUntouched();
  });
});
