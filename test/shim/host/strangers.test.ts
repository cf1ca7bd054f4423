/** Guests that take as much as they can, beside an honest one, on a host with its default settings. */

import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsNow,
  sleep,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { hello, op, WireClient, words } from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const MIB = 1 << 20;

/** A kernel that prints a line as often as its parameter says. */
const PRINTING = `.version 7.0
.target sm_50
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[6] = {108, 105, 110, 101, 10, 0};
.visible .entry k(.param .u32 p) {
 .reg .u64 %d<3>; .reg .u32 %r<3>; .reg .pred %q;
 ld.param.u32 %r1, [p];
L: mov.u64 %d1, text; cvta.global.u64 %d2, %d1;
 { .param .b64 a; st.param.b64 [a], %d2; .param .b64 b; st.param.b64 [b], 0; .param .b32 r;
  call.uni (r), vprintf, (a, b); }
 sub.u32 %r1, %r1, 1; setp.ne.u32 %q, %r1, 0; @%q bra L; ret; }
`;
const PORT = await freePort();
/** The first processor that this process may use. */
const [PROCESSOR = '0'] =
  /(?<=Cpus_allowed_list:\s*)\d+/u.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];

/** Processor time of each worker, by its pid: what else the machine does slows down its work, and not this. */
function ticksOfWorkers(host: Host): Map<string, number> {
  const stats = readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/u.test(pid)) return [];
    try {
      const [, rest = ''] = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ');
      const fields = rest.split(' ');
      return Number(fields[1]) === host.pid ? [[pid, Number(fields[11])] as const] : [];
    } catch {
      return []; // it has ended meanwhile
    }
  });
  return new Map(stats);
}

describe('a stranger among guests', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let children: ChildProcessByStdio<null, Readable, null>[] = [];
  const start = async (args: readonly string[] = []): Promise<Host> => {
    const host = await startHost({ listen: `unix:${scratch.path}/s`, args });
    hosts.push(host);
    return host;
  };
  const env = (): Record<string, string> => ({
    VGPU_HOST: `unix:${scratch.path}/s`,
    LD_LIBRARY_PATH: SHIM,
  });
  /** The output of the program, word by word. */
  const run = async (...words: string[]): Promise<string[]> => {
    const ended = await runProgram(builtFile('programs/stranger'), words, { env: env(), limit: 60_000 });
    assert.equal(ended.code, 0, `${words.join(' ')}: ${ended.stdout}${ended.stderr}`);
    return ended.stdout.trim().split(/\s+/);
  };
  /** One that goes on until it is killed, once its work is under way. */
  const leave = async (
    words: readonly string[],
    more: Readonly<Record<string, string>> = {},
  ): Promise<ChildProcessByStdio<null, Readable, null>> => {
    const child = spawn(builtFile('programs/stranger'), words, {
      env: { ...process.env, ...env(), ...more },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    await once(child.stdout, 'data');
    return child;
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const child of children) child.kill('SIGKILL');
    for (const host of hosts) await host.stop();
    [hosts, children] = [[], []];
    scratch.remove();
  });

  for (const [what, words] of [
    ['inside a kernel without an end', ['endless']],
    ['with work queued for a minute', ['queue', '500']],
  ] as const) {
    it(`is gone soon after it was killed ${what}`, async () => {
      const host = await start();
      const child = await leave(words);
      await until('its session in the log', () => sessionsNow(host) === 1);
      child.kill('SIGKILL');
      await until('its session to end', () => sessionsNow(host) === 0);
      assert.ok(Number((await run('rounds', '50'))[0]) > 0);
    });
  }

  it('gets an illegal address error where nothing is mapped, and keeps its worker', async () => {
    const host = await start();
    // 32 threads store 128 bytes: at the start, up to the end of what is mapped, across it, behind it, at the end.
    assert.deepEqual(await run('unmapped'), ['0', '0', '700', '700', '700']);
    assert.doesNotMatch(host.log(), /killed by signal/);
  });

  it('sees no more memory than its limit', async () => {
    await start(['--session-memory', String(64 * MIB)]);
    const limit = String(64 * MIB);
    assert.deepEqual(await run('memory'), [limit, limit, limit, '0', '2']);
  });

  const findsNothing = async (host: Host): Promise<void> => {
    const secret = 'a5'.repeat(64);
    const pieces = [512, 60 * 1024, 4 * MIB, 64 * MIB];
    const places = async (shell: Shell): Promise<string[]> => {
      await askAll(shell, ['init', 'ctx 0']);
      const found: string[] = [];
      for (const size of pieces) found.push((await shell.ask(`alloc ${size}`)).values[0] ?? '');
      return found;
    };
    const first = startShell({ VGPU_HOST: `unix:${scratch.path}/s` });
    const written = await places(first);
    for (const [index, size] of pieces.entries()) await askAll(first, [`set8 ${written[index]} 165 ${size}`]);
    const last = `0x${(BigInt(written[3] ?? '') + BigInt(64 * MIB - 64)).toString(16)}`;
    for (const place of [...written, last])
      assert.equal((await first.ask(`read ${place} 64`)).values[0], secret);
    assert.equal(await first.end(), 0);
    await until('its session to end', () => sessionsNow(host) === 0);
    const second = startShell({ VGPU_HOST: `unix:${scratch.path}/s` });
    const places2 = await places(second);
    assert.deepEqual(places2, written, 'the same addresses');
    for (const place of [...places2, last])
      assert.equal((await second.ask(`read ${place} 64`)).values[0], '00'.repeat(64));
    assert.equal(await second.end(), 0);
  };

  it('finds nothing of a former session in device memory, neither in large nor in small pieces', async () => {
    await findsNothing(await start());
  });

  it('finds nothing of one with --device cuda either, whose driver clears what it gives', async () => {
    const host = await startStandIn('calls', { listen: `unix:${scratch.path}/s` });
    hosts.push(host);
    await findsNothing(host);
  });

  it('cannot have more local memory than device memory', async () => {
    const host = await start(['--session-memory', String(64 * MIB)]);
    assert.deepEqual(await run('local', String(4 * 1024)), ['0']);
    assert.deepEqual(await run('local', String(128 * 1024)), ['2'], 'of 1024 threads: 128 MiB');
    await host.logged(/no device memory for \d+ bytes of local memory/);
    await until('its session to end', () => sessionsNow(host) === 0);
    assert.deepEqual(
      await run('memory'),
      Array(3)
        .fill(String(64 * MIB))
        .concat(['0', '2']),
      'given back',
    );
  });

  it('cannot have more memory for code than device memory', async () => {
    await start(['--session-memory', String(16 * MIB)]);
    const [loaded, result] = await run('modules', '200');
    assert.ok(Number(loaded) > 0 && Number(loaded) < 200, loaded);
    assert.equal(result, '2', 'CUDA_ERROR_OUT_OF_MEMORY');
  });

  for (const [what, words] of [
    ['kernels without an end', ['endless']],
    ['grids of blocks that do nothing', ['blocks']],
  ] as const) {
    it(`does not take the processors from another peer, however many ${what} it has`, async () => {
      const host = await start(['--listen', `tcp:127.0.0.1:${PORT}`]);
      const workers = (): Map<string, number> => ticksOfWorkers(host);
      await leave(['endless']);
      const [mine = ''] = workers().keys();
      for (let i = 0; i < 16; i++) {
        await leave(words, { VGPU_HOST: `tcp:127.0.0.1:${PORT}` });
      }
      const before = workers();
      assert.equal(before.size, 17);
      await sleep(2500);
      const used = [...workers()].map(([pid, ticks]) => [pid, ticks - (before.get(pid) ?? 0)] as const);
      const all = used.reduce((sum, [, ticks]) => sum + ticks, 0);
      const share = (used.find(([pid]) => pid === mine)?.[1] ?? 0) / all;
      // The first peer's kernel has four blocks, so four threads.
      const processors = availableParallelism();
      const fair = Math.min(4, processors / 2) / processors;
      assert.ok(share > fair / 2, `a peer with one of 17 kernels got ${share} of the processors`);
    });
  }

  /** A session that does not take what its kernels print, so that the host logs it. */
  const printLines = async (count: number): Promise<void> => {
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'socket');
    const [context, module, function_] = [16n, 17n, 18n];
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(context, 0, 0))).status, 0);
    const image = Buffer.from(PRINTING);
    const hash = createHash('sha256').update(image).digest();
    const size = words(BigInt(image.length));
    client.post(op('image_piece'), Buffer.concat([hash, size, words(0n)]), image);
    const loaded = await client.call(
      op('cuModuleLoadDataEx'),
      Buffer.concat([words(context, module), hash, size]),
    );
    assert.deepEqual([loaded.status, loaded.body.readInt32LE(0)], [0, 0]);
    const found = await client.call(op('cuModuleGetFunction'), words(module, function_), Buffer.from('k'));
    assert.equal(found.status, 0);
    client.post(
      op('cuLaunchKernelEx'),
      words(context, function_, 0n, 1, 1, 1, 1, 1, 1, 0, 4, 0, 0),
      words(count),
    );
    const waited = await client.call(op('cuCtxSynchronize'), words(context));
    assert.deepEqual([waited.status, waited.deferred], [0, 0]);
    client.close();
  };

  // With the order of turns that shared_table.test.ts tests, the honest guest keeps 19 to 50 % of its rounds; without
  // that order, 1 to 4 %. The guest has one processor, so that it also sleeps while it waits when it is alone.
  // With several, a guest that is alone spins and does ten times the rounds of any guest that shares the
  // processors, so no order of turns could reach the bound. Other work on the machine also costs rounds.
  const busy = process.env['VGPU_TEST_LONG'] === '1' ? false : 'needs a quiet machine: VGPU_TEST_LONG=1';
  for (const what of ['endless', 'fill', 'compile']) {
    it(`leaves an honest guest its rounds beside 16 sessions of another peer that ${what}`, {
      skip: busy,
    }, async () => {
      await start(['--listen', `tcp:127.0.0.1:${PORT}`]);
      const rounds = async (): Promise<number> => {
        const words = ['-c', PROCESSOR, builtFile('programs/stranger'), 'rounds', '1200'];
        const ended = await runProgram('taskset', words, { env: env() });
        assert.equal(ended.code, 0, ended.stderr);
        return Number(ended.stdout);
      };
      const alone = await rounds();
      for (let i = 0; i < 16; i++) await leave([what], { VGPU_HOST: `tcp:127.0.0.1:${PORT}` });
      // The machine may do something else: of several tries the best one counts.
      const tries: number[] = [];
      while (tries.length < 4 && !tries.some((beside) => beside > 0.15 * alone)) tries.push(await rounds());
      assert.ok(Math.max(...tries) > 0.15 * alone, `${tries} rounds of ${alone}`);
    });
  }

  /** Microseconds of opening sessions, one after the other, sorted. */
  const opens = async (flood: string, count: number): Promise<number[]> => {
    const ended = await runProgram(
      flood,
      [`${scratch.path}/s`, hello().toString('hex'), 'open', String(count)],
      { limit: 60_000 },
    );
    assert.equal(ended.code, 0, 'each is welcomed');
    return ended.stdout.trim().split(' ').map(Number);
  };

  it('opens sessions beside 3000 connections a second of another user', {
    skip: process.getuid?.() !== 0 && 'needs root, for connections of another user',
  }, async () => {
    const flood = await buildProgram({
      name: 'flood',
      sources: ['test/shim/programs/flood.c'],
      sanitize: 'none',
    });
    chmodSync(scratch.path, 0o755);
    writeFileSync(`${scratch.path}/conf`, 'allow unix connects=none\n');
    const host = await start(['--config', `${scratch.path}/conf`]);
    // Other work on the machine delays some connections: compare the fastest third, and take the best of several tries.
    const third = async (count: number): Promise<number> => {
      const times = await opens(flood, count);
      return times[Math.floor(times.length / 3)] ?? 0;
    };
    const alone = await third(20);
    const child = spawn(flood, [`${scratch.path}/s`, hello().toString('hex'), '3000'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    await once(child.stdout, 'data');
    const tries: number[] = [];
    while (tries.length < 4 && !tries.some((beside) => beside < 5 * alone))
      tries.push(await third(process.env['VGPU_TEST_LONG'] === '1' ? 200 : 20));
    assert.ok(Math.min(...tries) < 5 * alone, `${tries} microseconds beside the flood, alone ${alone}`);
    child.kill('SIGKILL');
    await until('all sessions to end', () => sessionsNow(host) === 0);
  });

  it('takes no processor by a loop of a graph in which no kernel runs', async () => {
    const host = await start();
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'socket');
    const [context, graph, exec] = [16n, 17n, 18n];
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(context, 0, 0))).status, 0);
    const made = await client.call(op('cuGraphConditionalHandleCreate'), words(context, graph, 1, 1));
    const node = (symbol: string, body: Buffer): Buffer =>
      Buffer.concat([words(op(symbol), body.length, 0, 0), body, Buffer.alloc(-body.length & 7)]);
    const nodes = [
      node('graph_values', words(context, 0n, graph, 1, 1)),
      node('graph_condition', words(context, 0n, made.body.readBigUInt64LE(0), 1, 1)), // while
      node('graph_body', words(context, 0n, 0, 0)),
    ];
    client.post(op('graph_nodes'), words(context, exec), Buffer.concat(nodes));
    assert.equal(
      (await client.call(op('cuGraphInstantiateWithFlags'), words(context, exec, 0n, 3, 0))).status,
      0,
    );
    const [before = 0] = ticksOfWorkers(host).values();
    client.post(op('cuGraphLaunch'), words(context, exec, 0n));
    await sleep(1500);
    const [after = 0] = ticksOfWorkers(host).values();
    assert.ok(after - before < 15, `${after - before} hundredths of a second of 150`);
    // It is there still, and an honest one is served.
    assert.equal(ticksOfWorkers(host).size, 1);
    assert.ok(Number((await run('rounds', '50'))[0]) > 0);
    client.close();
    await until('its session to end', () => sessionsNow(host) === 0);
  });

  it('cannot fill the log, neither in one session nor in one after the other', async () => {
    const host = await start(['--json']);
    for (let session = 0; session < 4; session++) await printLines(5000);
    const lines = () => host.log().split('\n').slice(0, -1);
    const told = () =>
      lines()
        .map((line) => JSON.parse(line) as { event: string; count?: number })
        .filter(({ event }) => event === 'printed' || event === 'left-out')
        .reduce((sum, { event, count }) => sum + (event === 'printed' ? 1 : (count ?? 0)), 0);
    // The number of messages that were left out is logged at most once a second.
    await until('all 20000 are accounted for', () => told() >= 20_000);
    assert.ok(lines().length < 1000, `${lines().length} lines`);
  });
});
