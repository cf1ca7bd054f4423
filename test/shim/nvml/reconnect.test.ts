/** NVML calls while the session has no connection: only a call that needs the host waits for another one. */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { type Host, scratchDirectory, sessionsBegun, startHost } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { type CuttingRelay, startCuttingRelay } from '../wire/cutting_relay.js';
import { buildCaller, type Line, makeCalls, RESULT, SANITIZERS } from './calls.js';

const PORT = await freePort();
const RELAY_PORT = await freePort();

const of = (lines: readonly Line[], call: string): Line => {
  const line = lines.find((one) => one.call === call);
  assert.ok(line !== undefined, call);
  return line;
};

for (const sanitize of SANITIZERS) {
  describe(`libnvidia-ml without a connection, under ${sanitize} sanitizers`, () => {
    let scratch: ReturnType<typeof scratchDirectory>;
    let program = '';
    let host: Host;
    let relay: CuttingRelay;

    before(async () => {
      scratch = scratchDirectory();
      program = await buildCaller(sanitize);
    });
    after(() => scratch.remove());
    beforeEach(async () => {
      host = await startHost({ listen: `tcp:127.0.0.1:${PORT}` });
      relay = await startCuttingRelay(RELAY_PORT, PORT);
    });
    afterEach(async () => {
      await relay.close();
      await host.stop();
    });

    it('answers from its facts while another thread waits for the host, which then answers', async () => {
      const local = ['name:0', 'count', 'uuid:0', 'driver'] as const;
      const lines = await makeCalls(
        program,
        relay.address,
        ['init', 'wait', 'begin:0', 'sleep:300', ...local, 'ended', 'wait', 'join', 'shutdown'],
        [() => relay.shut(), () => relay.open()],
      );
      for (const call of local) {
        assert.equal(of(lines, call).result, RESULT.success, call);
        assert.ok(of(lines, call).milliseconds < 1000, `${call}: ${of(lines, call).milliseconds} ms`);
      }
      assert.equal(of(lines, 'ended').text, '0', 'the other thread still waits');
      assert.equal(of(lines, 'join').result, RESULT.success);
      assert.equal(sessionsBegun(host), 1, 'the same session');
    });

    it('ends with nvmlShutdown at once, and so does the call that waits for the host', async () => {
      const lines = await makeCalls(
        program,
        relay.address,
        [
          'init',
          'wait',
          'begin:0',
          'sleep:300',
          'ended',
          'shutdown',
          'join',
          'count',
          'wait',
          'init',
          'memory:0',
          'shutdown',
        ],
        [() => relay.shut(), () => relay.open()],
      );
      assert.equal(of(lines, 'ended').text, '0', 'the other thread waits');
      for (const call of ['shutdown', 'join'])
        assert.ok(of(lines, call).milliseconds < 5000, `${call}: ${of(lines, call).milliseconds} ms`);
      assert.equal(of(lines, 'shutdown').result, RESULT.success);
      assert.equal(of(lines, 'join').result, RESULT.lost);
      assert.equal(of(lines, 'count').result, RESULT.uninitialized);
      assert.deepEqual(
        lines.slice(-3).map(({ result }) => result),
        [RESULT.success, RESULT.success, RESULT.success],
        'a new session',
      );
    });
  });
}
