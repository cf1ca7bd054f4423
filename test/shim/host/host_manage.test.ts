/** The control socket: what an administrator sees of a host, and what it does when told to. */
import assert from 'node:assert/strict';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type Ended, preloaded, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';

const MIB = 1 << 20;

interface Status {
  readonly schema: number;
  readonly wire: string;
  readonly device: string;
  readonly simulated: boolean;
  readonly draining: boolean;
  readonly refusedConfig: { readonly at: string; readonly reason: string } | null;
  readonly devices: readonly { readonly name: string; readonly memory: number; readonly used: number }[];
  readonly totals: { readonly begun: number; readonly ended: number; readonly turnedAway: number };
  readonly sessions: readonly {
    readonly session: number;
    readonly peer: { readonly kind: string; readonly id: number };
    readonly worker: number;
    readonly carrier: string;
    readonly memory: number;
    readonly claimed: { readonly pid: number; readonly program: string };
  }[];
}

describe('the control socket of a host', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  const start = async (args: readonly string[] = []): Promise<Host> => {
    const host = await startHost({
      listen: `unix:${scratch.path}/s`,
      args: ['--control', `${scratch.path}/control`, ...args],
    });
    hosts.push(host);
    return host;
  };
  const open = (): Shell => {
    const shell = startShell({ VGPU_HOST: `unix:${scratch.path}/s` });
    shells.push(shell);
    return shell;
  };
  const tell = (...words: string[]): Promise<Ended> =>
    runProgram(builtFile('vgpu-hostd'), [...words, '--control', `${scratch.path}/control`], {
      limit: 20_000,
    });
  const status = async (): Promise<Status> => JSON.parse((await tell('status', '--json')).stdout) as Status;

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const host of hosts) await host.stop();
    [hosts, shells] = [[], []];
    scratch.remove();
  });

  it('lists no session by the heading of the list alone', async () => {
    await start();
    const { code, stdout, stderr } = await tell('sessions');
    assert.deepEqual([code, stderr], [0, '']);
    assert.match(stdout, /^ +SESSION PEER [A-Z ]+\n$/);
    assert.deepEqual(JSON.parse((await tell('sessions', '--json')).stdout).sessions, []);
  });

  it('tells devices, sessions and totals, as a table, as JSON and as metrics', async () => {
    const host = await start();
    assert.equal(statSync(`${scratch.path}/control`).mode & 0o777, 0o600);
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${5 * MIB}`]);
    const now = await status();
    assert.deepEqual(
      [now.schema, now.wire, now.device, now.simulated, now.draining],
      [1, '1.0', 'software', true, false],
    );
    assert.match(now.devices[0]?.name ?? '', /\(simulated\)$/);
    assert.ok((now.devices[0]?.used ?? 0) >= 5 * MIB);
    assert.deepEqual(now.totals, { begun: 1, ended: 0, turnedAway: 0, most: 128 });
    const [session] = now.sessions;
    assert.deepEqual(session?.peer, { kind: 'unix', id: process.getuid?.() ?? 0 });
    assert.deepEqual(session?.claimed.pid, shell.pid);
    assert.ok(host.log().includes(`worker ${session?.worker}`));
    assert.equal(session?.carrier, 'rings');
    const table = (await tell('status')).stdout;
    assert.match(
      table,
      /^vgpu-hostd \d+\.\d+\.\d+, wire version 1\.0, --device software\ndevice 0: .*, \d+ of 81079 MiB/,
    );
    assert.match(table, /sessions: 1 now, 1 begun, 0 refused\n +SESSION PEER/);
    assert.match((await tell('sessions')).stdout, /^ +SESSION PEER .*\n +\d+ unix:\d+ +driver_shell +\d+ /);
    const metrics = (await tell('metrics')).stdout;
    assert.match(metrics, /^vgpu_hostd_sessions 1$/m);
    assert.match(metrics, /^vgpu_hostd_info\{.*simulated="1"\} 1$/m);
    assert.match(metrics, /^vgpu_hostd_session_memory_bytes\{session="\d+",peer="unix:\d+"\} \d{7,}$/m);
    for (const line of metrics.trim().split('\n'))
      assert.match(line, /^(# (HELP|TYPE) vgpu_hostd_\w+ .+|vgpu_hostd_\w+(\{[^}]*\})? \d+(\.\d{3})?)$/);
  });

  it('ends one session and no other', async () => {
    const host = await start();
    const [first, second] = [open(), open()];
    await askAll(first, ['init', 'ctx 0']);
    const [session] = (await status()).sessions;
    await askAll(second, ['init', 'ctx 0']);
    assert.equal((await tell('end', String(session?.session))).code, 0);
    await until('one session', () => sessionsNow(host) === 1);
    await askAll(second, ['alloc 4096']);
    const again = await tell('end', String(session?.session));
    assert.equal(again.code, 1);
    assert.match(again.stderr, /there is no session \d+/);
  });

  it('reads hostd.conf again without ending a session, by order and by SIGHUP, and keeps good rules', async () => {
    const file = `${scratch.path}/conf`;
    writeFileSync(file, 'allow unix\n');
    const host = await start(['--config', file]);
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    writeFileSync(file, 'deny any\n');
    assert.equal((await tell('reload')).code, 0);
    assert.equal((await open().ask('init')).result, 100, 'denied now');
    await askAll(shell, ['alloc 4096']);
    writeFileSync(file, 'allow unix pids=3\n');
    const bad = await tell('reload');
    assert.equal(bad.code, 1);
    assert.match(bad.stderr, /line 1: unknown setting "pids"; the former rules stay in force/);
    assert.equal((await open().ask('init')).result, 100, 'still denied');
    writeFileSync(file, 'allow unix "x"\n');
    host.signal('SIGHUP');
    await host.logged(/not reloaded, the former rules stay in force: .* line 1: ""x"" is not KEY=VALUE/);
    const { at, reason } = (await status()).refusedConfig ?? { at: '', reason: '' };
    assert.match(reason, /conf: line 1: ""x"" is not KEY=VALUE$/);
    assert.ok(Math.abs(Date.now() - Date.parse(at)) < 60_000, at);
    assert.match(
      (await tell('status')).stdout,
      /^configuration: refused at 20\S+Z, so the former rules stay in force: .*KEY=VALUE; correct it, then: vgpu-hostd reload$/m,
    );
    assert.match((await tell('metrics')).stdout, /^vgpu_hostd_config_refused 1$/m);
    writeFileSync(file, 'allow unix\n');
    host.signal('SIGHUP');
    await host.logged(/hostd.conf was read again[\s\S]*hostd.conf was read again/);
    await askAll(open(), ['init', 'ctx 0']);
    await askAll(shell, ['alloc 4096']);
    assert.equal((await status()).refusedConfig, null);
    assert.equal(host.running(), true);
  });

  it('drains: old sessions finish, a successor takes the new ones', async () => {
    const host = await start();
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    assert.equal((await tell('drain')).code, 0);
    assert.equal((await status()).draining, true);
    assert.equal(existsSync(`${scratch.path}/s`), false, 'the address is free');
    const successor = await startHost({ listen: `unix:${scratch.path}/s` });
    hosts.push(successor);
    await askAll(open(), ['init', 'ctx 0']);
    await until('its session in the log', () => sessionsNow(successor) === 1);
    await askAll(shell, ['alloc 4096']);
    assert.equal(await shell.end(), 0);
    await until('the old daemon to end', () => !host.running());
    assert.equal(await host.stop(), 0);
    assert.equal(existsSync(`${scratch.path}/s`), true, "the successor's socket stays");
  });

  /** Runs `vgpu-hostd status`, and delays its first sends by half a second: a daemon waits for less. */
  const askLate = async (sends: number): Promise<Ended> =>
    runProgram(builtFile('vgpu-hostd'), ['status', '--control', `${scratch.path}/control`], {
      env: { LATE_SENDS: String(sends), ...(await preloaded('late_send')) },
    });

  it('answers a client whose request comes late, as on a busy machine', async () => {
    await start();
    const ended = await askLate(2);
    assert.deepEqual([ended.code, ended.stderr], [0, '']);
    assert.match(ended.stdout, /^device 0: /m);
  });

  it('is reported as silent when it closes the connection before it reads the order', async () => {
    const server = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(`${scratch.path}/control`, resolve));
    try {
      const ended = await askLate(10);
      assert.deepEqual([ended.code, ended.signal], [1, null], 'no SIGPIPE');
      assert.match(ended.stderr, /the daemon at .*control gave no answer/);
    } finally {
      server.close();
    }
  });

  it('says what is wrong with an order, or that no daemon runs', async () => {
    const nobody = await tell('status');
    assert.equal(nobody.code, 1);
    assert.match(nobody.stderr, /no daemon answers at .*control: No such file/);
    for (const [words, complaint] of [
      [['end'], /end takes the number of one session/],
      [['end', 'x'], /end: "x" is not the number of a session/],
      [['status', 'all'], /"all" is not an option, nor one of status/],
      [['start'], /"start" is not an option, nor one of status/],
      [['drain', '--watch'], /--watch goes with status/],
    ] as const) {
      const ended = await tell(...words);
      assert.equal(ended.code, 2, words.join(' '));
      assert.match(ended.stderr, complaint);
    }
  });
});
