// vgpu-watch by itself: what it tells of a host that comes, goes, freezes or talks nonsense, over each transport.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { builtFile, type Host, scratchDirectory, startHost, until } from '../shim_host.js';
import { freePort } from '../support/free_port.js';

/** A long limit for a busy machine: the output does not depend on it. */
const patience = 60_000;
const port = await freePort();

class Watch {
  readonly child: ChildProcess;
  readonly lines: string[] = [];
  stderr = '';
  readonly #ended: Promise<number | null>;

  constructor() {
    this.child = spawn(builtFile('vgpu-watch'), [], { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#ended = new Promise((resolve) => this.child.once('close', (code) => resolve(code)));
    let rest = '';
    this.child.stdout?.on('data', (chunk: Buffer) => {
      const parts = `${rest}${chunk.toString()}`.split('\n');
      rest = parts.pop() ?? '';
      this.lines.push(...parts);
    });
    this.child.stderr?.on('data', (chunk: Buffer) => {
      this.stderr += chunk.toString();
    });
  }

  say(line: string): void {
    this.child.stdin?.write(`${line}\n`);
  }

  /** The next line that fits; what came before it is forgotten. With `ticks`, as the service's timer does. */
  async hears(pattern: RegExp, { ticks = false } = {}): Promise<string> {
    const timer = ticks ? setInterval(() => this.say('tick'), 200) : null;
    try {
      await until(
        `${pattern}, not ${this.lines.join(' | ')}`,
        () => this.lines.some((one) => pattern.test(one)),
        patience,
      );
    } finally {
      if (timer !== null) clearInterval(timer);
    }
    const at = this.lines.findIndex((one) => pattern.test(one));
    const line = this.lines[at] ?? '';
    this.lines.splice(0, at + 1);
    return line;
  }

  /** Closes its input and waits for it; the exit status. */
  end(): Promise<number | null> {
    this.child.stdin?.end();
    return this.#ended;
  }
}

/** The host and its workers. */
function signalAll(host: Host, signal: NodeJS.Signals): void {
  const workers = readFileSync(`/proc/${host.pid}/task/${host.pid}/children`, 'utf8').trim().split(' ');
  for (const pid of [host.pid, ...workers.filter((one) => one !== '').map(Number)]) process.kill(pid, signal);
}

for (const transport of ['unix', 'tcp'] as const) {
  describe(`vgpu-watch over ${transport}`, () => {
    let scratch: ReturnType<typeof scratchDirectory>;
    let address: string;
    let watch: Watch;
    let hosts: Host[];
    const start = async (): Promise<Host> => {
      const host = await startHost({ listen: address });
      hosts.push(host);
      return host;
    };
    beforeEach(() => {
      scratch = scratchDirectory();
      address = transport === 'unix' ? `unix:${scratch.path}/s` : `tcp:127.0.0.1:${port}`;
      watch = new Watch();
      hosts = [];
    });
    afterEach(async () => {
      for (const host of hosts) await host.stop();
      await watch.end();
      scratch.remove();
    });

    it('tells the device, that it is simulated, and how long an answer takes', async () => {
      await start();
      watch.say(`host ${address}`);
      assert.match(await watch.hears(/^host/), /^host up 1 .*\(simulated\)$/);
      watch.say('round-trip');
      assert.equal(await watch.hears(/^round-trip/), 'round-trip -1', 'not asked yet');
      watch.say('tick');
      watch.say('round-trip');
      assert.match(await watch.hears(/^round-trip/), /^round-trip \d+$/);
    });

    it('a killed host is reported at once, without a tick; its return is reported with ticks', async () => {
      const first = await start();
      watch.say(`host ${address}`);
      await watch.hears(/^host up/);
      first.signal('SIGKILL');
      assert.match(await watch.hears(/^host down/), /^host down it closed the connection$/);
      await start();
      await watch.hears(/^host up 1/, { ticks: true });
    });

    it('a frozen host is reported once, at a tick, and so is its return', async () => {
      const host = await start();
      watch.say(`host ${address}`);
      await watch.hears(/^host up/);
      signalAll(host, 'SIGSTOP');
      assert.match(await watch.hears(/^host/, { ticks: true }), /^host down no answer within the limit$/);
      signalAll(host, 'SIGCONT');
      assert.match(await watch.hears(/^host/, { ticks: true }), /^host up 1/, 'nothing was told twice');
    });

    it('without a listener it says so once, and finds one that starts later', async () => {
      watch.say(`host ${address}`);
      assert.match(await watch.hears(/^host/), /^host down cannot connect: \S/);
      for (let tick = 0; tick < 5; tick += 1) watch.say('tick');
      await start();
      assert.match(await watch.hears(/^host/, { ticks: true }), /^host up 1/);
    });

    it('`host` alone ends the output', async () => {
      const host = await start();
      watch.say(`host ${address}`);
      await watch.hears(/^host up/);
      watch.say('host');
      watch.say('tick');
      watch.say('round-trip');
      assert.equal(await watch.hears(/./), 'round-trip -1');
      await host.stop();
      watch.say('round-trip');
      assert.equal(await watch.hears(/./), 'round-trip -1');
    });

    for (const [what, bytes, said] of [
      [
        'nonsense',
        Buffer.from('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'.repeat(20)),
        /does not come from vgpu-hostd|closed/,
      ],
      ['nothing, and keeps the line', null, /^host down no answer within the limit$/],
    ] as const) {
      it(`who answers ${what} is no host`, async () => {
        const server: Server = createServer((socket) => {
          socket.on('error', () => undefined);
          socket.resume();
          if (bytes !== null) socket.write(bytes);
        });
        const place = transport === 'unix' ? { path: `${scratch.path}/s` } : { host: '127.0.0.1', port };
        await new Promise<void>((resolve) => server.listen(place, resolve));
        watch.say(`host ${address}`);
        assert.match(await watch.hears(/^host/), said);
        const closed = new Promise<void>((resolve) => server.close(() => resolve()));
        await watch.end();
        await closed;
      });
    }
  });
}

describe('vgpu-watch', () => {
  it('run by hand, where no program gives it commands, says that and ends with status 2', () => {
    const ran = spawnSync(builtFile('vgpu-watch'), { stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8' });
    assert.equal(ran.status, 2);
    assert.match(ran.stderr, /^vgpu-watch: standard input is not a pipe\nusage: vgpu-watch /);
  });

  it("passes the command's standard error on, without V8's line about --jitless", () => {
    const script = "for (let i = 0; i < 9000; i++) console.error('line', i); process.exitCode = 7";
    const command = ['--', process.execPath, '--jitless', '-e', script];
    const ran = spawnSync(builtFile('vgpu-watch'), command, { encoding: 'utf8' });
    assert.equal(ran.status, 7, ran.stderr.slice(0, 300));
    const lines = ran.stderr.trimEnd().split('\n');
    assert.deepEqual([lines[0], lines.at(-1), lines.length], ['line 0', 'line 8999', 9000]);
  });

  it('refuses an invalid address, and continues with a valid one', async () => {
    const scratch = scratchDirectory();
    const host = await startHost({ listen: `unix:${scratch.path}/s` });
    const watch = new Watch();
    watch.say('host nowhere');
    assert.match(
      await watch.hears(/^host/),
      /^host down the address is not unix:PATH, vsock:CID:PORT or tcp/,
    );
    watch.say(`host ${'x'.repeat(5000)}`);
    watch.say('dance');
    watch.say(`host unix:${scratch.path}/s`);
    await watch.hears(/^host up/);
    assert.equal(await watch.end(), 0);
    assert.match(watch.stderr, /unknown command "dance"/);
    await host.stop();
    scratch.remove();
  });

  it('an unreachable vsock address is reported with the reason, and ticks do not change that', async () => {
    const watch = new Watch();
    watch.say('host vsock:2:1');
    assert.match(await watch.hears(/^host/), /^host down cannot connect: \S/);
    watch.say('tick');
    watch.say('round-trip');
    assert.equal(await watch.hears(/^round-trip/), 'round-trip -1');
    assert.equal(await watch.end(), 0);
  });
});

it('of a list vgpu-watch tells the number of the host, and one that is silent leaves time for the others', async (t) => {
  const scratch = scratchDirectory();
  const silent = createServer((socket) => socket.on('error', () => undefined).resume());
  silent.listen(`${scratch.path}/silent`);
  const watch = new Watch();
  const second = await startHost({ listen: `unix:${scratch.path}/second` });
  t.after(async () => {
    await watch.end();
    await second.stop();
    silent.close();
    scratch.remove();
  });
  const list = ['silent', 'second', 'third'].map((name) => `unix:${scratch.path}/${name}`);
  watch.say(`host ${list.join()}`);
  assert.equal(await watch.hears(/^host/), 'host 1 down no answer within the limit');
  assert.match(await watch.hears(/^host/), /^host 2 up 1 .*\(simulated\)$/);
  assert.match(await watch.hears(/^host/), /^host 3 down cannot connect: /);
  const third = await startHost({ listen: `unix:${scratch.path}/third` });
  t.after(() => third.stop());
  assert.match(await watch.hears(/^host/), /^host 3 up 1 /, 'without a tick: its socket has appeared');
  second.signal('SIGKILL');
  assert.equal(await watch.hears(/^host/), 'host 2 down it closed the connection');
  watch.say('tick');
  watch.say('round-trip 3');
  assert.match(await watch.hears(/^round-trip/), /^round-trip \d+$/);
  watch.say('round-trip');
  assert.equal(await watch.hears(/^round-trip/), 'round-trip -1', 'the first does not answer');
  watch.say(`host unix:${scratch.path}/third`);
  assert.match(await watch.hears(/^host/), /^host up 1 /, 'one host has no number');
});
