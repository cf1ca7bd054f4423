/** The installed command in a guest: questions, interruptions, exit codes, JSON as docs/json/ describes it. */
import assert from 'node:assert/strict';
import { after, before as beforeAll, describe, test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoConsumer } from '../support/consumer.js';
import { type Afterwards, Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { type Ran, until } from '../support/process.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

interface GuestOptions {
  readonly host?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

/** A guest with the stand-in of design 2 (the quickest) and, unless told otherwise, a host. */
async function prepared(
  t: Afterwards | undefined,
  { host = true, env = {} }: GuestOptions = {},
): Promise<Guest> {
  const guest = await Guest.start({}, t);
  await guest.must('ldconfig');
  if (host) await guest.hosts.start();
  await guest.installConsumer(2, { env });
  return guest;
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}

/** A module for NODE_OPTIONS=--import that does `action` at the n-th checkpoint of apply/. */
async function atCheckpoint(
  guest: Guest,
  n: number,
  action: string,
): Promise<Readonly<Record<string, string>>> {
  await guest.write(
    '/root/checkpoint.mjs',
    `import { channel } from 'node:diagnostics_channel';
let seen = 0;
channel('vgpu.checkpoint').subscribe(() => { if ((seen += 1) === ${n}) { ${action} } });
`,
  );
  return { NODE_OPTIONS: '--import=/root/checkpoint.mjs' };
}

interface Shown {
  /** Everything that the terminal was sent. */
  readonly raw: string;
  /** The same without colours and cursor movements. */
  readonly text: string;
}

/** Runs the agent on a terminal of 80 columns and types `keys` as soon as `prompt` stands there. */
async function onTerminal(guest: Guest, command: string, prompt: RegExp, keys: string): Promise<Shown> {
  // The trap keeps the shell alive at Ctrl-C, which the terminal sends to both.
  const script = `stty cols 80 rows 24; trap : INT; ${command}; echo "exit status $?"`;
  const child = guest.spawn(
    ['script', '-qfec', script, '/dev/null'],
    { stdio: ['pipe', 'pipe', 'pipe'] },
    { TERM: 'xterm' },
  );
  let raw = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    raw += chunk.toString();
  });
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is taken away
  const text = (): string => raw.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '');
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  await until(`${command} shows ${prompt}`, 60_000, () => (prompt.test(text()) ? true : undefined));
  child.stdin?.write(keys);
  await ended;
  return { raw, text: text() };
}

/** Connections that never log in: the bus closes each after five seconds, and the next one takes its place. */
const crowd = `const net = require('node:net');
const open = () => net.connect('/run/dbus/system_bus_socket').on('error', () => {}).on('close', () => setTimeout(open, 20));
for (let n = 0; n < 300; n += 1) open();`;

/** One guest: each test leaves the machine as it was. */
describe('before an installation', { skip }, () => {
  const question = /\? Change this, and restart ollama\.service\? \(y\/N\)/;
  let guest: Guest;
  beforeAll(async () => {
    guest = await prepared(undefined);
  });
  after(() => guest.stop());

  test('without a terminal and without --yes nothing is changed, and the message names the option', async () => {
    const before = await guest.listing();
    const refused = await guest.agent('install', '--quiet');
    assert.equal(refused.code, 2, refused.stderr);
    assert.match(refused.stderr, /no terminal to ask on\n {2}try: vgpu-agent install --yes/);
    assert.deepEqual(before.diff(await guest.listing()), []);
  });

  test('a dry run shows the plan and changes nothing', async () => {
    const before = await guest.listing();
    const start = await guest.invocationId('ollama');
    const brief = await guest.agent('install', '--dry-run');
    assert.match(brief.stdout, /^\+ link \/usr\/lib\/.*\/libcuda\.so\.1\n[+>]/m);
    assert.match(brief.stdout, /\ndry run: nothing was changed\n$/);
    const ran = await guest.agent('install', '--dry-run', '--verbose');
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(
      ran.stdout,
      /^\+ link \/usr\/lib\/.*\/libcuda\.so\.1\n {4}.*\n {4}nothing -> \/opt\/vgpu\/current\/libcuda\.so\.1$/m,
    );
    assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
    assert.equal(await guest.invocationId('ollama'), start);
  });

  test('SIGINT between two changes takes everything back', async () => {
    const before = await guest.listing();
    const start = await guest.invocationId('ollama');
    const env = await atCheckpoint(guest, 5, "process.kill(process.pid, 'SIGINT')");
    const ran = await guest.runWith({ env }, 'vgpu-agent', 'install', '--yes');
    assert.equal(ran.code, 130, ran.stderr);
    assert.match(ran.stderr, /everything was undone/);
    assert.deepEqual(before.diff(await guest.listing()), []);
    assert.equal(await guest.invocationId('ollama'), start);
  });

  test('a limit of the size of files is told as one', async () => {
    const ran = await guest.run('sh', '-c', 'ulimit -f 0; vgpu-agent install --yes 2>&1 | cat');
    assert.match(ran.stdout, /may not write so much into one file[\s\S]*ulimit -f unlimited/);
  });

  test('a report without a name is refused before anything is looked at', async () => {
    const ran = await guest.agent('doctor', '--report', '', '--yes');
    assert.equal(ran.code, 2, ran.stderr);
    assert.match(ran.stderr, /^vgpu-agent: --report "" names no file/);
  });

  test('a report on a read-only file system is refused before anything is looked at', async () => {
    await guest.must('mount', '-t', 'tmpfs', '-o', 'ro', 'tmpfs', '/mnt');
    const ran = await guest.agent('doctor', '--report', '/mnt/report.tar.gz', '--yes');
    assert.deepEqual([ran.code, ran.stdout], [1, '']);
    assert.match(ran.stderr, /^vgpu-agent: cannot write the report \/mnt\/report\.tar\.gz: EROFS/);
  });

  test('a no, or Enter, or Ctrl-C at the question changes nothing', async () => {
    const before = await guest.listing();
    for (const keys of ['n\n', '\n', '\u0003']) {
      const { text } = await onTerminal(guest, 'vgpu-agent install', question, keys);
      assert.match(text, /nothing was changed/, JSON.stringify(keys));
      assert.match(text, /exit status 130/, JSON.stringify(keys));
    }
    assert.deepEqual(before.diff(await guest.listing()), []);
  });

  test('commands print the JSON that docs/json describes, also with nothing to do and on errors', async () => {
    const documents = async (name: string, code: number, ...args: readonly string[]): Promise<unknown> => {
      const ran = await guest.agent(...args, '--json');
      assert.equal(ran.code, code, `${args.join(' ')}\n${ran.stdout}${ran.stderr}`);
      return assertDocument(name, ran.stdout);
    };
    // The other documents: tell() in support/scenario.ts, in every test of a verdict.
    await documents('install', 0, 'install', '--yes');
    await documents('install', 0, 'install'); // with nothing to do there is nothing to ask
    await documents('version', 0, 'version');
    await documents('plan', 6, 'plan', '--profile', 'llama-server');
    await documents('error', 6, 'install', '--yes', '--profile', 'llama-server');
    await documents('error', 2, 'uninstall');
    await documents('uninstall', 0, 'uninstall', '--dry-run');
    await documents('uninstall', 0, 'uninstall', '--yes');
    await documents('uninstall', 0, 'uninstall');
  });

  test('the plan is shown, asked about once, and a yes installs', async () => {
    const { raw, text } = await onTerminal(guest, 'vgpu-agent install', question, 'y\n');
    assert.match(text, /^GPU \(simulated\)/m);
    assert.match(text, /exit status 0/);
    assert.ok(raw.includes('\u001b[32m'), 'in colour');
  });
});

describe('after an installation', { skip }, () => {
  let guest: Guest;
  let installed: Ran;
  beforeAll(async () => {
    guest = await prepared(undefined);
    installed = await guest.agent('install', '--yes');
    assert.equal(installed.code, 0, installed.stderr);
  });
  after(() => guest.stop());

  test('the first line of the result is the verdict, and says that the GPU is simulated', async () => {
    assert.match(firstLine(installed.stdout), /^GPU \(simulated\) {2}ollama\.service/);
    const again = await guest.agent('install', '--yes');
    assert.match(firstLine(again.stdout), /^GPU \(simulated\)/);
    assert.match(again.stdout, /^nothing to do$/m);
    const status = await guest.agent('status');
    assert.match(status.stdout, /^drift {7}none$/m);
    assert.match(status.stdout, /^transport {3}rings in memory that the program and the host share$/m);
    assert.match(status.stdout, /^GPU \(simulated\)/m);
  });

  test('an unprivileged status shows its facts, and that the verdict needs root', async () => {
    const ran = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'status');
    assert.equal(ran.code, 4, ran.stdout + ran.stderr);
    assert.match(ran.stdout, /^installed {3}profile ollama/m);
    assert.match(ran.stdout, /^verdict {5}needs root: sudo vgpu-agent status$/m);
  });

  test('status and verify judge without a bus that is gone or busy, and say so', async () => {
    const judges = async (why: RegExp): Promise<void> => {
      for (const command of ['status', 'verify']) {
        const ran = await guest.agent(command, '--json');
        const document: unknown = JSON.parse(ran.stdout);
        assertDocument(command, ran.stdout);
        assert.match(ran.stderr, why, ran.stderr);
        assert.match(ran.stderr, /continuing without it: vgpu-agent\.service is not asked/);
        // Its log, its processes and the host are asked; the probe needs the bus.
        const told = at(document, 'verdict', 'evidence');
        const kinds = Array.isArray(told) ? told.map((one) => String(at(one, 'kind'))) : [];
        for (const kind of ['log-line', 'maps', 'host', 'probe'])
          assert.ok(kinds.includes(kind), `${command}: no ${kind} in ${kinds.join(' ')}\n${ran.stdout}`);
        assert.ok(ran.code === 0 || ran.code === 4, `${command}: ${ran.code}\n${ran.stdout}`);
      }
    };
    // dbus-daemon accepts nobody while 64 connections have not said who they are.
    await guest.write('/run/crowd.cjs', crowd);
    const run = [
      'systemd-run',
      '--quiet',
      '--unit=crowd',
      '--property=User=nobody',
      'node',
      '/run/crowd.cjs',
    ] as const;
    await guest.must(...run);
    await until('the bus is busy', 60_000, async () =>
      (await guest.run('timeout', '3', 'busctl', 'list')).code === 124 ? true : undefined,
    );
    await judges(/system bus at .* is busy/);
    await guest.must('systemctl', 'stop', 'crowd');
    await guest.must('systemctl', 'stop', 'dbus.socket', 'dbus.service');
    await judges(/cannot connect to the system bus at .*: ECONNREFUSED/);
  });
});

test('a host that does not answer is refused before anything is written, but no repair is', {
  skip,
}, async (t) => {
  const guest = await prepared(t, { host: false });
  const before = await guest.listing();
  const start = await guest.invocationId('ollama');
  for (const args of [['install', '--yes', '--service'], ['plan'], ['install', '--dry-run']]) {
    const ran = await guest.agent(...args);
    assert.equal(ran.code, 6, ran.stdout + ran.stderr);
    assert.match(
      ran.stdout + ran.stderr,
      /host does not answer at vsock:2:14833: .*--allow-unreachable-host/s,
    );
  }
  assert.deepEqual(before.diff(await guest.listing()), []);
  assert.equal(await guest.invocationId('ollama'), start);

  await guest.hosts.start();
  assert.equal((await guest.agent('install', '--yes')).code, 0);
  await guest.hosts.stop();
  const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
  await guest.must('rm', dropIn);
  const elsewhere = await guest.agent('install', '--yes', '--host', 'unix:/run/vgpu/nobody.sock');
  assert.equal(elsewhere.code, 6, elsewhere.stderr);
  assert.equal(await guest.exists(dropIn), false, 'nothing was written');
  // The address is the installed one: the files come back, and the verdict says what is missing.
  assert.equal((await guest.agent('install', '--yes')).code, 3);
  assert.ok(await guest.exists(dropIn));
});

test('install --service with a mistake in agent.json names it and changes nothing', { skip }, async (t) => {
  const guest = await prepared(t);
  const conf = '/etc/vgpu-agent/agent.json';
  await guest.must('mkdir', '-p', '/etc/vgpu-agent');
  await guest.write(conf, '{\n  "schema": 1,\n  "checkMinutes": "soon"\n}\n');
  const before = await guest.listing();
  const start = await guest.invocationId('ollama');
  const ran = await guest.agent('install', '--service', '--yes');
  assert.equal(ran.code, 6, ran.stdout + ran.stderr);
  assert.match(ran.stderr, /\/etc\/vgpu-agent\/agent\.json: line 3, checkMinutes: .*"soon"/);
  assert.deepEqual(before.diff(await guest.listing()), []);
  assert.equal(await guest.invocationId('ollama'), start);
  // The file is about the service only.
  assert.equal((await guest.agent('install', '--yes')).code, 0);
  assert.equal((await guest.agent('install', '--service', '--yes')).code, 6);
  await guest.write(conf, '{ "schema": 1 }\n');
  assert.equal((await guest.agent('install', '--service', '--yes')).code, 0);
});

test('directories of the agent may be mount points: they stay, and nothing fails', { skip }, async (t) => {
  const guest = await prepared(t);
  for (const directory of ['/var/lib/vgpu-agent', '/run/vgpu-agent', '/etc/vgpu', '/opt/vgpu']) {
    await guest.must('mkdir', '-p', directory);
    await guest.must('mount', '-t', 'tmpfs', '-o', 'mode=755', 'none', directory);
  }
  for (const round of ['first', 'second']) {
    const installed = await guest.agent('install', '--yes');
    assert.equal(installed.code, 0, `${round}: ${installed.stderr}`);
    const uninstalled = await guest.agent('uninstall', '--yes');
    assert.equal(uninstalled.code, 0, `${round}: ${uninstalled.stderr}`);
    assert.equal(
      await guest
        .must('ls', '-A', '/var/lib/vgpu-agent', '/etc/vgpu', '/opt/vgpu')
        .then((text) => text.replace(/^\/.*:$/gm, '').trim()),
      '',
    );
  }
});

test('a bus that is gone is one clear failure', { skip }, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.must('systemctl', 'stop', 'dbus.socket', 'dbus.service');
  const ran = await guest.agent('plan', '--quiet');
  assert.equal(ran.code, 1, ran.stdout);
  assert.match(
    ran.stderr,
    /^vgpu-agent: cannot connect to the system bus at .*: ECONNREFUSED\n {2}try: start it/,
  );
});

test('units that are absent, masked or bad refuse with exit 6 and change nothing', { skip }, async (t) => {
  const guest = await Guest.start({}, t);
  const before = await guest.listing();
  const refused = async (pattern: RegExp): Promise<void> => {
    const ran = await guest.agent('install', '--yes', '--quiet');
    assert.equal(ran.code, 6, ran.stdout + ran.stderr);
    assert.match(ran.stderr, pattern);
  };
  await refused(/ollama\.service/);
  assert.deepEqual(before.diff(await guest.listing()), []);
  await guest.must('ln', '-s', '/dev/null', '/etc/systemd/system/ollama.service');
  await guest.must('systemctl', 'daemon-reload');
  await refused(/masked/);
  await guest.must('rm', '/etc/systemd/system/ollama.service');
  await guest.write('/etc/systemd/system/ollama.service', '[Service]\nUser=nobody\n');
  await guest.must('systemctl', 'daemon-reload');
  await refused(/bad unit file setting|bad-setting/);
});

test('each thing that was done leaves one entry in the journal', { skip }, async (t) => {
  const guest = await prepared(t);
  await guest.agent('install', '--yes');
  await guest.agent('uninstall', '--yes');
  const entries = async (): Promise<string[]> => {
    await guest.must('journalctl', '--sync');
    const text = await guest.must('journalctl', '-q', '-o', 'cat', 'VGPU_UNIT=ollama.service');
    return text.trim().split('\n');
  };
  const lines = await until('three entries', 60_000, async () => {
    const found = await entries();
    return found.length >= 3 ? found : undefined;
  });
  assert.match(lines[0] ?? '', /^ollama\.service: vgpu installed/);
  assert.match(lines[1] ?? '', /^ollama\.service: gpu \(simulated\)\./);
  assert.match(lines[2] ?? '', /^ollama\.service: vgpu uninstalled/);
  assert.equal(lines.length, 3);
});
