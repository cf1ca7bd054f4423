/**
 * Sessions with rings that survive their connection: both processes live, and only the doorbell is cut. In a VM's
 * memory, for which a file stands here, a relay cuts it; beside each other a program that shuts the guest's socket down
 * from outside. VGPU_TEST_LONG=1 cuts for minutes.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, readSync, writeFileSync, writeSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
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
  workerOf,
} from '../shim_host.js';
import { makeVmMemory, type VmMemory } from '../support/vm_memory.js';
import { type CuttingRelay, startCuttingRelay } from './cutting_relay.js';
import { hello, noise, WireClient } from './wire_client.js';

const LONG = process.env['VGPU_TEST_LONG'] === '1';
/** VGPU_FEATURE_RESUME and _RESUME_RINGS. */
const RESUME = 0x1800;
const REFUSED = 2;
const SYSTEM_NOT_READY = 802;
/** Where the first place of a VM's memory begins, and where its ring of requests and the mark are. */
const PLACES = 65536;
const MARK = PLACES + 1024;
const CONTROL = 65536;
const RING = 2 << 20;
const ROUNDS: Readonly<Record<string, string>> = LONG
  ? { alone: '2000', threads: '2000', burst: '400', copies: '40', pinned: '400', waiting: '400' }
  : { alone: '40', threads: '60', burst: '20', copies: '2', pinned: '20', waiting: '40' };

type Kind = 'vm' | 'beside';

describe('a session with rings whose connection is cut', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let memory: VmMemory;
  let hosts: Host[] = [];
  let relays: CuttingRelay[] = [];
  let shells: Shell[] = [];
  let children: ChildProcess[] = [];

  beforeEach(() => {
    scratch = scratchDirectory();
    memory = makeVmMemory(scratch.path, 16);
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const child of children) child.kill('SIGKILL');
    for (const relay of relays) await relay.close();
    for (const host of hosts) {
      assert.doesNotMatch(host.log(), /Sanitizer|runtime error|killed by signal (?!9)/);
      await host.stop();
    }
    [hosts, relays, shells, children] = [[], [], [], []];
    memory.remove();
    scratch.remove();
  });

  const start = async (limits = 'limits connects=none'): Promise<Host> => {
    const conf = memory.args[1] ?? '';
    writeFileSync(conf, `${limits}\n${readFileSync(conf, 'utf8')}`);
    const host = await startHost({ listen: `unix:${scratch.path}/h`, args: memory.args });
    hosts.push(host);
    return host;
  };
  const between = async (): Promise<CuttingRelay> => {
    const relay = await startCuttingRelay(`${scratch.path}/r`, `${scratch.path}/h`);
    relays.push(relay);
    return relay;
  };
  const environment = (kind: Kind, address: string): Record<string, string> => ({
    VGPU_HOST: address,
    VGPU_LOG: `${scratch.path}/log`,
    LD_LIBRARY_PATH: SHIM,
    ...(kind === 'vm' ? memory.env : {}),
  });
  const logOfGuest = (): string => readFileSync(`${scratch.path}/log`, 'utf8');
  /** A program that calls once for each line: `call RESULT LAUNCHED COUNTED`. */
  const open = async (
    kind: Kind,
    address: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Shell> => {
    const shell = startShell({ ...environment(kind, address), CASE: 'by_line', ...env }, 'reconnecting');
    shells.push(shell);
    await until('the program to begin', () => shell.extra().includes('there 0'), 20_000);
    assert.match(logOfGuest(), kind === 'vm' ? /through the VM's shared memory/ : /through shared memory/);
    return shell;
  };
  const counts = async (shell: Shell, times: number): Promise<void> => {
    const { result, values } = await shell.ask('call', 40_000);
    assert.deepEqual([result, ...values], [0, String(times), String(times)], shell.extra().join());
  };
  /** Cuts the connections of a process, on average every so many milliseconds; 0: once. */
  const cut = (pid: number, pause: number): { readonly cuts: () => number; readonly done: Promise<void> } => {
    const child = spawn(builtFile('programs/cut_line'), [String(pid), String(pause)]);
    let count = 0;
    child.stdout.on('data', (chunk: Buffer) => {
      count += chunk.length;
    });
    children.push(child);
    return { cuts: () => count, done: new Promise((resolve) => child.once('close', () => resolve())) };
  };
  const continued = (): number => [...logOfGuest().matchAll(/continues after/g)].length;

  for (const kind of ['vm', 'beside'] as const) {
    for (const program of ['alone', 'threads', 'burst', 'copies', 'pinned', 'waiting']) {
      it(`goes on where it was: ${program}, ${kind}`, { timeout: 600_000 }, async () => {
        const host = await start();
        const relay = kind === 'vm' ? await between() : undefined;
        const child = spawn(builtFile('programs/reconnecting'), [program], {
          env: {
            ...process.env,
            ...environment(kind, relay?.address ?? host.address),
            ROUNDS: ROUNDS[program],
            UNTIL: `${scratch.path}/enough`,
          },
        });
        children.push(child);
        let output = '';
        for (const stream of [child.stdout, child.stderr])
          stream.on('data', (chunk: Buffer) => {
            output += chunk.toString();
          });
        let runs = true;
        const ended = new Promise<number | null>((resolve) => child.once('close', resolve)).finally(() => {
          runs = false;
        });
        await until(
          'its session',
          () => existsSync(`${scratch.path}/log`) && logOfGuest().includes(' with '),
          20_000,
        );
        const random = noise(kind.length);
        let going = true;
        const cutting =
          relay === undefined
            ? cut(child.pid ?? 0, 3).done
            : (async () => {
                while (going) {
                  await sleep((random() >>> 8) % 6);
                  const before = continued();
                  relay.cut();
                  // Half of the cuts wait for the reconnection: a busy machine would complete none between two cuts.
                  if ((random() >>> 16) % 2 === 0)
                    await until('it to go on', () => !runs || !going || continued() > before, 60_000);
                }
              })();
        await until('three cuts', () => !runs || continued() >= 3, 60_000);
        writeFileSync(`${scratch.path}/enough`, '');
        const code = await ended;
        going = false;
        await cutting;
        assert.deepEqual([code, output], [0, ''], logOfGuest().slice(-1000));
        assert.ok(continued() >= 3, `continued ${continued()} times`);
        assert.equal([...host.log().matchAll(/libcuda reconnecting .* begins/g)].length, 1, 'one session');
        assert.doesNotMatch(host.log(), /violation|did not come back/);
        await until('its session to end', () => sessionsNow(host) === 0);
      });
    }

    it(`is taken up while nobody calls, and ends at once with its guest: ${kind}`, async () => {
      const host = await start();
      const shell = await open(kind, host.address);
      await counts(shell, 1);
      await cut(shell.pid, 0).done;
      await until('it to go on', () => continued() === 1);
      await sleep(50);
      await counts(shell, 2);
      assert.equal(sessionsBegun(host), 1);
      shell.kill();
      await until('its end', () => sessionsNow(host) === 0);
      assert.doesNotMatch(host.log(), /did not come back/);
    });

    it(`says goodbye, and leaves nothing waiting: ${kind}`, async () => {
      const host = await start();
      const shell = await open(kind, host.address);
      await counts(shell, 1);
      assert.equal(await shell.end(), 0);
      await until('its end', () => sessionsNow(host) === 0);
      assert.doesNotMatch(host.log(), /waiting/);
    });

    for (const [side, limits, env] of [
      ['the guest', 'limits connects=none', { VGPU_RECONNECT: '0' }],
      ['the host', 'limits reconnect=0', {}],
    ] as const) {
      it(`ends with its connection where ${side} has turned it off: ${kind}`, async () => {
        const host = await start(limits);
        const shell = await open(kind, host.address, env);
        await cut(shell.pid, 0).done;
        await until('its end', () => sessionsNow(host) === 0);
        const failed = await shell.ask('call');
        assert.equal(failed.result, SYSTEM_NOT_READY);
        assert.ok(failed.milliseconds < 10_000, `${failed.milliseconds} ms`);
      });
    }

    it(`is lost at once when its worker is killed: ${kind}`, async () => {
      const host = await start();
      const shell = await open(kind, host.address);
      process.kill(await workerOf(host, shell.pid), 'SIGKILL');
      const failed = await shell.ask('call');
      assert.equal(failed.result, SYSTEM_NOT_READY);
      assert.ok(failed.milliseconds < 10_000, `${failed.milliseconds} ms`);
      assert.equal([...logOfGuest().matchAll(/is lost: .*does not know the session any more/g)].length, 1);
    });

    it(`waits for a worker that is frozen while its connection is cut: ${kind}`, async () => {
      const host = await start();
      const shell = await open(kind, host.address);
      const worker = await workerOf(host, shell.pid);
      process.kill(worker, 'SIGSTOP');
      await cut(shell.pid, 0).done;
      const asked = shell.ask('call', 40_000);
      await sleep(3000);
      process.kill(worker, 'SIGCONT');
      assert.deepEqual((await asked).values, ['1', '1']);
      assert.equal(sessionsBegun(host), 1);
    });

    it(`waits for a guest that is frozen while its connection is cut: ${kind}`, async () => {
      const host = await start();
      const shell = await open(kind, host.address);
      await counts(shell, 1);
      process.kill(shell.pid, 'SIGSTOP');
      await cut(shell.pid, 0).done;
      await host.logged(/the connection broke; waiting 30 s for its guest/);
      await sleep(1000);
      assert.equal(sessionsNow(host), 1);
      process.kill(shell.pid, 'SIGCONT');
      await counts(shell, 2);
    });
  }

  it('ends at once when its guest becomes another program, which keeps the process', async () => {
    const host = await start();
    const shell = await open('beside', host.address, { CASE: 'becomes_another' });
    const asked = shell.ask('go').catch(() => undefined);
    await until('its end', () => sessionsNow(host) === 0);
    assert.ok(shell.alive());
    shell.kill();
    await asked;
  });

  it('keeps its place while it waits, and gives it back when nobody comes', async () => {
    const host = await start('limits reconnect=10');
    const relay = await between();
    const first = await open('vm', relay.address);
    await counts(first, 1);
    await relay.shut();
    await host.logged(/the connection broke; waiting 10 s for its guest/);
    const second = await open('vm', host.address);
    await counts(second, 1);
    assert.equal((await second.end()) ?? -1, 0);
    await relay.open();
    await until('it to go on', () => continued() === 1);
    await counts(first, 2);
    const secret = readFileSync(memory.path).subarray(PLACES, PLACES + CONTROL + 2 * RING);
    assert.ok(secret.some((byte) => byte !== 0));
    await relay.shut();
    await host.logged(/its guest did not come back within 10 s/);
    await until('its end', () => sessionsNow(host) === 0);
    assert.equal((await first.ask('call', 40_000)).result, SYSTEM_NOT_READY);
    first.kill();
    const third = await open('vm', host.address);
    await counts(third, 1);
  });

  it('is not continued with a wrong secret, and a right one of the same user gets the doorbell alone', async () => {
    const host = await start();
    const client = await WireClient.open(`${scratch.path}/h`, 'ring');
    // Without a lock of the rings' memory it is a guest that has ended, as soon as its connection has.
    client.send(hello(1, { features: 0x8 | RESUME, received: 0n }));
    const welcome = await client.receive();
    const session = welcome?.body.readBigUInt64LE(32) ?? 0n;
    const secret = welcome?.body.readBigUInt64LE(40) ?? 0n;
    assert.notEqual(secret, 0n);
    const resume = async (join: bigint, joined: bigint, library = 1): Promise<number> => {
      const other = await WireClient.open(`${scratch.path}/h`, 'socket');
      other.send(hello(library, { features: RESUME, join, secret: joined, received: 0n }));
      const answer = await other.receive();
      other.close();
      return answer?.status ?? -1;
    };
    const mine = await open('beside', host.address);
    for (const [join, joined, library] of [
      [session, secret ^ 1n, 1],
      [session, 0n, 1],
      [session + 1n, secret, 1],
      [session, secret, 2],
      [10_000n, secret, 1],
    ] as const)
      assert.equal(await resume(join, joined, library), REFUSED);
    assert.equal((await client.call(2)).status, 0, 'its doorbell is still its own');
    await counts(mine, 1);
    assert.equal(await resume(session, secret), 0);
    assert.equal(await client.receive(), undefined, 'the newest connection counts');
    await until('its end: nobody maps its rings', () => sessionsNow(host) === 1);
    await counts(mine, 2);
    assert.ok(!host.log().includes(secret.toString()) && !host.log().includes(secret.toString(16)));
  });

  it('takes its session back from a stranger that replays its greeting', async () => {
    const host = await start();
    const relay = await startCuttingRelay(`${scratch.path}/r`, `${scratch.path}/h`, undefined, true);
    relays.push(relay);
    const shell = await open('vm', relay.address);
    await counts(shell, 1);
    relay.cut();
    await until('it to go on', () => continued() === 1);
    const replay = await WireClient.open(`${scratch.path}/h`, 'socket');
    replay.send(relay.sent()[1]?.subarray(0, 168) ?? Buffer.alloc(0));
    assert.equal((await replay.receive())?.status, 0);
    await counts(shell, 2);
    replay.close();
    await counts(shell, 3);
    assert.equal(sessionsBegun(host), 1);
  });

  /** Writes into the VM's memory at `offset`. */
  const scribble = (offset: number, bytes: Buffer): void => {
    const file = openSync(memory.path, 'r+');
    writeSync(file, bytes, 0, bytes.length, offset);
    closeSync(file);
  };
  const copyOf = (offset: number, size: number): Buffer => {
    const file = openSync(memory.path, 'r');
    const bytes = Buffer.alloc(size);
    readSync(file, bytes, 0, size, offset);
    closeSync(file);
    return bytes;
  };

  it('is not continued in memory that was put back to what it was earlier', async () => {
    const host = await start();
    const relay = await between();
    const shell = await open('vm', relay.address);
    await counts(shell, 1);
    const earlier = copyOf(PLACES, CONTROL + 2 * RING);
    await counts(shell, 2);
    await relay.shut();
    await host.logged(/the connection broke; waiting/);
    scribble(PLACES, earlier);
    await relay.open();
    await host.logged(/its rings were changed: the VM was restored/);
    assert.equal((await shell.ask('call', 40_000)).result, SYSTEM_NOT_READY);
    await until('its end', () => sessionsNow(host) === 0);
    assert.match(logOfGuest(), /is lost: /);
  });

  it('is not continued by a guest that sees another memory than its host', async () => {
    const host = await start();
    const relay = await between();
    const shell = await open('vm', relay.address);
    await counts(shell, 1);
    await relay.shut();
    await host.logged(/the connection broke; waiting/);
    // Between the host's answer and the guest that reads it the mark becomes another one.
    const server = createServer((guest) => {
      const upstream = connect(`${scratch.path}/h`);
      guest.on('data', (chunk: Buffer) => upstream.write(chunk));
      upstream.on('data', (chunk: Buffer) => {
        scribble(MARK, Buffer.alloc(8, 0x5a));
        guest.write(chunk);
      });
      for (const [one, other] of [
        [guest, upstream],
        [upstream, guest],
      ] as const) {
        one.on('error', () => undefined);
        one.on('close', () => other.destroy());
      }
    });
    await new Promise<void>((resolve) => server.listen(`${scratch.path}/r`, resolve));
    assert.equal((await shell.ask('call', 40_000)).result, SYSTEM_NOT_READY);
    assert.match(logOfGuest(), /is lost: .*the host has another state of the session/);
    assert.equal(continued(), 0);
    server.close();
    shell.kill();
    await until('its end', () => sessionsNow(host) === 0, 40_000);
  });

  const SCRIBBLES = LONG ? 200 : 12;
  it('survives or ends, and nobody else does, when its guest writes into the rings meanwhile', {
    timeout: 600_000,
  }, async () => {
    const host = await start();
    const random = noise(77);
    let lost = 0;
    for (let i = 0; i < SCRIBBLES; i++) {
      const relay = await between();
      const shell = await open('vm', relay.address);
      await counts(shell, 1);
      await relay.shut();
      await until('it to wait', () => [...host.log().matchAll(/; waiting 30 s/g)].length > i);
      for (let n = 0; n < 8; n++) {
        const what = Buffer.alloc(8);
        what.writeUInt32LE(random(), 0);
        if (n % 2 === 0) what.writeUInt32LE(random(), 4);
        // The words of both controls, or anywhere in the rings.
        const where = i % 2 === 0 ? ((random() >>> 8) % 8) * 128 : (random() >>> 4) % (2 * RING);
        scribble(PLACES + (i % 2 === 0 ? where : CONTROL + where), what);
      }
      await relay.open();
      const answer = await shell.ask('call', 60_000);
      if (answer.result !== 0) lost++;
      else assert.deepEqual(answer.values.slice(0, 1), ['2']);
      shell.kill();
      await relay.close();
      relays = relays.filter((one) => one !== relay);
      await until('its end', () => sessionsNow(host) === 0, 40_000);
      assert.ok(host.running());
    }
    assert.ok(lost > 0 && lost < SCRIBBLES, `${lost} of ${SCRIBBLES} lost`);
    const shell = await open('vm', host.address);
    await counts(shell, 1);
  });
});
