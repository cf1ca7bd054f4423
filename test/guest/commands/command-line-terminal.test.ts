// The view of a person: the command on a terminal that tmux draws.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { installedGpu, ready, settings, tell } from '../support/scenario.js';
import { Terminal, whyNoTerminal } from '../support/terminal.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || (await whyNoTerminal());
const question = /^\? Change this, and restart ollama\.service\? \(y\/N\)/m;

/** Lines wider than the terminal that are not quoted from elsewhere: a file's content, a path or variable, a command to copy. */
function tooWide(text: string, columns = 80): readonly string[] {
  const quoted = /^ {4}[+-]|^next: |^ +\S+$/;
  return text.split('\n').filter((line) => line.length > columns && !quoted.test(line));
}

describe('on a terminal of 80 columns', { skip, concurrency: 2 }, () => {
  test('install asks, tells by one spinning line what it waits for, and leaves a clean screen', {
    skip: whyNoStandIn(),
  }, async (t) => {
    const guest = await ready(t, { env: { STANDIN_DELAY_MS: '6000' } });
    const terminal = await Terminal.start(guest, 'vgpu-agent install', t);
    const asked = await terminal.shows(question);
    assert.match(asked, /^\+ link \/usr\/lib\/x86_64-linux-gnu\/libcuda\.so\.1$/m, 'the plan is above');
    assert.deepEqual(tooWide(asked), []);
    await terminal.type('y', 'Enter');

    const spinner = /^[|/\\-] (?:finding out|waiting for) .*\d\.\d s/m;
    const first = spinner.exec(await terminal.shows(spinner))?.[0];
    const later = spinner.exec(
      await terminal.shows(
        /^[|/\\-] waiting for ollama to say which device it uses {2}[1-9]\.\d s of at most (?:1[12]\d s|2 min 0 s)$/m,
      ),
    )?.[0];
    assert.notEqual(first, later, 'it moves');

    const { code, text } = await terminal.end();
    assert.equal(code, 0, text);
    assert.doesNotMatch(text, spinner, 'nothing of the spinning line is left');
    assert.doesNotMatch(text, /^\[\d+\/\d+\]/m, 'steps are not left behind');
    assert.match(text, /^GPU \(simulated\) {2}ollama\.service \(ollama /m);
    assert.match(text, /^installed \(14 changes\)$/m);
    assert.deepEqual(tooWide(text), []);
    assert.ok(!text.includes('\u001b'));
  });

  test('Ctrl-C, Ctrl-D and SIGTERM at the question change nothing: exit 130; others are not kept waiting', async (t) => {
    const guest = await ready(t);
    await guest.must('ldconfig');
    const before = await guest.listing();
    const start = await guest.invocationId('ollama');
    const ways: readonly ((terminal: Terminal) => Promise<unknown>)[] = [
      (terminal) => terminal.type('C-c'),
      (terminal) => terminal.type('C-d'),
      () => guest.must('sh', '-c', "pkill -TERM -f 'vgpu-agent instal[l]$'"),
    ];
    for (const end of ways) {
      const terminal = await Terminal.start(guest, 'vgpu-agent install', t);
      await terminal.shows(question);
      const other = await guest.agent('uninstall', '--yes');
      assert.equal(other.code, 0, other.stderr);
      await end(terminal);
      const { code, text } = await terminal.end();
      assert.equal(code, 130, text);
      assert.match(text, /^vgpu-agent: stopped at the question; nothing was changed$/m);
    }
    assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
    assert.equal(await guest.invocationId('ollama'), start);
  });

  test('after a change while the question was open it is asked again', async (t) => {
    const guest = await ready(t);
    const terminal = await Terminal.start(guest, 'vgpu-agent install', t);
    await terminal.shows(question);
    await settings(guest, 'Environment=LD_PRELOAD=/nonexistent/late.so');
    await terminal.type('y', 'Enter');
    await terminal.shows(/^warning: the machine changed while the question was open/m);
    // The new plan has a second drop-in, behind that of the user.
    await terminal.shows(/zzz-vgpu\.conf[\s\S]*\(y\/N\) *$/);
    await terminal.type('y', 'Enter');
    assert.equal((await terminal.end()).code, 0);
  });

  test('Ctrl-C while the verdict is waited for: exit 130, what was installed stays', {
    skip: whyNoStandIn(),
  }, async (t) => {
    const guest = await ready(t, { env: { STANDIN_DELAY_MS: '8000' } });
    const terminal = await Terminal.start(guest, 'vgpu-agent install --yes', t);
    await terminal.shows(/^[|/\\-] waiting for ollama/m);
    await terminal.type('C-c');
    const { code, text } = await terminal.end();
    assert.equal(code, 130, text);
    assert.match(text, /^vgpu-agent: stopped while waiting for the verdict; what was installed stays$/m);
    assert.doesNotMatch(text, /^[|/\\-] /m, 'the spinning line is gone');
    assert.deepEqual(tooWide(text), []);
    assert.notEqual((await tell(guest, 'status')).document.installed, null);
  });

  test('the output of the other commands matches its schema, with and without faults', async (t) => {
    const guest = await ready(t);
    await installedGpu(guest);
    const commands = [
      'status',
      'verify',
      'verify --verbose',
      'plan',
      'uninstall --dry-run',
      'version',
      '--help',
    ];
    const all = (words: string): string => commands.map((name) => `vgpu-agent ${name} ${words}`).join('; ');
    const well = await (await Terminal.start(guest, all(''), t)).end();
    assert.deepEqual(tooWide(well.text), []);
    assert.equal(well.text.match(/^GPU \(simulated\)/gm)?.length, 3);

    await guest.hosts.stop('SIGKILL');
    await settings(guest, 'RestrictAddressFamilies=AF_INET');
    await guest.must('ln', '-sfn', '/nonexistent', '/usr/lib/x86_64-linux-gnu/libcuda.so.1');
    await guest.must('systemctl', 'restart', 'ollama');
    const slips =
      'vgpu-agent install --host http://nowhere; vgpu-agent frobnicate; vgpu-agent plan --profile olama';
    const badly = await (await Terminal.start(guest, `${all('')}; ${slips}`, t)).end();
    assert.deepEqual(tooWide(badly.text), []);
    assert.equal(badly.text.match(/^CPU {2}ollama\.service/gm)?.length, 3, badly.text);
  });

  test('colours are used, and not with NO_COLOR, --no-color or TERM=dumb', async (t) => {
    const guest = await ready(t);
    const bytesOf = async (command: string): Promise<string> =>
      guest.must('env', 'TERM=xterm-256color', 'script', '-qec', command, '/dev/null');
    assert.ok((await bytesOf('vgpu-agent plan')).includes('\u001b[32m'), 'green for what is added');
    for (const command of [
      'NO_COLOR=1 vgpu-agent plan',
      'vgpu-agent plan --no-color',
      'TERM=dumb vgpu-agent plan',
    ]) {
      const shown = await bytesOf(command);
      for (const code of ['0', '1', '2', '31', '32', '33'])
        assert.ok(!shown.includes(`\u001b[${code}m`), command);
    }
  });

  test('text of a log or a file name cannot control the terminal', { skip: whyNoStandIn() }, async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_LINES_BEFORE: '/var/log/evil' } });
    const evil =
      "ERROR: ld.so: object '/x\u001b]0;owned\u0007\u001b[2J' from LD_PRELOAD cannot be preloaded (x): ignored.\n";
    await guest.write('/var/log/evil', evil);
    const shown = await guest.must(
      'env',
      'TERM=xterm',
      'script',
      '-qec',
      'vgpu-agent install --yes; vgpu-agent plan --profile "$(printf "a\\033[2Jb")"; true',
      '/dev/null',
    );
    assert.match(shown, /\\x1b\]0;owned\\x07\\x1b\[2J/, 'it is shown');
    assert.ok(!shown.includes('\u001b]0;owned') && !shown.includes('\u001b[2J'), 'and not obeyed');
  });
});

test('on a narrow terminal it stays readable', { skip }, async (t) => {
  const guest = await ready(t);
  const terminal = await Terminal.start(guest, 'vgpu-agent install --yes', t, 40);
  const { code, text } = await terminal.end();
  assert.equal(code, 0, text);
  assert.match(text, /^GPU \(simulated\)/m);
  assert.deepEqual(tooWide(text), []);
});
