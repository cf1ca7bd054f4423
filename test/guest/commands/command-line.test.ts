// The installed command as a person or a script meets it in a guest: slips, missing rights, missing parts of
// the machine, profiles of the user. Each has its exit code and one clear message, and changes nothing.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoConsumer } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import type { Ran } from '../support/process.js';
import { repository } from '../support/repository.js';
import { errorOf, installedGpu, ready, tell } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

const profiles = '/etc/vgpu-agent/profiles';
const commands = ['install', 'plan', 'status', 'verify', 'uninstall', 'explain-log', 'version'] as const;

/** One message: `vgpu-agent: WHAT`, perhaps over some lines, then one `try: REMEDY`, and nothing else. */
function assertOneMessage(ran: Ran): void {
  assert.match(ran.stderr, /^vgpu-agent: [^\n]+\n( {4}[^\n]+\n)*( {2}try: [^\n]+\n)?$/);
  assert.equal(ran.stdout, '');
}

describe('a profile of one’s own', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await ready(undefined);
  });
  after(() => guest.stop());

  /** Puts a changed copy of the shipped profile there, under the name `mine`. */
  async function mine(change: (text: string) => string): Promise<void> {
    const shipped = await guest.read(join(repository, 'profiles/ollama.json'));
    const named = shipped.replace('"name": "ollama"', '"name": "mine"');
    const changed = change(named);
    assert.ok(change === keep || changed !== named, 'the change found its place');
    await guest.write(`${profiles}/mine.json`, changed);
  }
  const keep = (text: string): string => text;

  test('that is right is taken, found by name, and installs', async () => {
    await mine(keep);
    const verdict = await installedGpu(guest, '--profile', 'mine');
    assert.equal(verdict.profile, 'mine');
    assert.match(verdict.summary, /^mine runs on the GPU/);
    assert.equal(
      (await tell(guest, 'status')).document.installed?.profile,
      'mine',
      'the installed one is meant',
    );
    assert.equal((await guest.agent('uninstall', '--yes')).code, 0);
  });

  for (const [what, change, says] of [
    [
      'a comma too few',
      (text) => text.replace('"schema": 1,', '"schema": 1'),
      /line 4, column \d+: not JSON: /,
    ],
    [
      'a misspelt key',
      (text) => text.replace('"baseSeconds"', '"baseSecond"'),
      /timeouts\.baseSecond: unknown key\. Allowed here: .*baseSeconds/,
    ],
    [
      'a bad regular expression',
      (text) => text.replace('"^NVIDIA driver too old$"', '"^NVIDIA (driver"'),
      /log\.reasons\[\d+\]\.message: "\^NVIDIA \(driver": not a regular expression: Unterminated group/,
    ],
    ['nothing at all', () => '', /line 1, column 1: not JSON: value expected/],
  ] as const satisfies readonly (readonly [string, (text: string) => string, RegExp])[]) {
    test(`${what}: exit 2, file and field are named`, async () => {
      await mine(change);
      const ran = await guest.agent('install', '--yes', '--profile', 'mine');
      assert.equal(ran.code, 2, ran.stderr);
      assertOneMessage(ran);
      assert.ok(ran.stderr.startsWith(`vgpu-agent: ${profiles}/mine.json:`), ran.stderr);
      assert.match(ran.stderr, says);
    });
  }

  test('that is wrong is reported by every command, and in JSON', async () => {
    await mine((text) => text.replace('"schema": 1', '"schema": 2'));
    for (const command of [['plan'], ['status'], ['verify'], ['uninstall'], ['explain-log', '/dev/null']]) {
      const error = errorOf(await guest.agent(...command, '--json', '--profile', 'mine'));
      assert.deepEqual([error.kind, error.path, error.exitCode], ['profile', `${profiles}/mine.json`, 2]);
      assert.match(error.message, /schema: 2 was given, allowed: 1/);
    }
  });

  test('bytes that are not UTF-8, a directory, a file that may not be read', async () => {
    await guest.write(`${profiles}/mine.json`, Buffer.from([0x7b, 0xff, 0x7d]));
    assert.match((await guest.agent('plan', '--profile', 'mine')).stderr, /the text is not UTF-8/);
    await guest.write(`${profiles}/mine.json`, '{}', 0o600);
    const nobody = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'plan', '--profile', 'mine');
    assert.equal(nobody.code, 2);
    assert.match(
      nobody.stderr,
      /^vgpu-agent: cannot read \/etc\/vgpu-agent\/profiles\/mine\.json: permission denied$/m,
    );
    await guest.must('rm', `${profiles}/mine.json`);
    await guest.must('mkdir', `${profiles}/mine.json`);
    const directory = await guest.agent('plan', '--profile', 'mine');
    assert.equal(directory.code, 2);
    assert.match(
      directory.stderr,
      /^vgpu-agent: cannot read \/etc\/vgpu-agent\/profiles\/mine\.json: it is a directory$/m,
    );
    assertOneMessage(directory);
    await guest.must('rmdir', `${profiles}/mine.json`);
  });

  test('that is broken does no harm to a command that does not name it', async () => {
    await guest.write(`${profiles}/broken.json`, '{');
    assert.equal((await guest.agent('plan')).code, 0);
    await guest.must('rm', `${profiles}/broken.json`);
  });

  for (const name of ['../../etc/hostname', '/etc/hostname', '', 'olama']) {
    test(`named ${JSON.stringify(name)}: exit 2, and those that there are`, async () => {
      const ran = await guest.agent('plan', '--profile', name);
      assert.equal(ran.code, 2, ran.stderr);
      assertOneMessage(ran);
      assert.match(ran.stderr, /no profile is named ".*Profiles: .*llama-server.*ollama/);
    });
  }
});

describe('on a guest that is as it should be', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await ready(undefined);
    await guest.must('ldconfig');
  });
  after(() => guest.stop());

  test('a slip on the command line: exit 2, one message with a way on, nothing changed', async () => {
    const before = await guest.listing();
    for (const args of [
      ['install', '--host', 'unix:relative'],
      ['install', '--host', 'tcp:127.0.0.1:99999'],
      ['install', '--host', ''],
      ['install', '--timeout', 'soon'],
      ['install', '--yes', '--nonsense'],
      ['verify', 'ollama'],
      ['frobnicate'],
      [],
    ]) {
      const ran = await guest.agent(...args);
      assert.equal(ran.code, 2, `${args.join(' ')}: ${ran.stderr}`);
      assertOneMessage(ran);
      assert.match(ran.stderr, /\n {2}try: vgpu-agent .*--help\n$/);
    }
    assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
  });

  test('every command has help on standard output, with examples, in 80 columns', async () => {
    const ran = await guest.must(
      'sh',
      '-c',
      commands.map((name) => `vgpu-agent ${name} --help`).join(' && '),
    );
    assert.equal(ran.match(/^Usage: vgpu-agent /gm)?.length, commands.length);
    assert.equal(ran.match(/^Examples:$/gm)?.length, commands.length);
    for (const line of ran.split('\n')) assert.ok(line.length <= 80, line);
  });

  test('without root: what changes or judges refuses with exit 6, what looks works', async () => {
    const nobody = (...args: readonly string[]): Promise<Ran> =>
      guest.run('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--', 'vgpu-agent', ...args);
    for (const command of ['install', 'uninstall', 'verify']) {
      const ran = await nobody(command);
      assert.equal(ran.code, 6, ran.stderr);
      assertOneMessage(ran);
      assert.equal(
        ran.stderr,
        `vgpu-agent: ${command} must run as root\n  try: sudo vgpu-agent ${command}\n`,
      );
      assert.equal(errorOf(await nobody(command, '--json')).kind, 'refused');
    }
    for (const args of [['plan'], ['install', '--dry-run'], ['status'], ['version']]) {
      const ran = await nobody(...args, '--json');
      assert.equal(ran.code, 0, ran.stderr);
      assertDocument(args[0] ?? '', ran.stdout);
    }
  });

  test('without the bus, and without systemd: one message, no lock left behind', async () => {
    for (const [hide, code, says, remedy] of [
      [
        'mount -t tmpfs none /run/dbus',
        1,
        /^vgpu-agent: cannot connect to the system bus at \/run\/dbus\/system_bus_socket: ENOENT/,
        /systemctl start dbus/,
      ],
      [
        'mount -t tmpfs none /run',
        6,
        /^vgpu-agent: this machine was not booted with systemd/,
        /not in a container or chroot/,
      ],
    ] as const) {
      // Without a bus verify and status ask systemd itself (commands.test.ts).
      const looks = code === 1 ? [] : ['verify', 'status'];
      for (const command of ['install --yes', 'uninstall --yes', 'plan', ...looks]) {
        const script = `${hide} && vgpu-agent ${command} --quiet; code=$?; ls /run/vgpu-agent 2>/dev/null; exit $code`;
        const ran = await guest.run('unshare', '--mount', 'sh', '-c', script);
        assert.equal(ran.code, code, `${command}: ${ran.stderr}`);
        assertOneMessage(ran);
        assert.match(ran.stderr, says);
        assert.match(ran.stderr, remedy);
      }
    }
    const works = await guest.run(
      'unshare',
      '--mount',
      'sh',
      '-c',
      'mount -t tmpfs none /run && vgpu-agent version',
    );
    assert.equal(works.code, 0, works.stderr);
  });

  test('a parent process or pipe that goes away is no trouble', async () => {
    for (const command of ['plan', 'status --json', 'plan --json', 'install --help']) {
      const ran = await guest.run(
        'bash',
        '-c',
        `vgpu-agent ${command} --quiet | head -c 1 >/dev/null; exit "\${PIPESTATUS[0]}"`,
      );
      assert.equal(ran.code, 0, `${command}: ${ran.stderr}`);
      assert.equal(ran.stderr, '');
    }
  });

  test('a full standard output is reported, exit 1', async () => {
    const ran = await guest.run('sh', '-c', 'vgpu-agent plan --quiet >/dev/full');
    assert.equal(ran.code, 1);
    assert.equal(ran.stderr, 'vgpu-agent: cannot write to standard output: ENOSPC\n');
  });

  test('output to a file or pipe has no colour', async () => {
    for (const args of [['plan'], ['status'], ['frobnicate']]) {
      const ran = await guest.runWith({ env: { TERM: 'xterm-256color' } }, 'vgpu-agent', ...args);
      assert.ok(!`${ran.stdout}${ran.stderr}`.includes('\u001b'), args.join(' '));
    }
  });

  test('--quiet prints results alone; --verbose more, and both go to their own streams', async () => {
    const quiet = await guest.agent('plan', '--quiet');
    assert.equal(quiet.stderr, '');
    const verbose = await guest.agent('plan', '--verbose');
    assert.match(verbose.stderr, /ollama\.service is loaded; host unix:\/run\/vgpu\/hostd\.sock/);
    assert.match(quiet.stdout, /^\d+ changes; --verbose shows each in full$/m);
    assert.match(verbose.stdout, /^ {4}\+host=unix:\/run\/vgpu\/hostd\.sock$/m);
  });

  test('an environment without PATH, HOME, TERM and locale is enough', async () => {
    const ran = await guest.run(
      'env',
      '-i',
      process.execPath,
      join(repository, 'dist/bundle/main.js'),
      'plan',
      '--json',
    );
    assert.equal(ran.code, 0, ran.stderr);
    assertDocument('plan', ran.stdout);
  });

  test('from a directory that is gone', async () => {
    const ran = await guest.run(
      'sh',
      '-c',
      'mkdir /tmp/gone && cd /tmp/gone && rmdir /tmp/gone && exec vgpu-agent status --json',
    );
    assert.equal(ran.code, 0, ran.stderr);
    assertDocument('status', ran.stdout);
  });
});

test('explain-log gives the live log the verdict of install, from a file and from a pipe', {
  skip,
}, async (t) => {
  const guest = await ready(t);
  const verdict = await installedGpu(guest);
  for (const format of ['short', 'cat', 'json', 'short-iso-precise', 'verbose']) {
    const command = `journalctl -u ollama -o ${format} --no-pager`;
    const pipe = await guest.run('sh', '-c', `${command} | vgpu-agent explain-log --json -`);
    await guest.must('sh', '-c', `${command} >/tmp/ollama.log`);
    const file = await guest.agent('explain-log', '--json', '/tmp/ollama.log');
    assert.deepEqual(pipe, file, format);
    const said = assertDocument('explain-log', file.stdout);
    assert.ok(typeof said === 'object' && said !== null && 'mode' in said && 'devices' in said);
    assert.equal(file.code, 0, `${format}: ${file.stdout}${file.stderr}`);
    assert.deepEqual(said.devices, verdict.devices, format);
  }
});
