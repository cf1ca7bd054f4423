import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import {
  askAll,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  sleep,
  startHost,
  startShell,
  until,
} from '../shim_host.js';

const NO_DEVICE = 100;
const NOT_INITIALIZED = 3;
const SYSTEM_NOT_READY = 802;
/** Connect and first answer may take 2 s; the rest is the process itself on a busy machine. */
const FIRST_LIMIT = 14_000;

describe('a host that is not there', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let shells: Shell[] = [];
  let hosts: Host[] = [];
  let servers: { readonly server: Server; readonly sockets: Set<Socket> }[] = [];

  const open = (address: string, env: Readonly<Record<string, string>> = {}): Shell => {
    const shell = startShell({ VGPU_HOST: address, ...env });
    shells.push(shell);
    return shell;
  };
  const start = async (args: readonly string[] = []): Promise<Host> => {
    const host = await startHost({ listen: `unix:${scratch.path}/s`, args });
    hosts.push(host);
    return host;
  };
  /** A host whose connections are served by `serve`. */
  const pretend = async (serve: (socket: Socket) => void): Promise<string> => {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => undefined);
      serve(socket);
    });
    await new Promise<void>((resolve) => server.listen(`${scratch.path}/p`, resolve));
    servers.push({ server, sockets });
    return `unix:${scratch.path}/p`;
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const host of hosts) await host.stop();
    for (const { server, sockets } of servers) {
      for (const socket of sockets) socket.destroy();
      server.close();
    }
    shells = [];
    hosts = [];
    servers = [];
    scratch.remove();
  });

  for (const [what, address] of [
    ['nothing at the path', 'unix:/nonexistent/vgpu.sock'],
    ['nothing at the port', 'tcp:127.0.0.1:1'],
    ['no such vsock peer', 'vsock:99999:14833'],
    ['an address that is none', 'http://example'],
    ['a host name, which would need a resolver', 'tcp:localhost:14833'],
  ] as const) {
    it(`is CUDA_ERROR_NO_DEVICE at once: ${what}`, async () => {
      const shell = open(address);
      const answer = await shell.ask('init');
      assert.equal(answer.result, NO_DEVICE);
      assert.ok(answer.milliseconds < FIRST_LIMIT, `${answer.milliseconds} ms`);
      assert.equal((await shell.ask('count')).result, NOT_INITIALIZED);
      assert.equal((await shell.ask('version')).values[0], '13050');
      assert.equal(await shell.end(), 0);
      assert.equal(shell.stderr(), '', 'nothing on stderr');
    });
  }

  it('says on VGPU_LOG why, and only there', async () => {
    const file = `${scratch.path}/log`;
    const shell = open('unix:/nonexistent/vgpu.sock', { VGPU_LOG: file });
    await shell.ask('init');
    assert.equal(shell.stderr(), '');
    assert.match(readFileSync(file, 'utf8'), /cannot connect to unix:\/nonexistent\/vgpu\.sock/);
    const loud = open('unix:/nonexistent/vgpu.sock', { VGPU_LOG: 'stderr' });
    await loud.ask('init');
    await until('the log', () => loud.stderr().includes('cannot connect to unix:/nonexistent/vgpu.sock'));
  });

  it('frozen before it answers: NO_DEVICE within the limit, for 64 threads too', async () => {
    const host = await start();
    host.signal('SIGSTOP');
    const shell = open(host.address);
    const answer = await shell.ask('initmany 64');
    assert.deepEqual([answer.result, ...answer.values], [NO_DEVICE, '64']);
    assert.ok(answer.milliseconds < FIRST_LIMIT, `${answer.milliseconds} ms`);
    host.signal('SIGCONT');
    await sleep(2100);
    assert.equal((await shell.ask('init')).result, 0, 'back again: the same process may try again');
  });

  it('frozen in the middle of a session: an error within the limit of a call, and the process lives', async () => {
    const host = await start();
    const shell = open(host.address);
    await askAll(shell, ['init', 'ctx 0', 'info']);
    const worker = Number((await host.logged(/worker (\d+)/))[1]);
    process.kill(worker, 'SIGSTOP');
    const answer = await shell.ask('info', 60_000);
    assert.equal(answer.result, SYSTEM_NOT_READY);
    assert.ok(answer.milliseconds > 5000 && answer.milliseconds < 40_000, `${answer.milliseconds} ms`);
    const again = await shell.ask('info');
    assert.equal(again.result, SYSTEM_NOT_READY);
    assert.ok(again.milliseconds < 5000, 'lost once is lost at once');
    process.kill(worker, 'SIGCONT');
    assert.equal(await shell.end(), 0);
  });

  it('frozen behind a kernel, or behind fills, is found like any other', async () => {
    const host = await start(['--software-kernels', 'skip']);
    const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
    shells.push(shell);
    const module = `${scratch.path}/empty.ptx`;
    writeFileSync(
      module,
      '.version 7.0\n.target sm_50\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n',
    );
    // The first launch of a kernel waits until the host has loaded it.
    const launch = 'launch 1 1 1 1 1 1 1 0 -';
    await askAll(shell, ['begin', `load 0 ${module}`, 'function 1 0 empty', launch, 'sync']);
    const filling = open(host.address);
    const [address = ''] = (await askAll(filling, ['init', 'ctx 0', 'alloc 8192'])).values;
    await until('both sessions in the log', () => sessionsNow(host) === 2);
    const workers = [...host.log().matchAll(/, worker (\d+)$/gm)].map((found) => Number(found[1]));
    assert.equal(workers.length, 2);
    for (const worker of workers) process.kill(worker, 'SIGSTOP');
    await askAll(shell, [launch]);
    await askAll(filling, [`set8 ${address} 1 8192`]);
    const answers = [shell.ask('sync', 60_000), filling.ask('sync', 60_000)];
    for (const { result, milliseconds } of await Promise.all(answers)) {
      assert.equal(result, SYSTEM_NOT_READY);
      assert.ok(milliseconds < 40_000, `${milliseconds} ms`);
    }
    for (const worker of workers) process.kill(worker, 'SIGKILL');
  });

  it('killed in the middle of a session: an error at once; after a new host a new cuInit works', async () => {
    const host = await start();
    const shell = open(host.address);
    const address = (await askAll(shell, ['init', 'ctx 0', 'alloc 4096'])).values[0] ?? '';
    host.signal('SIGKILL');
    await until('the host to end', () => !host.running());
    for (const line of ['info', `trip ${address} 64 1`, `free ${address}`, 'alloc 64', 'sync', 'ctx 0']) {
      const answer = await shell.ask(line);
      assert.equal(answer.result, SYSTEM_NOT_READY, line);
      assert.ok(answer.milliseconds < 9000, line);
    }
    assert.equal((await shell.ask('init')).result, NO_DEVICE);
    await start();
    await sleep(2100);
    await askAll(shell, ['init', 'ctx 0', 'alloc 4096']);
    assert.equal((await shell.ask('use 3')).result, 0);
    assert.equal(await shell.end(), 0);
    assert.equal(shell.stderr(), '');
  });

  it('killed while 64 threads use it: each gets an error and the process lives', async () => {
    const host = await start();
    const shell = open(host.address);
    await askAll(shell, ['init']);
    const running = shell.ask('threads 64 100000', 30_000);
    await sleep(300);
    const began = performance.now();
    host.signal('SIGKILL');
    const answer = await running;
    assert.deepEqual([answer.result, ...answer.values], [SYSTEM_NOT_READY, '64']);
    assert.ok(performance.now() - began < 20_000);
    assert.equal(await shell.end(), 0);
  });

  it('does not keep a process alive or take it along when the worker is killed', async () => {
    const host = await start();
    const shell = open(host.address);
    const other = open(host.address);
    await askAll(shell, ['init', 'ctx 0', 'alloc 1000000']);
    const worker = Number((await host.logged(/worker (\d+)/))[1]);
    await askAll(other, ['init', 'ctx 0', 'alloc 4096']);
    process.kill(worker, 'SIGKILL');
    await until('the worker to be buried', () =>
      /session 1: ended: worker killed by signal/.test(host.log()),
    );
    assert.equal((await shell.ask('info')).result, SYSTEM_NOT_READY);
    const info = await other.ask('info');
    assert.equal(info.result, 0, "another's session goes on");
    assert.equal(Number(info.values[1]) - Number(info.values[0]), 4096, 'what the dead one held is free');
  });

  const nonsense: readonly (readonly [string, (socket: Socket) => void])[] = [
    [
      'speaks another protocol',
      (socket) => socket.write(`HTTP/1.1 400 Bad Request\r\n\r\n${'x'.repeat(300)}`),
    ],
    ['sends zeros', (socket) => socket.write(Buffer.alloc(4096))],
    ['sends ones', (socket) => socket.write(Buffer.alloc(4096, 0xff))],
    ['hangs up at once', (socket) => socket.destroy()],
    ['says nothing', () => undefined],
    [
      'drips a byte at a time',
      (socket) => {
        const timer = setInterval(() => socket.write(Buffer.from([40])), 100);
        socket.on('close', () => clearInterval(timer));
      },
    ],
    [
      'sends back what it gets',
      (socket) => {
        socket.on('data', (chunk: Buffer) => socket.write(chunk));
      },
    ],
  ];
  for (const [what, serve] of nonsense) {
    it(`is none when something listens that ${what}`, async () => {
      const shell = open(await pretend(serve));
      const answer = await shell.ask('init');
      assert.equal(answer.result, NO_DEVICE);
      assert.ok(answer.milliseconds < FIRST_LIMIT, `${answer.milliseconds} ms`);
      assert.equal(await shell.end(), 0);
      assert.equal(shell.stderr(), '');
    });
  }

  it('that sends invalid data after the welcome loses the session, not the process', async () => {
    const random = [0x00, 0xff, 0x28, 0x55];
    for (const byte of random) {
      let passed = 0;
      const address = await pretend((socket) => {
        socket.on('data', () => {
          // A true welcome first: 40 bytes of header, 160 of body.
          if (passed++ === 0) {
            const welcome = Buffer.alloc(200);
            welcome.writeUInt32LE(200, 0);
            welcome.writeUInt32LE(1, 4);
            welcome.writeUInt32LE(1, 8);
            welcome.writeUInt32LE(160, 16);
            welcome.write('VGPUWIRE', 40, 'latin1');
            welcome.writeUInt16LE(1, 48);
            welcome.writeUInt32LE(1, 60);
            welcome.writeInt32LE(13000, 64);
            socket.write(welcome);
          } else {
            socket.write(Buffer.alloc(2048, byte));
          }
        });
      });
      const shell = open(address);
      const answer = await shell.ask('init');
      assert.equal(answer.result, NO_DEVICE, `byte ${byte}`);
      assert.equal(await shell.end(), 0);
      for (const { server, sockets } of servers.splice(0)) {
        for (const socket of sockets) socket.destroy();
        await new Promise((resolve) => server.close(resolve));
      }
    }
  });
});
