/** Several hosts: the first that answers is used, within the limit of one; each that is tried in vain is named. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type HostWord, type ProbeReport, parseProbeReport } from '../../../agent/contracts/probe.js';
import { runProgram } from '../cuda/private_programs.js';
import {
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsBegun,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { type CuttingRelay, startCuttingRelay } from '../wire/cutting_relay.js';

const [port, relayPort, closedPort] = [await freePort(), await freePort(), await freePort()];
const closed = `tcp:127.0.0.1:${closedPort}`;

describe('a list of hosts', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let servers: Server[] = [];
  let taken: Socket[] = [];
  let shells: Shell[] = [];
  let relays: CuttingRelay[] = [];
  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const relay of relays) await relay.close();
    for (const host of hosts) await host.stop();
    for (const one of taken) one.destroy();
    for (const server of servers) await new Promise((resolve) => server.close(resolve));
    [hosts, servers, taken, shells, relays] = [[], [], [], [], []];
    scratch.remove();
  });

  const at = (name: string): string => `unix:${path.join(scratch.path, name)}`;
  const start = async (listen: string, program?: string): Promise<Host> => {
    const host = await startHost({ listen, args: [], ...(program === undefined ? {} : { program }) });
    hosts.push(host);
    return host;
  };
  /** A program that accepts connections and does not answer. */
  const silent = async (name: string): Promise<string> => {
    const server = createServer((socket) => taken.push(socket.on('error', () => undefined).resume()));
    server.listen(path.join(scratch.path, name));
    servers.push(server);
    await once(server, 'listening');
    return at(name);
  };
  const probe = async (list: string, more = {}): Promise<ProbeReport & { readonly ms: number }> => {
    const begun = performance.now();
    const args = ['--library', builtFile('libcuda.so.1'), '--timeout', '30'];
    const ended = await runProgram(builtFile('vgpu-probe'), args, {
      env: { VGPU_HOST: list, ...more },
      limit: 60_000,
    });
    const report = parseProbeReport(ended.stdout);
    if ('problem' in report) return assert.fail(report.problem);
    return { ...report, ms: performance.now() - begun };
  };
  const word = async (list: string): Promise<HostWord> => {
    const { host } = await probe(list);
    assert.ok(host !== null);
    return host;
  };

  it('the first that answers is used, in the order of the list, whatever separates them', async () => {
    const [first, second] = [await start(at('a, b c')), await start(`tcp:[::1]:${port}`)];
    for (const [separator, used] of [
      [',', at('a, b c')],
      ['  ', at('a, b c')],
      [' ,\t', at('a, b c')],
    ] as const)
      assert.equal((await word(`${at('a, b c')}${separator}tcp:[::1]:${port}`)).address, used);
    assert.equal((await word(`tcp:[::1]:${port}, ${at('a, b c')}`)).address, `tcp:[::1]:${port}`);
    await until('a session at each', () => sessionsBegun(first) > 0 && sessionsBegun(second) > 0);
  });

  for (const [what, make] of [
    ['is not there', async () => at('none')],
    ['refuses', async () => closed],
    ['is silent', () => silent('silent')],
    ['has an address that is not valid', async () => 'tcp:host:1'],
    [
      'speaks another version',
      async () => {
        await start(at('old'), path.join(SHIM, 'programs', 'vgpu-hostd-wire-0'));
        return at('old');
      },
    ],
  ] as const) {
    it(`the second is used where the first ${what}`, async () => {
      await start(at('second'));
      const { ok, host, error } = await probe(`${await make()},${at('second')}`);
      assert.deepEqual([ok, error, host?.code, host?.address], [true, null, 'ok', at('second')]);
      assert.deepEqual([host?.errno, host?.status, host?.guestWire === host?.hostWire], [null, null, true]);
    });
  }

  it('reports each address with its reason, and the code of the host that got furthest, when none answers', async () => {
    await start(at('old'), path.join(SHIM, 'programs', 'vgpu-hostd-wire-0'));
    const { code, message, hostWire, address } = await word(
      `${at('none')},${at('old')},${closed},tcp:host:1`,
    );
    assert.deepEqual([code, hostWire, address], ['version', 0, undefined]);
    const parts = message.split('; ');
    assert.equal(parts.length, 4, message);
    assert.match(parts[0] ?? '', /^cannot connect to unix:.*\/none: No such file or directory$/);
    assert.match(parts[1] ?? '', /^unix:.*\/old: it speaks wire version 0\.0/);
    assert.equal(parts[2], `cannot connect to ${closed}: Connection refused`);
    assert.match(parts[3] ?? '', /^"tcp:host:1" is not unix:PATH/);
  });

  it('VGPU_LOG has one line of the hosts that were tried in vain, and "no host" only if none answers', async () => {
    await start(at('second'));
    const log = path.join(scratch.path, 'log');
    /** libcuda and libnvidia-ml of vgpu-probe write the same line. */
    const linesOf = async (list: string): Promise<string[]> => {
      writeFileSync(log, '');
      await probe(list, { VGPU_LOG: log });
      const lines = readFileSync(log, 'utf8').split('\n');
      return [...new Set(lines.filter((line) => line.includes('cannot connect to')))];
    };
    const [used = '', ...more] = await linesOf(`${at('none')},${closed},${at('second')}`);
    assert.match(
      used,
      /: connected to unix:.*\/second; hosts tried before: cannot connect to unix:.*\/none: .*; cannot connect to tcp:/,
    );
    assert.deepEqual(more, []);
    for (const list of [`${at('none')},${closed}`, closed]) {
      const none = await linesOf(list);
      assert.equal(none.length, 1, none.join('\n'));
      assert.match(none[0] ?? '', /: no host: cannot connect to .*Connection refused$/);
    }
  });

  it('eight silent hosts take no longer than one', async () => {
    const all = await Promise.all(Array.from({ length: 8 }, (_, index) => silent(`s${index}`)));
    const one = await probe(all[0] ?? '');
    const eight = await probe(all.join());
    assert.equal(eight.host?.code, 'timeout');
    assert.equal(eight.host?.message.split('; ').length, 8, 'each was tried');
    assert.ok(eight.ms < 2 * one.ms, `${eight.ms} ms, one takes ${one.ms} ms`);
  });

  it('more than eight hosts are refused as a whole', async () => {
    await start(at('a'));
    const { code, message } = await word([...Array.from({ length: 8 }, () => closed), at('a')].join());
    assert.equal(code, 'bad-address');
    assert.match(message, /more than 8 hosts/);
  });

  it('a session whose connection breaks continues at its own host when an earlier one is back', async () => {
    const second = await start(`tcp:127.0.0.1:${port}`);
    const relay = await startCuttingRelay(relayPort, port);
    relays.push(relay);
    const list = `${at('first')},${relay.address}`;
    const env = { VGPU_HOST: list, VGPU_TRANSPORT: 'socket', CASE: 'by_line' };
    const shell = startShell(env, 'reconnecting');
    shells.push(shell);
    await until('the program to begin', () => shell.extra().includes('there 0'), 20_000);
    const calls = async (times: number): Promise<void> => {
      const { result, values } = await shell.ask('call', 40_000);
      assert.deepEqual([result, ...values], [0, String(times), String(times)]);
    };
    await calls(1);
    const first = await start(at('first'));
    relay.cut();
    await calls(2);
    assert.equal(relay.cuts(), 1);
    await until('the session in the log', () => sessionsBegun(second) > 0);
    assert.deepEqual([sessionsBegun(first), sessionsBegun(second), sessionsNow(second)], [0, 1, 1]);
  });

  it('vgpu-probe --sessions answers from the host at which the guest uses a device', async () => {
    await start(at('first'));
    await start(at('second'));
    const ask = async (): Promise<unknown> => {
      const args = ['--sessions', '--host', `${at('none')},${at('first')},${at('second')}`];
      const { stdout } = await runProgram(builtFile('vgpu-probe'), args, { env: {}, limit: 20_000 });
      const { ok, address, sessions } = JSON.parse(stdout);
      return { ok, address, sessions: sessions.length };
    };
    assert.deepEqual(await ask(), { ok: true, address: at('first'), sessions: 0 });
    const shell = startShell({ VGPU_HOST: at('second'), CASE: 'by_line' }, 'reconnecting');
    shells.push(shell);
    await until('the program to begin', () => shell.extra().includes('there 0'), 20_000);
    await shell.ask('call', 40_000);
    assert.deepEqual(await ask(), { ok: true, address: at('second'), sessions: 1 });
  });
});
