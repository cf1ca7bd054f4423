/** Many guests at once: hostile ones over every transport beside honest ones, and limits that all run into together. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { afterEach, describe, it } from 'node:test';
import {
  askAll,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import {
  CUDA,
  frame,
  noise,
  ONEWAY,
  type Over,
  POKE,
  SHARED_REGION,
  WireClient,
  words,
} from '../wire/wire_client.js';

const MIB = 1 << 20;
const LIMIT = 120_000;
const PORT = await freePort();

interface Way {
  readonly name: string;
  readonly over: Over;
  /** For WireClient. */
  readonly path: string;
  /** For the library. */
  readonly env: Readonly<Record<string, string>>;
}

/** Frames that are sound, with random contents; now and then one that is not. */
function nonsense(random: () => number, sequence: bigint): Buffer {
  const body = Buffer.alloc((random() % 6) * 8);
  for (let at = 0; at < body.length; at += 4) {
    body.writeUInt32LE(random() % 2 === 0 ? random() : random() % 300, at);
  }
  const flags = [0, ONEWAY, SHARED_REGION, ONEWAY | SHARED_REGION][random() % 4] ?? 0;
  const opcode = random() % 5 === 0 ? random() % 16 : CUDA | (random() % 900);
  const bytes = frame({ opcode, flags, sequence, body, bulk: Buffer.alloc(random() % 100, random() & 0xff) });
  if (random() % 40 === 0) bytes[random() % bytes.length] = random() & 0xff;
  return bytes;
}

/** One session of a hostile guest, from its greeting to its end. */
async function misbehave(way: Way, random: () => number): Promise<void> {
  const client = await WireClient.greeted(way.path, 1, way.over);
  for (let i = 1n; i < 20n; i++) {
    client.send(nonsense(random, i));
    if (way.over !== 'ring' || random() % 8 !== 0) continue;
    const what = [POKE.tail, POKE.head, POKE.sleeps, POKE.bell, POKE.pass, POKE.flicker][random() % 6] ?? 1;
    if (what === POKE.flicker) {
      const one = nonsense(random, i + 1n);
      client.poke(what, Buffer.concat([one, Buffer.alloc(one.length, random() & 0xff)]));
    } else {
      client.poke(what, words(BigInt(random() % 4096) * 8n));
    }
  }
  // It does not wait for its answers, and leaves in the middle of a frame.
  client.send(nonsense(random, 20n).subarray(0, 24));
  await new Promise((resolve) => setTimeout(resolve, random() % 20));
  client.close();
}

describe('many guests at once', () => {
  const scratch = scratchDirectory();
  const socket = `${scratch.path}/s`;
  const shells: Shell[] = [];
  let host: Host | undefined;

  afterEach(async () => {
    for (const shell of shells.splice(0)) shell.kill();
    const status = await host?.stop();
    host = undefined;
    assert.equal(status, 0);
  });

  const ways: readonly Way[] = [
    { name: 'ring', over: 'ring', path: socket, env: {} },
    { name: 'socket', over: 'socket', path: socket, env: { VGPU_TRANSPORT: 'socket' } },
    { name: 'tcp', over: 'socket', path: `tcp:${PORT}`, env: { VGPU_HOST: `tcp:127.0.0.1:${PORT}` } },
  ];
  const open = (env: Readonly<Record<string, string>>): Shell => {
    const shell = startShell({ VGPU_HOST: `unix:${socket}`, ...env });
    shells.push(shell);
    return shell;
  };

  it('an evil one over each transport changes no result of the others', async () => {
    const running = await startHost({
      listen: `unix:${socket}`,
      args: ['--listen', `tcp:127.0.0.1:${PORT}`, '--session-memory', String(256 * MIB)],
    });
    host = running;
    const honest = ways.flatMap((way) => [open(way.env), open(way.env)]);
    let working = honest.length;
    const results = honest.map(async (shell) => {
      try {
        await askAll(shell, ['init']);
        // Each writes, reads back and compares in eight threads.
        return (await shell.ask('threads 8 40', LIMIT)).values.join();
      } finally {
        working--;
      }
    });
    const attacks = ways.map(async (way, index) => {
      const random = noise(index + 1);
      let rounds = 0;
      while (working > 0 || rounds < 10) {
        await misbehave(way, random);
        rounds++;
      }
      return rounds;
    });
    assert.deepEqual(
      await Promise.all(results),
      honest.map(() => '0'),
    );
    for (const rounds of await Promise.all(attacks)) assert.ok(rounds >= 10);
    for (const shell of shells.splice(0)) assert.equal(await shell.end(), 0);
    await until('all sessions to end', () => sessionsNow(running) === 0, LIMIT);
    await running.logged(/violation: the guest sent/); // they were evil
    assert.doesNotMatch(running.log(), /killed by signal|Sanitizer|runtime error/);
    const last = open({});
    await askAll(last, ['init', 'ctx 0']);
    const [free, total] = (await last.ask('info')).values;
    assert.equal(free, total, 'nothing is held for the dead');
  });

  it('that run into the same limits together get exactly what hostd.conf allows', async () => {
    writeFileSync(`${scratch.path}/c`, 'allow unix sessions=6 memory=256M\n');
    const running = await startHost({ listen: `unix:${socket}`, args: ['--config', `${scratch.path}/c`] });
    host = running;
    const all = Array.from({ length: 16 }, (_, i) => open(i % 2 === 0 ? {} : { VGPU_TRANSPORT: 'socket' }));
    const begun = await Promise.all(all.map((shell) => shell.ask('init', LIMIT)));
    const served = all.filter((_, i) => begun[i]?.result === 0);
    assert.deepEqual([served.length, new Set(begun.map(({ result }) => result))], [6, new Set([0, 100])]);
    const taken = await Promise.all(
      served.map(async (shell) => {
        await askAll(shell, ['ctx 0']);
        let blocks = 0;
        for (;;) {
          const { result } = await shell.ask(`alloc ${4 * MIB}`, LIMIT);
          if (result === 2) return blocks;
          assert.equal(result, 0);
          blocks++;
        }
      }),
    );
    assert.equal(
      taken.reduce((sum, blocks) => sum + blocks, 0),
      64,
      `together 256 MiB: ${taken.join()}`,
    );
    for (const shell of shells.splice(0)) shell.kill();
    await until('all sessions to end', () => sessionsNow(running) === 0, LIMIT);
    const next = open({});
    await askAll(next, ['init', 'ctx 0', `alloc ${256 * MIB}`]);
  });
});
