/**
 * Sessions that survive their connection: a relay between guest and host cuts it at any byte, and each call is carried
 * out once all the same. VGPU_TEST_LONG=1 cuts for minutes.
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsBegun,
  sessionsNow,
  sleep,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { type Cuts, type CuttingRelay, startCuttingRelay } from './cutting_relay.js';
import { frame, hello, noise, WireClient } from './wire_client.js';

const LONG = process.env['VGPU_TEST_LONG'] === '1';
/** VGPU_FEATURE_RESUME. */
const RESUME = 0x800;
const PING = 2;
const GOODBYE = 10;
const REFUSED = 2;
const SYSTEM_NOT_READY = 802;
const PORT = await freePort();
const RELAY_PORT = await freePort();
const KIB = 1024;
const MIB = 1024 * KIB;

/** `least` to `most` bytes, and each fourth time so few that the greeting itself is cut. */
function cutsOf(seed: number, least: number, most: number, how: 'end' | 'reset' = 'end'): Cuts {
  const random = noise(seed);
  let count = 0;
  return {
    how,
    next: () => {
      count++;
      const short = count > 1 && count % 4 === 0;
      return short ? 1 + ((random() >>> 8) % 600) : least + ((random() >>> 8) % (most - least));
    },
  };
}

describe('a session whose connection is cut', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let relays: CuttingRelay[] = [];
  let shells: Shell[] = [];

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const relay of relays) await relay.close();
    for (const host of hosts) await host.stop();
    [hosts, relays, shells] = [[], [], []];
    scratch.remove();
  });

  const start = async (over: 'tcp' | 'unix', config = ''): Promise<Host> => {
    writeFileSync(`${scratch.path}/conf`, `${config}\nallow any\n`);
    const host = await startHost({
      listen: over === 'tcp' ? `tcp:127.0.0.1:${PORT}` : `unix:${scratch.path}/h`,
      args: ['--config', `${scratch.path}/conf`, '--control', `${scratch.path}/control`],
    });
    hosts.push(host);
    return host;
  };
  const between = async (over: 'tcp' | 'unix', cuts?: Cuts, record = false): Promise<CuttingRelay> => {
    const relay = await (over === 'tcp'
      ? startCuttingRelay(RELAY_PORT, PORT, cuts, record)
      : startCuttingRelay(`${scratch.path}/r`, `${scratch.path}/h`, cuts, record));
    relays.push(relay);
    return relay;
  };
  /** A program that calls once for each line: `call RESULT LAUNCHED COUNTED`. */
  const open = async (address: string, env: Readonly<Record<string, string>> = {}): Promise<Shell> => {
    const shell = startShell(
      {
        VGPU_HOST: address,
        VGPU_TRANSPORT: 'socket',
        CASE: 'by_line',
        VGPU_LOG: `${scratch.path}/log`,
        ...env,
      },
      'reconnecting',
    );
    shells.push(shell);
    await until('the program to begin', () => shell.extra().includes('there 0'), 20_000);
    return shell;
  };
  /** It has launched so often in all, and so often its kernel has run. */
  const counts = async (shell: Shell, times: number): Promise<void> => {
    const { result, values } = await shell.ask('call', 40_000);
    assert.deepEqual([result, ...values], [0, String(times), String(times)], shell.extra().join());
  };
  const logOfGuest = (): string => readFileSync(`${scratch.path}/log`, 'utf8');
  interface Told {
    readonly sessions: readonly { readonly waiting: number; readonly memory: number }[];
  }
  const told = (...order: readonly string[]): string => {
    const words = [...order, '--control', `${scratch.path}/control`];
    return spawnSync(builtFile('vgpu-hostd'), words, { encoding: 'utf8' }).stdout;
  };
  const sessions = (): Told['sessions'] => {
    const status: Told = JSON.parse(told('status', '--json'));
    return status.sessions;
  };

  const rounds = LONG ? '400' : '12';
  /** A lost wake-up of one of the threads took some 200 cuts to be seen. */
  const THREADED = LONG ? '400' : '60';
  for (const [what, over, cuts, times = rounds] of [
    ['launches and copies, by the end of a process between', 'tcp', cutsOf(1, 2 * KIB, 3 * MIB)],
    ['launches and copies, by a reset', 'tcp', cutsOf(2, 2 * KIB, 3 * MIB, 'reset')],
    ['five threads, over unix sockets', 'unix', cutsOf(3, 2 * KIB, 4 * MIB), THREADED],
    ['five threads, by a reset', 'tcp', cutsOf(4, 2 * KIB, 4 * MIB, 'reset'), THREADED],
    ['20,000 launches without a wait', 'tcp', cutsOf(5, 20 * KIB, 400 * KIB), LONG ? '400' : '20'],
    ['a thread that waits for another', 'tcp', cutsOf(7, 100 * KIB, 2 * MIB), THREADED],
    ['copies of 24 MiB each way', 'tcp', cutsOf(6, 100 * KIB, 20 * MIB), LONG ? '40' : '2'],
  ] as const) {
    it(`goes on where it was: ${what}`, { timeout: 600_000 }, async () => {
      const host = await start(over, 'limits connects=none');
      const relay = await between(over, cuts);
      const program = what.startsWith('five')
        ? 'threads'
        : what.startsWith('20')
          ? 'burst'
          : what.startsWith('copies')
            ? 'copies'
            : what.startsWith('a thread')
              ? 'waiting'
              : 'alone';
      const enough = `${scratch.path}/enough`;
      const running = runProgram(builtFile('programs/reconnecting'), [program], {
        env: {
          VGPU_HOST: relay.address,
          VGPU_TRANSPORT: 'socket',
          LD_LIBRARY_PATH: SHIM,
          ROUNDS: times,
          UNTIL: enough,
        },
        limit: 500_000,
      });
      let runs = true;
      void running.finally(() => {
        runs = false;
      });
      await until('three cuts', () => !runs || relay.cuts() >= 3, 60_000);
      writeFileSync(enough, '');
      const ended = await running;
      assert.deepEqual([ended.code, ended.stdout, ended.stderr], [0, '', '']);
      assert.ok(relay.cuts() >= 3, `${relay.cuts()} cuts`);
      assert.equal([...host.log().matchAll(/libcuda reconnecting .* begins/g)].length, 1, 'one session');
      assert.doesNotMatch(host.log(), /violation|did not come back|Sanitizer|runtime error/);
      await until('its session to end', () => sessionsNow(host) === 0);
    });
  }

  it('is taken up while nobody calls, and waits with its memory meanwhile', async () => {
    const host = await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address);
    await counts(shell, 1);
    await relay.shut();
    await until('the session to wait', () => (sessions()[0]?.waiting ?? 0) > 0);
    assert.ok((sessions()[0]?.memory ?? 0) > 2 * MIB, 'its memory counts');
    assert.match(told('status'), /\(its connection broke: waiting for its guest, \d+s\)/);
    await relay.open();
    await until('it to go on', () => sessions()[0]?.waiting === 0);
    await counts(shell, 2);
    assert.match(logOfGuest(), /session \d+ continues after \d+ ms/);
    assert.equal(await shell.end(), 0);
    await until('its end', () => sessionsNow(host) === 0);
    assert.doesNotMatch(host.log(), /did not come back/, 'it has said goodbye');
  });

  it('goes on when its worker had no descriptor free for the first connections', async () => {
    const host = await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address);
    await counts(shell, 1);
    const { 1: worker = '' } = await host.logged(/, worker (\d+)$/m);
    const { uid, gid } = statSync(`/proc/${worker}`);
    // As the worker's user, because root may lack CAP_SYS_RESOURCE.
    const limit = (descriptors: string): void => {
      const as = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'];
      const call = ['prlimit', '--pid', worker, `--nofile=${descriptors}`];
      const words = process.getuid?.() === 0 ? ['setpriv', ...as, ...call] : call;
      const { status, stderr } = spawnSync('env', words, { encoding: 'utf8' });
      assert.deepEqual([status, stderr], [0, '']);
    };
    limit('3:');
    await relay.shut();
    await until('the session to wait', () => (sessions()[0]?.waiting ?? 0) > 0);
    await relay.open();
    const call = counts(shell, 2);
    await host.logged(/lost a new connection: no free descriptor/);
    limit('256:');
    await call;
    assert.equal(await shell.end(), 0);
  });

  it('is lost when the host does not come back in time, which is said once', async () => {
    const host = await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address, { VGPU_RECONNECT: '1' });
    const began = performance.now();
    await host.stop();
    assert.equal((await shell.ask('call')).result, SYSTEM_NOT_READY);
    const took = performance.now() - began;
    assert.ok(took > 500 && took < 9000, `${took} ms`);
    const again = await shell.ask('call');
    assert.equal(again.result, SYSTEM_NOT_READY);
    assert.ok(again.milliseconds < 900, `${again.milliseconds} ms`);
    assert.equal([...logOfGuest().matchAll(/is lost: .*VGPU_RECONNECT/g)].length, 1);
    assert.ok(relay.made() > 2 && relay.made() < 20, `${relay.made()} connections in a second`);
  });

  it('is ended by the host that has waited as long as hostd.conf says', async () => {
    const host = await start('tcp', 'limits reconnect=1');
    const relay = await between('tcp');
    const shell = await open(relay.address);
    await relay.shut();
    await host.logged(/its guest did not come back within 1 s/);
    await until('its end', () => sessionsNow(host) === 0);
    await relay.open();
    assert.equal((await shell.ask('call')).result, SYSTEM_NOT_READY);
    assert.match(logOfGuest(), /is lost: .*does not know the session any more/);
  });

  for (const [side, config, env] of [
    ['the guest', '', { VGPU_RECONNECT: '0' }],
    ['the host', 'limits reconnect=0', {}],
  ] as const) {
    it(`ends with its connection where ${side} has turned it off`, async () => {
      const host = await start('tcp', config);
      const relay = await between('tcp');
      const shell = await open(relay.address, env);
      relay.cut();
      await until('its end', () => sessionsNow(host) === 0);
      const failed = await shell.ask('call');
      assert.equal(failed.result, SYSTEM_NOT_READY);
      assert.ok(failed.milliseconds < 10_000, `${failed.milliseconds} ms`);
    });
  }

  it('takes 30 s when VGPU_RECONNECT is not valid, and says so', async () => {
    const host = await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address, { VGPU_RECONNECT: 'soon' });
    assert.match(logOfGuest(), /VGPU_RECONNECT "soon" is not a number of seconds from 0 to 86400: using 30/);
    relay.cut();
    await counts(shell, 1);
    await until('the session in the log', () => sessionsNow(host) === 1);
  });

  it('ends at once when its guest is killed, and when the administrator ends it', async () => {
    const host = await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address);
    shell.kill();
    await until('its end', () => sessionsNow(host) === 0);
    const other = await open(relay.address);
    const numbers = (): readonly RegExpExecArray[] => [
      ...host.log().matchAll(/session (\d+): libcuda reconnecting .* begins/g),
    ];
    await until('its begin', () => numbers().length === 2);
    told('end', numbers()[1]?.[1] ?? '');
    await until('its end, too', () => sessionsNow(host) === 0);
    assert.equal((await other.ask('call')).result, SYSTEM_NOT_READY);
  });

  /** A guest of another machine, as far as the host knows, and its secret. */
  const stranger = async (
    over: 'tcp' | 'unix',
  ): Promise<{ client: WireClient; session: bigint; secret: bigint }> => {
    const client = await WireClient.open(over === 'tcp' ? `tcp:${PORT}` : `${scratch.path}/h`, 'socket');
    client.send(hello(1, { features: RESUME, received: 0n }));
    const welcome = await client.receive();
    assert.equal(welcome?.status, 0);
    assert.equal((welcome?.body.readUInt32LE(12) ?? 0) & RESUME, RESUME);
    return {
      client,
      session: welcome?.body.readBigUInt64LE(32) ?? 0n,
      secret: welcome?.body.readBigUInt64LE(40) ?? 0n,
    };
  };
  const resume = async (
    path: string,
    join: bigint,
    secret: bigint,
    received = 0n,
    library = 1,
  ): Promise<{ client: WireClient; status: number; next: bigint }> => {
    const client = await WireClient.open(path, 'socket');
    client.send(hello(library, { features: RESUME, join, secret, received }));
    const answer = await client.receive();
    const status = answer?.status ?? -1;
    return { client, status, next: status === 0 ? (answer?.body.readBigUInt64LE(160) ?? 0n) : 0n };
  };

  it('is not given to a wrong secret, another session, another peer or another library', async () => {
    writeFileSync(`${scratch.path}/conf`, 'limits connects=none\nallow any\n');
    const host = await startHost({
      listen: `tcp:127.0.0.1:${PORT}`,
      args: ['--listen', `unix:${scratch.path}/h`, '--config', `${scratch.path}/conf`],
    });
    hosts.push(host);
    const relay = await between('tcp');
    const mine = await open(relay.address);
    const one = await stranger('tcp');
    const other = await stranger('tcp');
    assert.notEqual(one.secret, other.secret);
    for (const [path, session, secret, library] of [
      [`tcp:${PORT}`, one.session, one.secret ^ 1n, 1],
      [`tcp:${PORT}`, one.session, 0n, 1],
      [`tcp:${PORT}`, other.session, one.secret, 1],
      [`tcp:${PORT}`, 10_000n, one.secret, 1],
      [`${scratch.path}/h`, one.session, one.secret, 1],
      [`tcp:${PORT}`, one.session, one.secret, 2],
    ] as const) {
      const { client, status } = await resume(path, session, secret, 0n, library);
      assert.equal(status, REFUSED);
      client.close();
    }
    for (let i = 0; i < 300; i++) {
      const { client, status } = await resume(`tcp:${PORT}`, one.session, BigInt(i + 1));
      assert.equal(status, REFUSED);
      client.close();
    }
    await counts(mine, 1);
    one.client.send(frame({ opcode: PING, sequence: 1n }));
    assert.equal((await one.client.receive())?.sequence, 1n, 'its connection is still its own');
    assert.equal((await resume(`tcp:${PORT}`, one.session, one.secret)).status, 0);
    assert.ok(!host.log().includes(one.secret.toString()), 'no secret in the log');
    assert.ok(!host.log().includes(one.secret.toString(16)), 'no secret in the log');
  });

  it('has one connection, the newest, and gives a reply again until it is acknowledged', async () => {
    const host = await start('tcp');
    const { client, session, secret } = await stranger('tcp');
    client.send(frame({ opcode: PING, sequence: 1n }));
    assert.equal((await client.receive())?.sequence, 1n);
    const [one, other] = await Promise.all([
      resume(`tcp:${PORT}`, session, secret),
      resume(`tcp:${PORT}`, session, secret),
    ]);
    assert.deepEqual([one.status, other.status], [0, 0]);
    assert.deepEqual([one.next, other.next], [2n, 2n]);
    assert.equal(await client.receive(), undefined, 'the first is closed');
    const newest = await resume(`tcp:${PORT}`, session, secret);
    assert.equal((await newest.client.receive())?.sequence, 1n, 'the reply again');
    newest.client.close();
    const last = await resume(`tcp:${PORT}`, session, secret, 1n);
    last.client.send(frame({ opcode: PING, sequence: 1n }));
    last.client.send(frame({ opcode: PING, sequence: 2n }));
    assert.equal((await last.client.receive())?.sequence, 2n, 'the first ping was carried out long ago');
    assert.equal(sessionsBegun(host), 1);
    last.client.send(frame({ opcode: PING, sequence: 9n }));
    assert.equal(await last.client.receive(), undefined);
    await host.logged(/violation: the guest sent a frame out of order/);
  });

  it('carries nothing out twice when somebody replays what a guest has sent', async () => {
    const host = await start('tcp');
    const relay = await between('tcp', undefined, true);
    const shell = await open(relay.address);
    await counts(shell, 1);
    relay.cut();
    await counts(shell, 2);
    const again = relay.sent()[1] ?? Buffer.alloc(0);
    assert.ok(again.length > 250, 'the greeting that continued it, and the frames of a call');
    const replay = await WireClient.open(`tcp:${PORT}`, 'socket');
    replay.send(again);
    assert.equal((await replay.receive())?.status, 0);
    await sleep(100);
    replay.close();
    await counts(shell, 3);
    assert.equal(sessionsBegun(host), 1);
  });

  it('ends with a goodbye, and with a connection that a living process closed for a guest elsewhere', async () => {
    const host = await start('tcp');
    const { client } = await stranger('tcp');
    client.send(frame({ opcode: GOODBYE, flags: 2, sequence: 1n }));
    await sleep(50);
    client.close();
    await until('its end', () => sessionsNow(host) === 0);
    const silent = await stranger('tcp');
    silent.client.close();
    await host.logged(/the connection broke; waiting 30 s for its guest/);
    await sleep(500);
    assert.equal(sessionsNow(host), 1, 'over TCP nobody can know');
    await host.stop();
    const beside = await start('unix');
    const sshd = await stranger('unix');
    sshd.client.close();
    await until('its end', () => sessionsNow(beside) === 0);
  });

  it('is waited for when the process that brought it over a unix socket has ended', async () => {
    const host = await start('unix', 'limits reconnect=2');
    const script = `
      const socket = require('node:net').connect(process.argv[1]);
      socket.write(Buffer.from(process.argv[2], 'base64'));
      socket.once('data', () => process.exit(0));`;
    const greeting = hello(1, { features: RESUME, received: 0n }).toString('base64');
    spawnSync(process.execPath, ['-e', script, `${scratch.path}/h`, greeting], { timeout: 10_000 });
    await host.logged(/the connection broke; waiting 2 s for its guest/);
    await host.logged(/its guest did not come back within 2 s/);
  });

  it('goes on over a path that was silent', { skip: !LONG && 'a host may be silent for 10 s' }, async () => {
    await start('tcp');
    const relay = await between('tcp');
    const shell = await open(relay.address);
    relay.freeze(true);
    const asked = shell.ask('call', 60_000);
    await sleep(12_000);
    relay.freeze(false);
    assert.deepEqual((await asked).values, ['1', '1']);
  });
});
