/**
 * Shares of a device: share= and weight= of hostd.conf, on the simulated GPU, with our own library as the driver, whose
 * processes share one simulated GPU, and with the stand-in for NVIDIA's driver, each of whose processes has a device of its
 * own. What they cannot show: how the driver itself divides a GPU between processes, and what a host function costs there.
 */

import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { compiles } from '../ptx/compiled.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  sleep,
  startChain,
  startHost,
  startShell,
  VARIANT,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { op, WireClient, words } from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const PORT = await freePort();

/** CUDA_ERROR_NOT_READY: a client that did not offer VGPU_FEATURE_PARK asks again. */
const NOT_READY = 600;

interface Session {
  readonly session: number;
  readonly peer: { readonly kind: string };
  readonly deviceTime: number;
  readonly launches: number;
  readonly share: number;
  readonly weight: number;
}

const COUNTING = `.version 7.0
.target sm_50
.address_size 64
.visible .entry k(.param .u32 p) { ret; }
`;

for (const device of ['software', 'our own library', 'stand-in'] as const) {
  describe(`shares of a device (${device})`, {
    skip:
      device === 'stand-in' &&
      VARIANT !== 'shim' &&
      'the software device in the same process is built without sanitizers',
  }, () => {
    let scratch: ReturnType<typeof scratchDirectory>;
    let host: Host | undefined;
    let children: ChildProcessByStdio<null, Readable, null>[] = [];
    const clients: WireClient[] = [];

    const start = async (rules: string, words = 'calls'): Promise<void> => {
      writeFileSync(`${scratch.path}/conf`, rules);
      const listen = `unix:${scratch.path}/s`;
      const args = ['--listen', `tcp:127.0.0.1:${PORT}`, '--config', `${scratch.path}/conf`].concat([
        ...['--control', `${scratch.path}/control`],
      ]);
      if (device === 'software') host = await startHost({ listen, args });
      else if (device === 'stand-in') host = await startStandIn(words, { listen, args });
      else host = await startChain(scratch.path, [], args);
    };
    // Of kernels that several sessions share a processor for, compiled ones too; and such that a turn has several.
    const steps = device !== 'software' ? '4000' : compiles === false ? '3000000' : '200000';
    /** A session that launches without a pause. */
    const load = async (peer: 'unix' | 'tcp'): Promise<ChildProcessByStdio<null, Readable, null>> => {
      const address = peer === 'unix' ? `unix:${scratch.path}/s` : `tcp:127.0.0.1:${PORT}`;
      const child = spawn(builtFile('programs/stranger'), ['load', steps], {
        env: { ...process.env, VGPU_HOST: address, LD_LIBRARY_PATH: SHIM },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      children.push(child);
      await once(child.stdout, 'data');
      return child;
    };
    const ask = async (order: string, ...more: string[]): Promise<string> => {
      const ended = await runProgram(builtFile('vgpu-hostd'), [
        order,
        ...more,
        '--control',
        `${scratch.path}/control`,
      ]);
      assert.equal(ended.code, 0, ended.stderr);
      return ended.stdout;
    };
    const sessions = async (): Promise<readonly Session[]> =>
      (JSON.parse(await ask('status', '--json')) as { sessions: readonly Session[] }).sessions;
    const deviceTime = async (kind: string): Promise<number> => {
      let sum = 0;
      for (const { peer, deviceTime } of await sessions()) if (peer.kind === kind) sum += deviceTime;
      return sum;
    };

    beforeEach(() => {
      scratch = scratchDirectory();
    });
    afterEach(async () => {
      for (const child of children) child.kill('SIGKILL');
      for (const client of clients.splice(0)) client.close();
      await host?.stop();
      [host, children] = [undefined, []];
      scratch.remove();
    });

    /** The part of the next 2.5 s of device time that the unix peer gets. */
    const part = async (): Promise<number> => {
      const [unix, tcp] = [await deviceTime('unix'), await deviceTime('tcp')];
      for (;;) {
        await sleep(100);
        const had = (await deviceTime('unix')) - unix;
        const all = had + (await deviceTime('tcp')) - tcp;
        if (all > 2500) return had / all;
      }
    };

    for (const [rules, wanted] of [
      ['allow unix share=25\nallow tcp share=75\n', 0.25],
      ['allow unix weight=300\nallow tcp weight=100\n', 0.75],
    ] as const) {
      it(`two peers under full load get theirs: ${rules.trim().replace('\n', ', ')}`, async () => {
        await start(rules);
        // As many as keep all processors busy, if one peer had them alone.
        for (let i = 0; i < (device === 'software' ? availableParallelism() : 1); i++) {
          await load('unix');
          await load('tcp');
        }
        await sleep(500); // the first turns
        const near = (got: number): boolean => Math.abs(got - wanted) < 0.1 * wanted;
        // The machine may do something else: of several tries the best one counts.
        const tries: number[] = [];
        while (tries.length < 5 && !tries.some(near)) tries.push(await part());
        assert.ok(tries.some(near), `${tries} instead of ${wanted}`);
      });
    }

    it('computes right while calls wait behind launches', async () => {
      await start('allow unix weight=10\nallow tcp weight=100\n');
      await load('tcp');
      const env = { VGPU_HOST: `unix:${scratch.path}/s`, LD_LIBRARY_PATH: SHIM };
      const guests = ['rounds 1500', 'rounds 1500'].map((line) =>
        runProgram(builtFile('programs/stranger'), line.split(' '), { env, limit: 60_000 }),
      );
      const shell = startShell({ VGPU_HOST: `unix:${scratch.path}/s` });
      try {
        await askAll(shell, ['init']);
        assert.equal((await shell.ask('threads 8 10', 60_000)).values.join(), '0');
      } finally {
        shell.kill();
      }
      // Each compares all numbers of each round.
      for (const { code, stdout } of await Promise.all(guests)) {
        assert.equal(code, 0);
        assert.ok(Number(stdout) > 0, stdout);
      }
    });

    it('leaves what an idle peer does not use to others', async () => {
      await start('allow unix share=25\nallow tcp share=75\n');
      await load('unix');
      const launches = async (): Promise<number> => {
        const [before] = await sessions();
        await sleep(1000);
        const [after] = await sessions();
        return (after?.launches ?? 0) - (before?.launches ?? 0);
      };
      // The machine may do something else: of several tries the best one counts.
      const tries: number[] = [];
      while (tries.length < 5 && !tries.some((ratio) => ratio > 0.6)) {
        const alone = await launches();
        const idle = await WireClient.greeted(`tcp:${PORT}`, 1, 'socket');
        tries.push((await launches()) / alone);
        idle.close();
      }
      assert.ok(Math.max(...tries) > 0.6, `${tries} of the launches alone beside an idle peer`);
      const [after] = await sessions();
      assert.deepEqual([after?.share, after?.weight], [25, 100]);
      assert.match(await ask('metrics'), /vgpu_hostd_session_share\{session="\d+",peer="unix:\d+"\} 25/);
    });

    if (device === 'stand-in') {
      it('tells MPS the share, where hostd.conf uses it', async () => {
        await start(`workers mps=${scratch.path}\nallow unix share=25\nallow tcp\n`, 'threads');
        for (const [peer, told] of [
          ['unix', /25 % of threads/],
          ['tcp', /all % of threads/],
        ] as const) {
          await load(peer);
          await host?.logged(told);
        }
      });

      it('answers calls that need no device while a launch waits for its turn', async () => {
        // With a weight of 1 beside 10000 a turn may take five seconds to come.
        await start('allow unix weight=1\nallow tcp weight=10000\n');
        await load('tcp');
        const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'socket');
        clients.push(client);
        const [context, module, function_] = [16n, 17n, 18n];
        assert.equal((await client.call(op('cuCtxCreate_v2'), words(context, 0, 0))).status, 0);
        const image = Buffer.from(COUNTING);
        const hash = createHash('sha256').update(image).digest();
        const size = words(BigInt(image.length));
        client.post(op('image_piece'), Buffer.concat([hash, size, words(0n)]), image);
        await client.call(op('cuModuleLoadDataEx'), Buffer.concat([words(context, module), hash, size]));
        await client.call(op('cuModuleGetFunction'), words(module, function_), Buffer.from('k'));
        const launches = async (): Promise<number> =>
          (await sessions()).find(({ peer }) => peer.kind === 'unix')?.launches ?? 0;
        let overtaken = 0;
        for (let i = 0; i < 20; i++) {
          for (let k = 0; k < 400; k++) {
            client.post(
              op('cuLaunchKernelEx'),
              words(context, function_, 0n, 1, 1, 1, 1, 1, 1, 0, 4, 0, 0),
              words(1),
            );
          }
          const asked = await client.call(op('cuMemGetInfo_v2'), words(context));
          assert.equal(asked.status, 0);
          if ((await launches()) < 400 * (i + 1)) overtaken++;
        }
        assert.ok(overtaken > 0, 'it was answered before the launches that were sent first');
        const wait = () => client.call(op('cuCtxSynchronize'), words(context));
        let waited = await wait();
        while (waited.status === NOT_READY) waited = await wait();
        assert.deepEqual([waited.status, waited.deferred], [0, 0]);
        assert.equal(await launches(), 8000, 'and each was carried out');
      });
    }
  });
}
