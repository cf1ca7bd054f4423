import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CommandResult, CommandRunner } from '../../../agent/run-command.js';
import { probeArguments, runProbe, transientReport } from '../../../agent/systemd/probe-runner.js';
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
    '--setenv=VGPU_LOG=stderr',
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

const ended = (result: string, main: string): string =>
  `Running as unit: p.service\nloader: complaint\nFinished with result: ${result}\nMain processes terminated with: ${main}\nService runtime: 3ms\nCPU time consumed: 2ms\n`;

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

const run = (runner: CommandRunner) =>
  runProbe({ unit: hardened, program: '/p', timeoutMs: 1000, signal: new AbortController().signal, runner });

test("systemd-run's own lines are told from the probe's", () => {
  const report = transientReport(ended('exit-code', 'code=exited/status=1'));
  assert.deepEqual([report.result, report.code, report.status], ['exit-code', 'exited', '1']);
  assert.equal(report.stderr.trim(), 'loader: complaint');
});

test('an exit status, a signal and a time-out are three different ends', async () => {
  const ran = async (text: string) => {
    const result = await run(runnerSaying(text));
    assert.ok(result.kind === 'ran', JSON.stringify(result));
    return [result.exitCode, result.signal, result.timedOut];
  };
  assert.deepEqual(await ran(ended('exit-code', 'code=exited/status=1')), [1, null, false]);
  assert.deepEqual(await ran(ended('signal', 'code=killed/status=SEGV')), [null, 'SEGV', false]);
  assert.deepEqual(await ran(ended('timeout', 'code=killed/status=TERM')), [null, 'TERM', true]);
});

test('what systemd could not start did not run, and says why', async () => {
  const noUser = await run(runnerSaying(ended('exit-code', 'code=exited/status=217')));
  assert.deepEqual(noUser, {
    kind: 'not-run',
    message: 'the user "ollama" of ollama.service does not exist',
  });
  const noFile = await run(runnerSaying('Failed to find executable /p: No such file or directory\n'));
  assert.deepEqual(noFile, {
    kind: 'not-run',
    message: 'Failed to find executable /p: No such file or directory',
  });
});
