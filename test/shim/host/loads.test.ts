/**
 * Threads of a guest that begin to load code and never ask again: with --device cuda the driver compiles for each in a
 * thread of its own. The driver is the stand-in (programs/stand_in_driver.c), which takes its time.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, sleep } from '../shim_host.js';
import { op, WireClient, words } from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const CONTEXT = 16n;
const NOT_READY = 600;
const COMPILES_MS = 4000;
const MIB = 1n << 20n;

describe('with --device cuda', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let client: WireClient;

  /** A module with 64 MiB of variables. */
  const image = Buffer.from(
    '.version 6.0\n.target sm_60\n.address_size 64\n.visible .global .align 4 .b8 room[67108864];\n',
  );
  const hash = createHash('sha256').update(image).digest();
  const size = words(BigInt(image.length));
  const load = (lane: number, number: bigint): void => {
    client.post(op('image_piece'), Buffer.concat([hash, size, words(0n)]), image);
    client.ask(lane, op('cuModuleLoadDataEx'), Buffer.concat([words(CONTEXT, number), hash, size]));
  };
  const answer = async (): Promise<number | undefined> => (await client.receive(20_000))?.status;
  const free = async (): Promise<bigint> =>
    (await client.call(op('cuMemGetInfo_v2'), words(CONTEXT))).body.readBigUInt64LE(0);

  before(async () => {
    host = await startStandIn(`jit=${COMPILES_MS}`, { listen: `unix:${scratch.path}/s` });
    client = await WireClient.greeted(`${scratch.path}/s`, 1, 'socket');
    assert.equal((await client.call(op('cuDevicePrimaryCtxRetain'), words(CONTEXT, 0, 0))).status, 0);
  });
  after(async () => {
    client.close();
    await host.stop();
    scratch.remove();
  });

  it('loads of threads that are gone hold up no other one, and are given back', async () => {
    const before = await free();
    for (let lane = 1; lane <= 8; lane++) load(lane, 100n + BigInt(lane));
    for (let lane = 1; lane <= 8; lane++) assert.equal(await answer(), NOT_READY);
    // The ninth waits until there is room, and does not stop the others meanwhile.
    const began = performance.now();
    load(9, 109n);
    assert.equal(await answer(), NOT_READY);
    assert.ok(performance.now() - began < COMPILES_MS / 2, `${performance.now() - began} ms`);
    for (const limit = Date.now() + 60_000; (await free()) > before - 8n * 64n * MIB; await sleep(50))
      assert.ok(Date.now() < limit, 'eight are loaded');
    // Those eight are done, so there is room.
    const again = performance.now();
    load(9, 109n);
    assert.equal(await answer(), NOT_READY);
    assert.ok(performance.now() - again < COMPILES_MS / 2, `${performance.now() - again} ms`);
    // A thread that loads something else has given up what it began before.
    for (let lane = 1; lane <= 4; lane++) load(lane, 200n + BigInt(lane));
    for (let lane = 1; lane <= 4; lane++) assert.equal(await answer(), NOT_READY);
    // Another thread unloads their modules.
    for (const limit = Date.now() + 60_000; (await free()) <= before - 6n * 64n * MIB; )
      assert.ok(Date.now() < limit, 'four of them are gone');
  });

  it('each of many threads waits for what the stream had when it asked', async () => {
    const env = { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM };
    const ended = await runProgram(builtFile('programs/waiting_threads'), ['many'], { env, limit: 60_000 });
    assert.deepEqual({ code: ended.code, output: ended.stdout + ended.stderr }, { code: 0, output: '' });
  });
});
