/** Memory of a program that the device reaches at the program's own address, with --device cuda. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  sessionsNow,
  startShell,
  until,
  VARIANT,
  workerOf,
} from '../shim_host.js';
import { op, WireClient, words } from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const run = promisify(execFile);

/** The allocators of ASan and TSan put the heaps of the program and of the worker at the same addresses. */
const sameHeaps =
  VARIANT !== 'shim' && 'the heaps of program and worker have the same addresses with sanitizers';

describe("a driver's own addresses", {
  skip: process.arch !== 'x64' && 'addresses are reserved on x86_64 only',
}, () => {
  for (const transport of ['ring', 'socket']) {
    it(`are not where programs have theirs, over a ${transport}`, async (t) => {
      const scratch = scratchDirectory();
      const host = await startStandIn('wide', { listen: `unix:${scratch.path}/s` });
      const shell = startShell({ VGPU_HOST: host.address, VGPU_TRANSPORT: transport });
      t.after(async () => {
        shell.kill();
        await host.stop();
        scratch.remove();
      });
      const started = host.log().length;
      await askAll(shell, ['init', 'ctx 0']);
      await until(
        'the address of the driver',
        () => / a TiB at 0x[0-9a-f]+\n/.test(host.log().slice(started)),
        20_000,
      );
      const [, address = '0'] = /a TiB at 0x([0-9a-f]+)/.exec(host.log().slice(started)) ?? [];
      // A program maps memory in the last TiB below its stack. A second TiB is for programs that map more.
      assert.ok(BigInt(`0x${address}`) < 0x7e00_0000_0000n, address);
    });
  }
});

describe('memory that a program registers with --device cuda', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('maps,real,wide', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  // The addresses of a program and of its worker are random. Half of the programs would meet the driver's.
  it('has its address there, whatever the driver has mapped beside it', { skip: sameHeaps }, async () => {
    const env = { ...process.env, VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM };
    for (let i = 0; i < 100; i++) await run(builtFile('programs/registered_calls'), ['turns'], { env });
    assert.doesNotMatch(host.log(), /has no address on the device/);
  });

  it('has its address beside a worker that maps little of its own at addresses of programs', {
    skip: sameHeaps || (process.arch !== 'x64' && 'addresses are reserved on x86_64 only'),
  }, async () => {
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'ring');
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(100n, 0, 0))).status, 0);
    const worker = await workerOf(host, client.pid);
    let bytes = 0;
    for (const line of readFileSync(`/proc/${worker}/maps`, 'utf8').split('\n')) {
      const [, start = '', end = '', rights = '---p'] = /^([0-9a-f]+)-([0-9a-f]+) (....)/.exec(line) ?? [];
      const from = Number.parseInt(start, 16);
      if (rights !== '---p' && from >= 0x7e00_0000_0000) bytes += Number.parseInt(end, 16) - from;
    }
    // vgpu-hostd's own libraries and its stack.
    assert.ok(bytes < 16 << 20, `${bytes} bytes`);
    client.close();
    await until('the session to end', () => sessionsNow(host) === 0, 10_000);
  });

  it('is registered with the driver as memory that the device only reads, if the program says so', async () => {
    const telling = await startStandIn('maps,real,calls', { listen: `unix:${scratch.path}/telling` });
    const env = { ...process.env, VGPU_HOST: telling.address, LD_LIBRARY_PATH: SHIM };
    await run(builtFile('programs/registered_calls'), ['read_only'], { env });
    await telling.logged(/stand-in: pinned to be read/);
    await telling.stop();
  });

  it('cannot be put over memory of the worker, nor over other memory of the session', async () => {
    const [context, sharedRegionAdd, sharedRegionDrop, bytes] = [100n, 6, 7, 2n << 20n];
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'ring');
    const status = async (opcode: number, body: Buffer): Promise<number> =>
      (await client.call(opcode, body)).status;
    const region = async (): Promise<number> =>
      (await client.call(sharedRegionAdd, words(bytes))).body.readUInt32LE(0);
    const map = (at: bigint, which: number): Promise<number> =>
      status(op('shared_region_map'), words(context, at, bytes, which, 0));
    assert.equal(await status(op('cuCtxCreate_v2'), words(context, 0, 0)), 0);
    const [first, second] = [await region(), await region()];
    const worker = await workerOf(host, client.pid);
    for (const line of readFileSync(`/proc/${worker}/maps`, 'utf8').split('\n')) {
      const [, from = '', rights = ''] = /^([0-9a-f]+)-[0-9a-f]+ (....)/.exec(line) ?? [];
      if (rights === '' || rights.startsWith('---') || from.length > 12) continue;
      const at = BigInt(`0x${from}`);
      assert.notEqual(await map(at, first), 0, line);
      if (at > bytes) assert.notEqual(await map(at - bytes + 4096n, first), 0, line);
    }
    const mine = 0x7e50_0000_0000n;
    for (const at of [0n, mine + 1n, 0x8000_0000_0000n - 4096n, -4096n])
      assert.notEqual(await map(at, first), 0);
    assert.match(host.log(), /has no address on the device: the worker has memory of its own at this/);
    assert.equal(await map(mine, first), 0);
    assert.notEqual(await map(mine + bytes / 2n, second), 0);
    assert.notEqual(await map(mine - bytes / 2n, second), 0);
    assert.notEqual(await status(sharedRegionDrop, words(first, 0)), 0, 'it is device memory');
    assert.equal(await status(op('shared_region_unmap'), words(context, mine)), 0);
    assert.equal(await status(sharedRegionDrop, words(first, 0)), 0);
    assert.equal(await map(mine + bytes / 2n, second), 0, 'the address is free again');
    client.close();
    await until('the session to end', () => sessionsNow(host) === 0);
    assert.doesNotMatch(host.log(), /killed by signal/);
  });
});
