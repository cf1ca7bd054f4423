/** The built command itself, as a person or a script runs it, on a machine without systemd or without rights. */
import assert from 'node:assert/strict';
import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { reasons } from '../../../../agent/contracts/verdict.js';
import { assertDocument, commonDefinition } from './json-schemas.js';

const main = fileURLToPath(new URL('../../../../bundle/main.js', import.meta.url));
const logs = fileURLToPath(new URL('../../../../../test/fixtures/ollama-logs/', import.meta.url));

function vgpu(args: readonly string[], input = ''): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', input });
}

/** stderr's message without its remedy, in one line. */
function told(ran: SpawnSyncReturns<string>): string {
  return ran.stderr.split('\n')[0] ?? '';
}

describe('a slip on the command line is exit 2, one message and where to look', () => {
  for (const [args, message, remedy] of [
    [[], /^vgpu-agent: no command was given$/, 'vgpu-agent --help'],
    [['instal'], /unknown command 'instal' \(Did you mean install\?\)/, 'vgpu-agent --help'],
    [
      ['install', '--dry-rn'],
      /unknown option '--dry-rn' \(Did you mean --dry-run\?\)/,
      'vgpu-agent install --help',
    ],
    [['plan', 'extra'], /unexpected argument "extra"$/, 'vgpu-agent plan --help'],
    [['explain-log', 'a', 'b'], /unexpected argument "b"$/, 'vgpu-agent explain-log --help'],
    [['host', 'uninstall', 'x'], /unexpected argument "x"$/, 'vgpu-agent host uninstall --help'],
    [
      ['host', 'install', '--listen', 'vsock:2:14833'],
      /'vsock:2:14833' is invalid.*it has a CID.*vsock:PORT \(without a CID/,
      'vgpu-agent host install --help',
    ],
    [
      ['host', 'install', '--listen', 'vsock:port'],
      /'vsock:port' is invalid.*after vsock: it needs a port\. Write/,
      'vgpu-agent host install --help',
    ],
    [
      ['host', 'install', '--listen', 'unix:relative'],
      /'unix:relative' is invalid.*absolute/,
      'vgpu-agent host install --help',
    ],
    [
      ['host', 'install', '--listen', 'tcp:10.0.0.1:14833'],
      /10\.0\.0\.1 is not a loopback address/,
      'vgpu-agent host install --help',
    ],
    [['run', 'ls', '-la', '/'], /-la follows ls, and there is no -- before/, 'vgpu-agent run -- ls -la /'],
    [
      ['--quiet', 'run', '--host', 'unix:/x', 'nvidia-smi', '-q', "a 'b'"],
      /-q follows nvidia-smi/,
      "vgpu-agent --quiet run --host unix:/x -- nvidia-smi -q 'a '\\''b'\\'''",
    ],
    [['explain-log'], /missing required argument 'file'/, 'vgpu-agent explain-log --help'],
    [['install', '--profile'], /option '-p, --profile <name>' argument missing/, 'vgpu-agent install --help'],
    [['verify', '--timeout', '0'], /'0' is invalid.*more than 0/, 'vgpu-agent verify --help'],
    [['verify', '--timeout', '1e9'], /'1e9' is invalid/, 'vgpu-agent verify --help'],
    [
      ['install', '--host', 'unix:relative'],
      /'unix:relative' is invalid.*absolute/,
      'vgpu-agent install --help',
    ],
    [['cdi'], /^vgpu-agent: no command was given$/, 'vgpu-agent cdi --help'],
    [['cdi', 'lst'], /unknown command 'lst' \(Did you mean list\?\)/, 'vgpu-agent cdi --help'],
    [['cdi', 'generate', '--host', 'htp:x'], /'htp:x' is invalid.*unix:, vsock:/, 'vgpu-agent cdi --help'],
    [['install', '--host', 'vsock:2'], /'vsock:2' is invalid.*CID:PORT/, 'vgpu-agent install --help'],
    [['install', '--host', 'http://host'], /'http:\/\/host' is invalid/, 'vgpu-agent install --help'],
    [['cdi', 'generate', 'x'], /unexpected argument "x"$/, 'vgpu-agent cdi --help'],
    [['help', 'instal'], /unknown command "instal"$/, 'vgpu-agent --help'],
    [['host', 'help', 'instal'], /unknown command "instal"$/, 'vgpu-agent host --help'],
    [['help', 'install', 'x'], /unexpected argument "x"$/, 'vgpu-agent install --help'],
    [['--version', 'x', 'y'], /unexpected argument "x"$/, 'vgpu-agent --help'],
    [
      ['install', '--service', '--yes', '--no-service'],
      /^vgpu-agent: --service and --no-service contradict each other: give one of them$/,
      'vgpu-agent install --help',
    ],
    [
      ['install', '--timeout', '5', '--timeout=9'],
      /^vgpu-agent: --timeout was given twice, with "5" and with "9": give it once$/,
      'vgpu-agent install --help',
    ],
    [
      ['verify', '-p', 'ollama', '--profile', 'vllm'],
      /--profile was given twice, with "ollama" and with "vllm"/,
      'vgpu-agent verify --help',
    ],
    [
      ['explain-log', '-p', 'vllm', 'file', '-p', 'ollama'],
      /--profile was given twice, with "vllm" and with "ollama"/,
      'vgpu-agent explain-log --help',
    ],
    [
      ['host', 'install', '--device', 'cuda', '--device', 'software'],
      /--device was given twice, with "cuda" and with "software"/,
      'vgpu-agent host install --help',
    ],
    [
      ['install', '--rollback-on-failure', '--no-restart'],
      /option '--rollback-on-failure' cannot be used with option '--no-restart'/,
      'vgpu-agent install --help',
    ],
    [
      ['install', '--no-restart', '--compute'],
      /option '--compute' cannot be used with option '--no-restart'/,
      'vgpu-agent install --help',
    ],
    [
      ['install', '--no-restart', '--timeout', '5'],
      /option '--timeout <seconds>' cannot be used with option '--no-restart'/,
      'vgpu-agent install --help',
    ],
    [
      ['uninstall', '--all', '--unit', 'a'],
      /option '--all' cannot be used with option '-u, --unit <service>'/,
      'vgpu-agent uninstall --help',
    ],
    [
      ['verify', '--unit', 'ollama.socket'],
      /It is a socket, and only a service can have the GPU: .* such as ollama\.service\./,
      'vgpu-agent verify --help',
    ],
    [
      ['install', '--unit', '--yes'],
      /--unit needs a value, but --yes is an option$/,
      'vgpu-agent install --help',
    ],
    [
      ['doctor', '--report', '--fix'],
      /--report needs a value, but --fix is an option$/,
      'vgpu-agent doctor --help',
    ],
    [['verify', '--timeout', '0x10'], /'0x10' is invalid.*more than 0/, 'vgpu-agent verify --help'],
    [
      ['-q', 'plan', '-v'],
      /option '-q, --quiet' cannot be used with option '-v, --verbose'/,
      'vgpu-agent plan --help',
    ],
  ] as const) {
    test(`vgpu-agent ${args.join(' ')}`, () => {
      const ran = vgpu(args);
      assert.equal(ran.status, 2, ran.stderr);
      assert.match(told(ran), message);
      assert.equal(ran.stderr, `${told(ran)}\n  try: ${remedy}\n`, 'one message, one remedy, nothing else');
      assert.equal(ran.stdout, '');
    });
  }
});

test('an option that is given twice with one value is no contradiction', () => {
  const words = ['-q', '--quiet', 'explain-log', '/dev/null', '-p', 'ollama', '--profile', 'ollama'];
  const ran = vgpu(words);
  assert.equal(ran.status, 4, ran.stderr);
});

test('a profile that does not exist is exit 2 and names those that do', () => {
  const ran = vgpu(['install', '--yes', '--profile', 'olama']);
  assert.equal(ran.status, 2, ran.stderr);
  assert.match(told(ran), /no profile is named "olama"\. Profiles: .*llama-server, ollama/);
});

test('with --json a failure is a document on standard output, and still told on standard error', () => {
  const ran = vgpu(['plan', '--json', '--bogus']);
  assert.equal(ran.status, 2);
  assert.deepEqual(JSON.parse(ran.stdout), {
    schema: 1,
    error: {
      kind: 'usage',
      message: "unknown option '--bogus'",
      operation: 'read the command line',
      path: null,
      remedy: 'vgpu-agent plan --help',
      exitCode: 2,
    },
  });
  assert.match(ran.stderr, /unknown option '--bogus'/);
  assertDocument('error', ran.stdout);
});

describe('help', () => {
  test('goes to standard output and names every command', () => {
    const ran = vgpu(['--help']);
    assert.equal(ran.status, 0);
    assert.equal(ran.stderr, '');
    for (const command of ['install', 'plan', 'status', 'verify', 'uninstall', 'explain-log', 'version']) {
      assert.match(ran.stdout, new RegExp(`^  ${command}\\b`, 'm'));
    }
  });

  for (const command of ['install', 'plan', 'status', 'verify', 'uninstall', 'explain-log', 'version']) {
    test(`of ${command} has examples, the global options and no line above 80 columns`, () => {
      const { status, stdout } = vgpu([command, '--help']);
      assert.equal(status, 0);
      assert.match(stdout, /^Examples:$/m);
      assert.match(stdout, /--json/);
      assert.match(stdout, /--no-color/);
      for (const line of stdout.split('\n')) assert.ok(line.length <= 80, line);
    });
  }
});

test('version is printed at once, without systemd and without root', () => {
  const ran = vgpu(['version', '--json']);
  assert.equal(ran.status, 0, ran.stderr);
  const document: unknown = JSON.parse(ran.stdout);
  assert.ok(typeof document === 'object' && document !== null && 'agent' in document);
  assert.equal(vgpu(['--version']).stdout.trim(), document.agent);
  assertDocument('version', ran.stdout);
});

describe('explain-log', () => {
  const gpu = path.join(logs, 'ollama-0.32.9_gpu-mode_debug0.log');

  test('prints exactly the five members of the contract', () => {
    const ran = vgpu(['explain-log', '--profile', 'ollama', '--json', gpu]);
    assert.equal(ran.status, 0, ran.stderr);
    const document: unknown = JSON.parse(ran.stdout);
    assert.ok(typeof document === 'object' && document !== null);
    assert.deepEqual(Object.keys(document), ['mode', 'simulated', 'devices', 'reason', 'evidence']);
    assertDocument('explain-log', ran.stdout);
  });

  test('the exit code is the verdict', () => {
    assert.equal(vgpu(['explain-log', gpu]).status, 0);
    const cpu = vgpu(['explain-log', path.join(logs, 'ollama-0.32.9_v12dir-driver535_debug0.log')]);
    assert.equal(cpu.status, 3);
    assert.match(cpu.stdout, /^CPU\n {2}reason {4}driver-too-old: the service needs a newer NVIDIA driver$/m);
  });

  test('reads standard input, an empty one is undetermined', () => {
    const ran = vgpu(['explain-log', '-', '--json'], '');
    assert.equal(ran.status, 4, ran.stderr);
    assert.match(ran.stdout, /"mode": "undetermined"/);
  });

  test('prints the verdict when an interrupt ends an endless input', async () => {
    const child = spawn(process.execPath, [main, 'explain-log', '-'], { stdio: 'pipe' });
    try {
      child.stdin.write(await readFile(gpu));
      // Larger than the pipe and the command's buffer: when this write is done, the command has read the log before it.
      await new Promise((resolve) => child.stdin.write('no words of a start\n'.repeat(50_000), resolve));
      child.kill('SIGINT');
      const [result, [status, signal]] = await Promise.all([text(child.stdout), once(child, 'close')]);
      assert.match(result, /^GPU\n {2}device /);
      assert.deepEqual([status, signal], [0, null]);
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('a file that is not there, or is a directory or a device, is exit 2 and quoted', () => {
    const missing = vgpu(['explain-log', '/nonexistent/x.log']);
    assert.equal(missing.status, 2);
    assert.match(told(missing), /cannot read the log "\/nonexistent\/x\.log": there is no such file/);
    assert.match(told(vgpu(['explain-log', logs])), /it is a directory/);
    assert.match(told(vgpu(['explain-log', '/dev/zero'])), /"\/dev\/zero": it is a device/);
    assert.equal(vgpu(['explain-log', '/dev/null']).status, 4);
  });
});

test('a reader that goes away is no failure and no message', () => {
  const log = path.join(logs, 'ollama-0.32.9_gpu-mode_debug2.log');
  for (const args of [['explain-log', '--json', log], ['--help'], ['version']]) {
    // `true` is gone long before node has started.
    const ran = spawnSync(
      'bash',
      ['-c', '"$0" "$@" | true; exit "$PIPESTATUS"', process.execPath, main, ...args],
      {
        encoding: 'utf8',
      },
    );
    assert.equal(ran.stderr, '', args.join(' '));
    assert.equal(ran.status, 0, args.join(' '));
  }
});

for (const words of [['version'], ['--version'], ['--help'], ['plan', '--help']]) {
  test(`${words.join(' ')}: what cannot be written is a failure with one message`, () => {
    const ran = spawnSync('sh', ['-c', '"$0" "$@" >/dev/full', process.execPath, main, ...words], {
      encoding: 'utf8',
    });
    assert.equal(ran.status, 1);
    assert.equal(ran.stderr, 'vgpu-agent: cannot write to standard output: ENOSPC\n');
  });
}

const booted = existsSync('/run/systemd/system');
const root = process.getuid?.() === 0;

describe('without systemd', { skip: booted && 'this machine has systemd' }, () => {
  for (const command of ['plan', 'status', 'install --dry-run']) {
    test(`${command} refuses with exit 6 and one clear message`, () => {
      const ran = vgpu([...command.split(' '), '--quiet']);
      assert.equal(ran.status, 6, ran.stderr);
      assert.match(ran.stderr, /^vgpu-agent: this machine was not booted with systemd: /);
      assert.equal(ran.stdout, '');
    });
  }

  for (const command of ['install', 'uninstall', 'verify']) {
    test(`${command} as root says the same, and leaves no lock behind`, {
      skip: !root && 'needs root',
    }, () => {
      const had = existsSync('/run/vgpu-agent');
      const ran = vgpu([command, '--quiet', ...(command === 'verify' ? [] : ['--yes'])]);
      assert.equal(ran.status, 6, ran.stderr);
      assert.match(ran.stderr, /not booted with systemd/);
      assert.equal(existsSync('/run/vgpu-agent'), had);
    });
  }
});

describe('without root', { skip: !root && 'needs root to drop it' }, () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'vgpu-'));
  });
  after(() => rm(directory, { recursive: true }));

  for (const command of ['install', 'uninstall', 'verify']) {
    test(`${command} refuses with exit 6 and says how to become root`, () => {
      const args = [
        '--reuid=65534',
        '--regid=65534',
        '--clear-groups',
        '--',
        process.execPath,
        main,
        command,
      ];
      const ran = spawnSync('setpriv', args, { encoding: 'utf8', input: '' });
      assert.equal(ran.status, 6, ran.stderr);
      assert.equal(
        ran.stderr,
        `vgpu-agent: ${command} must run as root\n  try: sudo vgpu-agent ${command}\n`,
      );
    });
  }

  test('a log without read permission is reported', async () => {
    const file = path.join(directory, 'secret.log');
    await writeFile(file, 'x', { mode: 0o600 });
    const args = [
      '--reuid=65534',
      '--regid=65534',
      '--clear-groups',
      '--',
      process.execPath,
      main,
      'explain-log',
      file,
    ];
    const ran = spawnSync('setpriv', args, { encoding: 'utf8', input: '' });
    assert.equal(ran.status, 2);
    assert.match(ran.stderr, /permission denied/);
  });
});

test('the reasons in docs/json are those of the code', () => {
  const verdict = commonDefinition('verdict');
  assert.ok(JSON.stringify(verdict).includes(JSON.stringify(reasons)));
});
