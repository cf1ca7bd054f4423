/**
 * The end of the daemon: busy sessions, a worker that does not react and guests that knock without end do not put
 * it off. vgpu-hostd.service gives it five seconds; a calm machine needs one, for the worker that does not react. The
 * limit here is for a crowded machine: a daemon that waits for its guests would wait forever.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import net from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { askAll, builtFile, type Host, SHIM, sessionsNow, until } from '../shim_host.js';
import { inEachTest } from './each_test.js';

const LIMIT = 30_000;

describe('vgpu-hostd ends on SIGTERM', () => {
  let host: Host;
  let busy: ChildProcess[] = [];
  let knocking = false;
  const sockets = new Set<net.Socket>();

  /** A connection that says nothing, and another one as soon as it is closed. */
  const knock = (): void => {
    if (!knocking) return;
    const socket = net.connect(at('s'));
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      sockets.delete(socket);
      setTimeout(knock, 1);
    });
  };

  // Before the hooks of inEachTest: it stops the host, which a test that fails may have left too busy to stop.
  afterEach(() => {
    knocking = false;
    for (const socket of sockets) socket.destroy();
    for (const child of busy) child.kill('SIGKILL');
    busy = [];
    host.signal('SIGKILL');
  });
  const { at, start, open } = inEachTest();
  beforeEach(async () => {
    host = await start(['--sessions', '64']);
  });

  const workers = (): string[] =>
    [...host.log().matchAll(/worker (\d+)$/gm)].flatMap(([, pid]) => (pid === undefined ? [] : [pid]));

  it('with sessions that rest, that compute without an end, one that is frozen and a flood of connections', async () => {
    for (let i = 0; i < 16; i++) {
      await askAll(open(host), ['use 1']);
    }
    for (let i = 0; i < 4; i++) {
      const child = spawn(builtFile('programs/stranger'), ['endless'], {
        env: { ...process.env, VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      busy.push(child);
      await once(child.stdout as NodeJS.ReadableStream, 'data');
    }
    await until('all sessions in the log', () => sessionsNow(host) === 20);
    const all = workers();
    assert.equal(all.length, 20);
    process.kill(Number(all[0]), 'SIGSTOP');
    knocking = true;
    for (let i = 0; i < 200; i++) knock();
    await until('the flood to be at its height', () => sockets.size >= 100);

    const began = performance.now();
    host.signal('SIGTERM');
    await until('the daemon to end', () => !host.running(), LIMIT);
    assert.equal(await host.stop(), 0);
    assert.ok(performance.now() - began < LIMIT);
    await until('its workers to be gone', () => all.every((pid) => !existsSync(`/proc/${pid}`)), LIMIT);
  });
});
