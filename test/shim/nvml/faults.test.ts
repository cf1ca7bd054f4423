import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { buildCaller, makeCalls, RESULT, SANITIZERS } from './calls.js';
import { twoDevices } from './devices.js';
import { OPCODE, startHost, type TestHost } from './host.js';

for (const sanitize of SANITIZERS) {
  describe(`libnvidia-ml with a bad host, under ${sanitize} sanitizers`, () => {
    let program = '';
    let scratch = '';
    let socket = '';
    let host: TestHost;

    before(async () => {
      program = await buildCaller(sanitize);
      scratch = await mkdtemp(path.join(os.tmpdir(), 'nvml-'));
      socket = path.join(scratch, 'host.sock');
    });
    after(() => rm(scratch, { recursive: true, force: true }));
    beforeEach(async () => {
      host = await startHost(socket, twoDevices());
    });
    afterEach(() => host.close());

    const calls = (names: readonly string[], meanwhile: readonly (() => Promise<void> | void)[] = []) =>
      makeCalls(program, `unix:${socket}`, names, meanwhile);

    it('no host is a driver that is not loaded, at once', async () => {
      for (const address of [`unix:${scratch}/nothing.sock`, 'nonsense', 'tcp:127.0.0.1:1', 'vsock:1:1']) {
        const [line] = await makeCalls(program, address, ['init']);
        assert.equal(line?.result, RESULT.noDriver, address);
        assert.ok((line?.milliseconds ?? 0) < 9000, `${address}: ${line?.milliseconds} ms`);
      }
    });

    for (const [opcode, name] of [
      [OPCODE.hello, 'greeting'],
      [OPCODE.facts, 'facts'],
    ] as const) {
      for (const fault of ['hang up', 'garbage', 'refuse'] as const) {
        it(`a host that answers the ${name} with "${fault}" is a driver that is not loaded`, async () => {
          host.state.faults.set(opcode, fault);
          const [init, count] = await calls(['init', 'count']);
          assert.equal(init?.result, RESULT.noDriver);
          assert.equal(count?.result, RESULT.uninitialized);
        });
      }
    }

    it('a host that freezes before its greeting costs two seconds', async () => {
      host.state.faults.set(OPCODE.hello, 'freeze');
      const [line] = await calls(['init']);
      assert.equal(line?.result, RESULT.noDriver);
      assert.ok(
        (line?.milliseconds ?? 0) >= 1500 && (line?.milliseconds ?? 0) < 9000,
        `${line?.milliseconds} ms`,
      );
    });

    it('a host that goes in the middle is a lost GPU, and comes back as itself', async () => {
      host.state.faults.set(OPCODE.usage, 'hang up');
      const lines = await calls(
        ['init', 'memory:0', 'wait', 'count', 'wait', 'sleep:1100', 'memory:0', 'name:0', 'shutdown'],
        [
          () => host.close(),
          async () => {
            host = await startHost(socket, twoDevices());
          },
        ],
      );
      assert.deepEqual(
        lines.filter(({ call }) => call !== 'wait').map(({ result }) => result),
        [
          RESULT.success,
          RESULT.lost,
          RESULT.lost,
          RESULT.success,
          RESULT.success,
          RESULT.success,
          RESULT.success,
        ],
      );
    });

    it('a host that freezes in the middle costs its limit once, and is a lost GPU', async () => {
      host.state.faults.set(OPCODE.usage, 'freeze');
      const lines = await calls(['init', 'memory:0', 'shutdown']);
      assert.equal(lines[1]?.result, RESULT.lost);
      assert.ok((lines[1]?.milliseconds ?? 0) < 18_000, `${lines[1]?.milliseconds} ms`);
    });

    it('nvmlShutdown does not wait for a thread that connects again', async () => {
      const lines = await calls(
        ['init', 'wait', 'memory:0', 'begin:0', 'sleep:300', 'ended', 'shutdown', 'count', 'join'],
        [
          () => {
            host.drop();
            host.state.faults.set(OPCODE.hello, 'freeze');
          },
        ],
      );
      const of = (call: string) => lines.find((line) => line.call === call);
      assert.equal(of('ended')?.text, '0', 'it still connects');
      assert.deepEqual([of('shutdown')?.result, of('count')?.result], [RESULT.success, RESULT.uninitialized]);
      const waited = (of('shutdown')?.milliseconds ?? 0) + (of('count')?.milliseconds ?? 0);
      assert.ok(waited < 1000, `${waited} ms`);
      assert.equal(of('join')?.result, RESULT.uninitialized);
    });

    it('an older host that does not know a call makes it unsupported', async () => {
      host.state.faults.set(OPCODE.processes, { status: 4 });
      const lines = await calls(['init', 'processes:0', 'shutdown']);
      assert.equal(lines[1]?.result, RESULT.notSupported);
    });

    it('a host without devices is a driver without devices', async () => {
      host.state.devices = [];
      const lines = await calls(['init', 'count', 'handle:0', 'shutdown']);
      assert.deepEqual(
        lines.map(({ result }) => result),
        [RESULT.success, RESULT.success, RESULT.invalid, RESULT.success],
      );
      assert.equal(lines[1]?.text, '0');
    });

    it('is silent without VGPU_LOG, whatever happens', async () => {
      host.state.faults.set(OPCODE.hello, 'garbage');
      await calls(['init', 'count', 'table', 'shutdown']); // makeCalls() requires an empty stderr
    });
  });
}
