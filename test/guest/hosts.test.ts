// The hosts that misbehave, each as it is told to. A stand-in for the wire is enough here: what comes and when.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { consumerDesigns, whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { Hosts, whyNoHostd } from './support/hosts.js';
import { ended, until } from './support/process.js';
import { repository } from './support/repository.js';

interface Talk {
  readonly answer: Buffer;
  /** Milliseconds from the question to the answer's first byte; undefined when none came. */
  readonly waited: number | undefined;
  readonly end: 'closed' | 'silent' | 'refused';
}

/** Sends `question`, waits at most a minute for `bytes` bytes of an answer, then reads for `more` milliseconds. */
function talk(path: string, question: string, bytes: number, more = 300): Promise<Talk> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const start = Date.now();
    let waited: number | undefined;
    const client = connect(path);
    const finish = (end: Talk['end']): void => {
      clearTimeout(timer);
      client.destroy();
      resolve({ answer: Buffer.concat(chunks), waited, end });
    };
    let timer = setTimeout(() => finish('silent'), bytes === 0 ? more : 60_000);
    client.on('connect', () => client.write(question));
    client.on('data', (chunk) => {
      waited ??= Date.now() - start;
      chunks.push(chunk);
      if (Buffer.concat(chunks).length < bytes) return;
      clearTimeout(timer);
      timer = setTimeout(() => finish('silent'), more);
    });
    client.on('error', () => finish('refused'));
    client.on('close', () => finish('closed'));
  });
}

describe('a host that misbehaves', () => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-hosts-'));
  const hosts = new Hosts(directory);
  const upstream = join(directory, 'echo.sock');
  let echo: Server;
  before(async () => {
    echo = createServer((client) => {
      client.on('error', () => undefined);
      client.pipe(client);
    });
    await new Promise<void>((resolve) => echo.listen(upstream, resolve));
  });
  afterEach(() => hosts.stop());
  after(() => {
    echo.close();
    rmSync(directory, { recursive: true });
  });

  /** The fault program with the echo server behind it. */
  async function faulty(t: { after(fn: () => void): void }, ...args: string[]): Promise<string> {
    const socket = join(directory, 'fault.sock');
    const program = join(repository, 'dist/test/guest/support/fault-host.js');
    const child = spawn(process.execPath, [program, '--listen', socket, '--upstream', upstream, ...args]);
    const done = ended(child);
    let words = '';
    child.stdout.on('data', (chunk: Buffer) => {
      words += chunk.toString();
    });
    t.after(async () => {
      child.kill('SIGTERM');
      await done;
      rmSync(socket, { force: true });
    });
    await until('it listens', 60_000, () => (words.includes('listening') ? true : undefined));
    return socket;
  }

  test('absent: no socket at all', async () => {
    await hosts.startFaulty({ mode: 'absent' });
    assert.equal(existsSync(hosts.socket), false);
  });

  test('refused: a socket without a listener', async () => {
    await hosts.startFaulty({ mode: 'refused' });
    assert.equal(existsSync(hosts.socket), true);
    assert.equal((await talk(hosts.socket, 'hello', 1)).end, 'refused');
  });

  test('silent: takes the connection and says nothing', async () => {
    await hosts.startFaulty({ mode: 'silent' });
    const said = await talk(hosts.socket, 'hello', 0);
    assert.deepEqual([said.end, said.answer.length], ['silent', 0]);
  });

  test('garbage: answers with bytes that mean nothing, the same in every run', async () => {
    await hosts.startFaulty({ mode: 'garbage' });
    const one = await talk(hosts.socket, 'hello', 64);
    const two = await talk(hosts.socket, 'hello', 64);
    assert.ok(one.answer.length >= 64);
    assert.ok(new Set(one.answer).size > 20, 'no pattern');
    assert.deepEqual(one.answer, two.answer);
  });

  test('slow: the right answer, late', async (t) => {
    const said = await talk(await faulty(t, '--mode', 'slow', '--seconds', '0.4'), 'hello', 5);
    assert.equal(said.answer.toString(), 'hello');
    assert.ok((said.waited ?? 0) >= 390, `${said.waited} ms`);
  });

  test('dies: it ends in the middle of an answer, for every client', async (t) => {
    const socket = await faulty(t, '--mode', 'dies', '--bytes', '3');
    const said = await talk(socket, 'hello', 4);
    assert.deepEqual([said.end, said.answer.toString()], ['closed', 'hel']);
    assert.equal((await talk(socket, 'hello', 1)).end, 'refused');
  });

  test('stalls: silent in the middle of an answer, the connection stays', async (t) => {
    const said = await talk(await faulty(t, '--mode', 'stalls', '--bytes', '3'), 'hello', 3);
    assert.deepEqual([said.end, said.answer.toString()], ['silent', 'hel']);
  });
});

describe('the real host beside a guest', { skip: whyNoGuest() || whyNoHostd() }, () => {
  test('is reached from inside at /run/vgpu/hostd.sock, by any user, and gone when killed', async (t) => {
    const guest = await Guest.start({}, t);
    await guest.hosts.start();
    const probe =
      'import socket; s=socket.socket(socket.AF_UNIX); s.connect("/run/vgpu/hostd.sock"); print("connected")';
    const reached = await guest.runWith({ user: 'nobody' }, 'python3', '-c', probe);
    assert.equal(reached.stdout.trim(), 'connected', reached.stderr + guest.hosts.log);
    await guest.hosts.stop('SIGKILL');
    assert.match((await guest.run('python3', '-c', probe)).stderr, /ConnectionRefusedError/);
    await guest.hosts.start();
    assert.equal((await guest.run('python3', '-c', probe)).code, 0);
    await guest.hosts.stop();
    assert.equal(existsSync(guest.hosts.socket), false);
  });
});

describe('the shim, put into a guest by hand', {
  skip: whyNoGuest() || whyNoHostd() || whyNoConsumer(),
}, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    const shim = join(repository, 'build/shim');
    const libraries = '/usr/lib/x86_64-linux-gnu';
    await guest.must('cp', `${shim}/libcuda.so.1`, `${shim}/libnvidia-ml.so.1`, libraries);
    await guest.write('/etc/vgpu/guest.conf', 'host=unix:/run/vgpu/hostd.sock\n');
    await guest.must('ldconfig');
  });
  after(() => guest.stop());

  /** (Re)starts the consumer and gives its "inference compute" line and how long it took. */
  async function announcement(): Promise<{ line: string; ms: number }> {
    const start = Date.now();
    await guest.must('systemctl', 'restart', 'ollama');
    const invocation = await guest.invocationId('ollama');
    const line = await until('the announcement', 75_000, async () =>
      (await guest.journal('ollama', invocation))
        .map((entry) => entry.message)
        .find((message) => message.includes('msg="inference compute"')),
    );
    return { line, ms: Date.now() - start };
  }

  for (const design of consumerDesigns()) {
    test(`design ${design} finds the simulated GPU of the real host`, async () => {
      await guest.hosts.start();
      await guest.installConsumer(design, { start: false });
      const { line } = await announcement();
      assert.match(line, /library=cuda compute=9\.0|library=cuda variant=\S+ compute=9\.0/i, guest.hosts.log);
      assert.match(line, /\(simulated\)/);
    });
  }

  for (const fault of [
    { mode: 'absent' },
    { mode: 'refused' },
    { mode: 'silent' },
    { mode: 'garbage' },
    { mode: 'slow', seconds: 11 },
    { mode: 'dies', bytes: 100 },
    { mode: 'stalls', bytes: 100 },
  ] as const) {
    test(`a host that is ${fault.mode}: the consumer says cpu, in time, and lives`, async () => {
      await guest.hosts.startFaulty(fault);
      // design 2 asks once where design 3 asks six times, each until the shim gives up
      const design = consumerDesigns().find((known) => known !== 3) ?? 3;
      await guest.installConsumer(design === 1 ? 2 : design, { start: false });
      const { line, ms } = await announcement();
      assert.match(line, /library=cpu/);
      assert.ok(ms < 90_000, `${ms} ms`);
      assert.equal(await guest.property('ollama', 'ActiveState'), 'active');
    });
  }
});
