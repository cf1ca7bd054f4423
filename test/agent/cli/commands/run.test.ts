/** `vgpu-agent run -- COMMAND` as the built command, with a real host beside it and no root. */
import assert from 'node:assert/strict';
import { type ChildProcess, type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { chmodSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Host, SHIM, scratchDirectory, startHost } from '../../../shim/shim_host.js';
import { assertDocument } from './json-schemas.js';

const main = fileURLToPath(new URL('../../../../bundle/main.js', import.meta.url));
const probe = path.join(SHIM, 'vgpu-probe');
const nobody = 65534;

describe('vgpu-agent run', () => {
  let host: Host;
  const scratch = scratchDirectory();
  before(async () => {
    const socket = path.join(scratch.path, 's');
    host = await startHost({ listen: `unix:${socket}` });
    // For the user who is not root.
    chmodSync(scratch.path, 0o755);
    chmodSync(socket, 0o666);
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const environment = (more: Readonly<Record<string, string>> = {}) => ({
    ...process.env,
    VGPU_HOST: host.address,
    ...more,
  });
  const run = (
    args: readonly string[],
    more: Readonly<Record<string, string>> = {},
  ): SpawnSyncReturns<string> =>
    spawnSync(process.execPath, [main, 'run', ...args], { encoding: 'utf8', env: environment(more) });

  test('the command finds the GPU by name, through our library', () => {
    const ran = run(['--', probe, '--json']);
    assert.equal(ran.status, 0, ran.stderr);
    const report: unknown = JSON.parse(ran.stdout);
    assert.ok(typeof report === 'object' && report !== null);
    assert.equal(Reflect.get(report, 'ok'), true);
    assert.match(String(Reflect.get(report, 'library')), /libcuda\.so\.1$/);
    assert.equal(ran.stderr, '', 'nothing else between the lines of the command');
  });

  test("the command's arguments, standard input and exit status are passed on", () => {
    const ran = spawnSync(
      process.execPath,
      [main, 'run', '--', 'sh', '-c', 'cat; echo "$*"; exit 41', 'sh', '--json', '-v', '--', '--help'],
      { encoding: 'utf8', env: environment(), input: 'read by the command\n' },
    );
    assert.equal(ran.status, 41, ran.stderr);
    assert.equal(ran.stdout, 'read by the command\n--json -v -- --help\n');
  });

  test('values that the caller has set are kept, after those of vgpu-agent', () => {
    const ran = run(['--', 'sh', '-c', 'echo "$LD_LIBRARY_PATH $OWN"'], {
      LD_LIBRARY_PATH: '/tmp/of-the-caller::',
      OWN: 'kept',
    });
    const [libraries = '', own] = ran.stdout.trim().split(' ');
    assert.equal(own, 'kept');
    assert.equal(libraries.split(':').at(-1), '/tmp/of-the-caller');
    assert.equal(libraries.split(':').length, 2, `no empty entry: ${libraries}`);
  });

  for (const signal of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGUSR1', 'SIGUSR2'] as const) {
    test(`${signal} goes on to the command, whose answer is the end`, async () => {
      const name = signal.slice(3);
      const child = spawn(
        process.execPath,
        [
          main,
          'run',
          '--',
          'sh',
          '-c',
          `trap 'echo heard; exit 9' ${name}; echo ready; while :; do sleep 0.02; done`,
        ],
        { env: environment(), stdio: ['ignore', 'pipe', 'inherit'] },
      );
      const said = collect(child);
      await said.until('ready\n');
      child.kill(signal);
      assert.deepEqual(await said.end, { code: 9, signal: null });
      assert.equal(said.text(), 'ready\nheard\n');
    });
  }

  test('a command that a signal ends ends us by the same', async () => {
    const child = spawn(process.execPath, [main, 'run', '--', 'sh', '-c', 'kill -TERM $$'], {
      env: environment(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    assert.deepEqual(await collect(child).end, { code: null, signal: 'SIGTERM' });
    const killed = run(['--', 'sh', '-c', 'kill -KILL $$']);
    assert.equal(killed.status, 128 + 9, 'as a shell tells it');
  });

  test('--print is the same for env(1), and a document', () => {
    const printed = run(['--print']);
    assert.equal(printed.status, 0, printed.stderr);
    const ran = spawnSync('env', [...printed.stdout.trim().split('\n'), probe], { encoding: 'utf8' });
    assert.equal(ran.status, 0, ran.stdout);
    const document = run(['--print', '--json']);
    assertDocument('run', document.stdout);
  });

  test('compilers get our ptxas and a cache of their own, because the GPU is simulated', () => {
    const ask = (more: Readonly<Record<string, string>>): readonly string[] =>
      run(
        [
          '--',
          'sh',
          '-c',
          'printf "%s\\n" "$TRITON_PTXAS_PATH" "$TRITON_PTXAS_BLACKWELL_PATH" "$TRITON_CACHE_DIR" "$CUPY_COMPILE_WITH_PTX$VLLM_USE_FLASHINFER_SAMPLER"',
        ],
        {
          HOME: '/home/of-the-caller',
          XDG_CACHE_HOME: '',
          TRITON_CACHE_DIR: '',
          ...more,
        },
      )
        .stdout.trim()
        .split('\n');
    const [ptxas = '', blackwell, cache, flags] = ask({});
    assert.match(ptxas, /\/vgpu-ptxas$/);
    assert.equal(spawnSync(ptxas, ['--version']).status, 0);
    assert.deepEqual([blackwell, flags], [ptxas, '10']);
    assert.equal(cache, '/home/of-the-caller/.cache/vgpu-agent/triton/simulated');
    assert.equal(ask({ XDG_CACHE_HOME: '/x' })[2], '/x/vgpu-agent/triton/simulated');
    assert.equal(ask({ TRITON_CACHE_DIR: '/t' })[2], '/t/simulated', 'not among those of a real GPU');
    assert.equal(ask({ TRITON_CACHE_DIR: '/t/simulated' })[2], '/t/simulated', 'a command in a command');
  });

  test('vLLM gets the runner that needs no memory in common, where there is none', () => {
    const ask = (more: Readonly<Record<string, string>>): string =>
      run(['--', 'sh', '-c', 'echo "<$VLLM_USE_V2_MODEL_RUNNER>"'], more).stdout.trim();
    assert.equal(ask({ VGPU_TRANSPORT: 'socket' }), '<0>');
    assert.equal(ask({}), '<>', 'rings');
    assert.equal(ask({ VGPU_TRANSPORT: 'socket', VLLM_USE_V2_MODEL_RUNNER: '1' }), '<1>');
  });

  const become = ['setpriv', `--reuid=${nobody}`, `--regid=${nobody}`, '--clear-groups'] as const;
  const whyNotNobody =
    (process.getuid?.() !== 0 && 'needs root') ||
    (spawnSync(become[0], [...become.slice(1), 'test', '-r', main]).status !== 0 &&
      'other users may not read this checkout');

  test('a user who is not root runs it as himself', { skip: whyNotNobody }, () => {
    const words = [...become.slice(1), process.execPath, main, 'run', '--', 'id', '-u'];
    const ran = spawnSync(become[0], words, { encoding: 'utf8', env: environment() });
    assert.equal(ran.status, 0, ran.stderr);
    assert.equal(ran.stdout, `${nobody}\n`);
  });

  test('a missing host is reported before the command is started', () => {
    const ran = run(['--host', 'unix:/nonexistent/vgpu.sock', '--', 'sh', '-c', 'echo started']);
    assert.equal(ran.status, 6, ran.stderr);
    assert.equal(ran.stdout, '');
    assert.match(ran.stderr, /the host at unix:\/nonexistent\/vgpu\.sock does not answer: .*No such file/);
    assert.match(ran.stderr, /try: start vgpu-hostd on the host/);
    const document = run(['--json', '--host', 'unix:/nonexistent/vgpu.sock', '--', 'true']);
    assertDocument('error', document.stdout);
  });

  test('a command that cannot be started is quoted', () => {
    const absent = run(['--', 'no-such-program-of-anybody']);
    assert.equal(absent.status, 2);
    assert.match(absent.stderr, /cannot run "no-such-program-of-anybody": there is no such program/);
    assert.match(run(['--', '']).stderr, /cannot run "": there is no such program/);
    const directory = run(['--', '/tmp']);
    assert.match(directory.stderr, /cannot run "\/tmp": permission denied/);
  });

  test('the error for a mistyped word says what to type', () => {
    for (const [args, message] of [
      [[], /no command was given\n {2}try: vgpu-agent run -- COMMAND/],
      [['--print', '--', 'ls'], /--print runs nothing, and "ls" was given/],
      [['ls', '-l'], /-l follows ls[^\n]*\n {2}try: vgpu-agent run -- ls -l$/m],
      [['--host', 'nowhere', '--', 'ls'], /'nowhere' is invalid/],
    ] as const) {
      const ran = run(args);
      assert.equal(ran.status, 2, ran.stderr);
      assert.match(ran.stderr, message);
    }
  });
});

interface Said {
  text(): string;
  until(text: string): Promise<void>;
  readonly end: Promise<{ readonly code: number | null; readonly signal: string | null }>;
}

function collect(child: ChildProcess): Said {
  let text = '';
  const waiting: (() => void)[] = [];
  child.stdout?.on('data', (chunk: Buffer) => {
    text += chunk.toString('utf8');
    for (const look of waiting) look();
  });
  return {
    text: () => text,
    until: (wanted) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (text.includes(wanted)) resolve();
        };
        waiting.push(look);
        look();
      }),
    end: new Promise((resolve) => {
      child.on('close', (code, signal) => resolve({ code, signal }));
    }),
  };
}
