import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommandResult, CommandRunner } from '../../../agent/lib/run-command.js';
import {
  type ProbeQuestion,
  probeCommand,
  runProbe,
  unitArguments,
} from '../../../agent/systemd/run-in-unit.js';
import type { MainExit } from '../../../agent/systemd/types.js';
import { unitFacts } from '../../../agent/systemd/unit-facts.js';

function unit(service: Readonly<Record<string, unknown>>) {
  const facts = unitFacts({
    name: 'ollama.service',
    unit: { LoadState: 'loaded', Id: 'ollama.service' },
    service,
    fragment: '',
    dropIns: [],
  });
  assert.ok(facts.kind === 'loaded');
  return facts;
}

const probeArguments = (question: ProbeQuestion, name: string) => unitArguments(probeCommand(question), name);

const hardened = unit({
  User: 'ollama',
  Group: 'ollama',
  Environment: ['LD_PRELOAD=/opt/vgpu/current/libcuda.so.1', 'NOTE=a b%n"c'],
  EnvironmentFiles: [['/etc/default/ollama', true]],
  RestrictAddressFamilies: [true, ['AF_INET', 'AF_UNIX']],
  PrivateNetwork: true,
  DevicePolicy: 'closed',
  NoNewPrivileges: true,
  TemporaryFileSystem: [['/var', 'ro']],
  PrivateTmp: true,
  IPAddressDeny: [
    [2, [0, 0, 0, 0], 0],
    [10, Array.from({ length: 16 }, () => 0), 0],
  ],
  IPAddressAllow: [[2, [127, 0, 0, 0], 8]],
  SystemCallFilter: [false, ['connect:EPERM', 'mount']],
});

test('the probe gets the user, the environment and the sandbox of the service', () => {
  const args = probeArguments(
    { unit: hardened, program: '/opt/vgpu/current/vgpu-probe', timeoutMs: 15_000 },
    'p.service',
  );
  for (const expected of [
    '--property=User=ollama',
    '--property=Group=ollama',
    '--setenv=LD_PRELOAD=/opt/vgpu/current/libcuda.so.1',
    '--setenv=NOTE=a b%n"c',
    '--property=EnvironmentFile=-/etc/default/ollama',
    '--property=RestrictAddressFamilies=AF_INET AF_UNIX',
    '--property=PrivateNetwork=yes',
    '--property=DevicePolicy=closed',
    '--property=NoNewPrivileges=yes',
    '--property=TemporaryFileSystem=/var:ro',
    '--property=PrivateTmp=yes',
    '--property=IPAddressDeny=0.0.0.0/0',
    '--property=IPAddressDeny=0:0:0:0:0:0:0:0/0',
    '--property=IPAddressAllow=127.0.0.0/8',
    // Only what the transport needs: the whole filter could be longer than a command line.
    '--property=SystemCallFilter=~connect',
    '--property=RuntimeMaxSec=17',
  ]) {
    assert.ok(args.includes(expected), `${expected} in ${args.join(' ')}`);
  }
  assert.deepEqual(args.slice(args.indexOf('--')), [
    '--',
    '/opt/vgpu/current/vgpu-probe',
    '--json',
    '--timeout',
    '15',
  ]);
});

test('a service without a sandbox gives the probe none', () => {
  const args = probeArguments({ unit: unit({}), program: '/p', timeoutMs: 1000 }, 'p.service');
  const properties = args.filter((arg) => arg.startsWith('--property='));
  assert.deepEqual(properties, [
    '--property=RuntimeMaxSec=3',
    '--property=KillMode=control-group',
    '--property=LimitCORE=0',
  ]);
});

test('an allow list without members forbids every family', () => {
  const none = unit({ RestrictAddressFamilies: [true, []] });
  assert.ok(
    probeArguments({ unit: none, program: '/p', timeoutMs: 1 }, 'p').includes(
      '--property=RestrictAddressFamilies=none',
    ),
  );
});

function runnerSaying(stderr: string, over: Partial<CommandResult> = {}): CommandRunner {
  return {
    run: async () => ({
      code: 1,
      signal: null,
      stdout: Buffer.from('{}\n'),
      stderr: Buffer.from(stderr),
      timedOut: false,
      ...over,
    }),
  };
}

/** A probe whose unit ended so; null: it never was. */
const run = (end: MainExit | null, stderr = '', over: Partial<CommandResult> = {}) =>
  runProbe({
    unit: hardened,
    program: '/p',
    timeoutMs: 1000,
    signal: new AbortController().signal,
    runner: runnerSaying(stderr, over),
    manager: {
      watchExit: async () => ({ ended: async () => end, stop: async () => {} }),
      kill: async () => {},
    },
  });

test('an exit status, a signal and a time-out are three different ends', async () => {
  const ran = async (end: MainExit) => {
    const result = await run(end);
    assert.ok(result.kind === 'ran', JSON.stringify(result));
    return [result.exitCode, result.signal, result.timedOut];
  };
  assert.deepEqual(await ran({ result: 'success', exitCode: 0, signal: null }), [0, null, false]);
  assert.deepEqual(await ran({ result: 'exit-code', exitCode: 1, signal: null }), [1, null, false]);
  assert.deepEqual(await ran({ result: 'core-dump', exitCode: null, signal: 'SEGV' }), [null, 'SEGV', false]);
  assert.deepEqual(await ran({ result: 'timeout', exitCode: null, signal: 'TERM' }), [null, 'TERM', true]);
});

test("the probe's standard error is passed on unchanged", async () => {
  const result = await run(
    { result: 'success', exitCode: 0, signal: null },
    'Finished with result: timeout\n',
  );
  assert.ok(result.kind === 'ran');
  assert.deepEqual([result.timedOut, result.stderr], [false, 'Finished with result: timeout\n']);
});

test('a command that systemd could not start did not run, and the reason is reported', async () => {
  assert.deepEqual(await run({ result: 'exit-code', exitCode: 217, signal: null }), {
    kind: 'not-run',
    message: 'the user "ollama" of ollama.service does not exist',
  });
  assert.deepEqual(await run(null, 'Failed to find executable /p: No such file or directory\n'), {
    kind: 'not-run',
    message: 'Failed to find executable /p: No such file or directory',
  });
  assert.deepEqual(await run(null, '', { timedOut: true }), {
    kind: 'not-run',
    message: 'systemd-run did not end in time',
  });
});

test("for a container the engine starts the probe inside, without the unit's user and sandbox", () => {
  const execStart = ['/usr/bin/podman', 'run', '--name', 'systemd-x', '-d', 'image'];
  const args = probeArguments(
    {
      unit: { ...hardened, user: '', execStart },
      program: '/opt/vgpu/current/vgpu-probe',
      programInContainer: '/opt/vgpu/versions/0123456789abcdef/vgpu-probe',
      timeoutMs: 15_000,
    },
    'p.service',
  );
  const command = args.slice(args.indexOf('--') + 1);
  assert.deepEqual(command, [
    ...['/usr/bin/podman', 'exec', 'systemd-x'],
    ...['/opt/vgpu/versions/0123456789abcdef/vgpu-probe', '--json', '--timeout', '15'],
  ]);
  for (const mine of ['--property=User=', '--property=Device', '--setenv='])
    assert.ok(!args.some((one) => one.startsWith(mine)), mine);
});

test("into the container of a user's podman it goes as that user, by the environment of the unit", () => {
  const execStart = ['/usr/bin/podman', 'run', '--name', 'x', 'image'];
  const args = probeArguments(
    { unit: { ...hardened, execStart }, program: '/p', timeoutMs: 15_000 },
    'p.service',
  );
  assert.deepEqual(args.slice(args.indexOf('--') + 1, -4), ['/usr/bin/podman', 'exec', 'x']);
  assert.ok(args.includes('--property=User=ollama'));
  assert.ok(args.includes('--setenv=NOTE=a b%n"c'));
  assert.ok(args.includes('--property=EnvironmentFile=-/etc/default/ollama'));
  assert.ok(
    !args.some((one) => /^--property=(?:Restrict|Private|NoNew|System)/.test(one)),
    'not in its sandbox',
  );
});

test('no other user can enter the podman of a DynamicUser= unit', async () => {
  const execStart = ['/usr/bin/podman', 'run', '--name', 'x', 'image'];
  const ran = await runProbe({
    unit: { ...hardened, user: '', dynamicUser: true, execStart },
    program: '/p',
    timeoutMs: 1000,
    signal: new AbortController().signal,
    runner: runnerSaying(''),
    manager: {
      watchExit: async () => ({ ended: async () => null, stop: async () => {} }),
      kill: async () => {},
    },
  });
  assert.ok(ran.kind === 'not-run' && /\(DynamicUser=\)$/.test(ran.message), JSON.stringify(ran));
});

test('a probe that the engine could not start in the container is no crash of it', async () => {
  const ran = (exitCode: number, stderr: string, stdout = '') =>
    runProbe({
      unit: { ...hardened, execStart: ['/usr/bin/docker', 'run', '--name', 'x', 'image'] },
      program: '/p',
      timeoutMs: 1000,
      signal: new AbortController().signal,
      runner: runnerSaying(stderr, { stdout: Buffer.from(stdout) }),
      manager: {
        watchExit: async () => ({
          ended: async () => ({ result: 'exit-code', exitCode, signal: null }),
          stop: async () => {},
        }),
        kill: async () => {},
      },
    });
  for (const [exitCode, stderr, message] of [
    [1, 'Error response from daemon: No such container: x\n', /No such container: x$/],
    [127, 'OCI runtime: not found\n', /it does not exist there, so the container does not have the device$/],
    [1, "/p: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /p)\n", /newer C library/],
  ] as const) {
    const result = await ran(exitCode, stderr);
    assert.ok(result.kind === 'not-run', JSON.stringify(result));
    assert.match(result.message, message);
  }
  const crashed = await ran(139, '');
  assert.ok(crashed.kind === 'ran' && crashed.inContainer === true, 'SIGSEGV, as an engine tells it');
  assert.equal((await ran(1, '', '{}\n')).kind, 'ran');
});
