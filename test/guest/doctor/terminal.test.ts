// The doctor as a person sees it, on a terminal that tmux draws; and where the other commands send them to it.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { consumers, named, whyNoConsumer } from '../support/consumer.js';
import { assertHealthy, doctor } from '../support/doctor.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { installedGpu, ready, restartConsumer } from '../support/scenario.js';
import { linkTarget, publicLink } from '../support/service.js';
import { Terminal, whyNoTerminal } from '../support/terminal.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || (await whyNoTerminal());
const question = /^\? Change this, and restart ollama\.service\? \(y\/N\)/m;
const why = 'why:  sudo vgpu-agent doctor --profile ollama';

/** Lines wider than the terminal that are neither a command to copy nor one word. */
function tooWide(text: string): readonly string[] {
  const quoted = /^next(?:, on the host)?: |^ {4}[+-]|^ {6}(?:sudo )?\w+ |^ +\S+$/;
  return text.split('\n').filter((line) => line.length > 80 && !quoted.test(line));
}

for (const consumer of consumers())
  describe(`the doctor on a terminal of 80 columns, ${named(consumer)}`, { skip }, () => {
    let guest: Guest;
    before(async () => {
      guest = await ready(undefined, { design: consumer, env: { STANDIN_KEEP_RUNNER: '1' } });
      await installedGpu(guest);
    });
    after(() => guest?.stop());

    test('a healthy guest gets a line for each check, and every line fits', async (t) => {
      const { code, text } = await (await Terminal.start(guest, 'vgpu-agent doctor', t)).end();
      assert.equal(code, 0, text);
      assert.match(text, /^GPU \(simulated\) {2}ollama\.service \(ollama /m);
      assert.match(text, /^ok {7}public-links {9}public links lead to the shim$/m);
      assert.match(text, /^nothing is broken \(\d+ checks\)$/m);
      assert.deepEqual(tooWide(text), []);
    });

    test('--fix answered no changes nothing, says so, and the findings stand there', async (t) => {
      await guest.must('ln', '-sfn', '/nonexistent', publicLink);
      const start = await guest.invocationId('ollama');
      const before = await guest.listing();
      const terminal = await Terminal.start(guest, 'vgpu-agent doctor --fix', t);
      const asked = await terminal.shows(question);
      assert.match(asked, /^~ link \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1$/m, 'the plan is above');
      await terminal.type('n', 'Enter');
      const { code, text } = await terminal.end();
      assert.equal(code, 130, text);
      assert.match(text, /^BROKEN {2}public-links$/m);
      assert.match(
        text,
        /^next: sudo vgpu-agent doctor --fix --profile ollama\n--fix: nothing was changed$/m,
      );
      assert.deepEqual(tooWide(text), []);
      assert.equal(await linkTarget(guest), '/nonexistent');
      assert.deepEqual(before.diff(await guest.listing()), []);
      assert.equal(await guest.invocationId('ollama'), start, 'and nothing was restarted');
    });

    test('--fix answered yes repairs it', async (t) => {
      const terminal = await Terminal.start(guest, 'vgpu-agent doctor --fix', t);
      await terminal.shows(question);
      await terminal.type('y', 'Enter');
      const { code, text } = await terminal.end(120_000);
      assert.equal(code, 0, text);
      assert.match(text, /^--fix: \d+ changes? made; the result follows$/m);
      assertHealthy(await doctor(guest));
    });

    test('without the host: verify, install and status name the doctor, which says where its command goes', async (t) => {
      await guest.hosts.stop();
      await restartConsumer(guest);
      for (const command of ['verify', 'install --yes', 'status']) {
        const { code, text } = await (await Terminal.start(guest, `vgpu-agent ${command}`, t)).end(120_000);
        assert.equal(code, 3, text);
        assert.match(text, /^next: /m, command);
        assert.ok(text.split('\n').includes(why), `${command} does not name the doctor\n${text}`);
      }
      const { code, text } = await (await Terminal.start(guest, 'vgpu-agent doctor', t)).end();
      assert.equal(code, 3, text);
      assert.match(text, /^first: host$/m);
      assert.match(text, /^next, on the host: systemctl start vgpu-hostd$/m);
      assert.deepEqual(tooWide(text), []);
    });

    test('with NO_COLOR it says the same', async (t) => {
      const plain = await Terminal.start(guest, 'NO_COLOR=1 vgpu-agent doctor', t);
      const uncoloured = (await plain.end()).text;
      const bytes = await plain.painted();
      const coloured = await Terminal.start(guest, 'vgpu-agent doctor', t);
      const { text } = await coloured.end();
      assert.equal(uncoloured, text);
      const red = '\u001b[31m';
      assert.ok((await coloured.painted()).includes(red));
      assert.ok(!bytes.includes('\u001b[3'), 'no colour');
    });
  });
