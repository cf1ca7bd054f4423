// One-way calls over a stream are gathered into few writes, and none of them waits for the next call.

import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import {
  askAll,
  type Host,
  type Shell,
  scratchDirectory,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { type Relay, startRelay } from './counting_relay.js';

describe('one-way calls over a stream', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let relay: Relay;

  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/host` });
    relay = await startRelay(`${scratch.path}/relay`, `${scratch.path}/host`);
  });
  after(async () => {
    await relay.close();
    await host.stop();
    scratch.remove();
  });

  let shell: Shell | undefined;
  const open = (address: string): Shell => {
    shell = startShell({ VGPU_HOST: address, VGPU_TRANSPORT: 'socket' });
    return shell;
  };
  afterEach(() => shell?.kill());

  it('reach the host although no call follows them', async () => {
    const shell = open(relay.address);
    await askAll(shell, ['use 1']);
    const address = (await askAll(shell, ['alloc 4096'])).values[0] ?? '';
    relay.take();
    await askAll(shell, [`burst ${address} 300`]);
    let came = 0;
    await until('all 300 frames came', () => {
      const { waiting, oneway } = relay.take();
      assert.deepEqual(waiting, []);
      came += oneway.length;
      return came >= 300;
    });
    assert.equal(came, 300);
    assert.equal(await shell.end(), 0);
  });

  it('are carried out in order', async () => {
    const shell = open(`unix:${scratch.path}/host`);
    await askAll(shell, ['use 1']);
    const address = (await askAll(shell, ['alloc 4096'])).values[0] ?? '';
    for (const count of [2, 255, 3000]) {
      await askAll(shell, [`burst ${address} ${count}`]);
      const read = await askAll(shell, [`read ${address} 4`]);
      assert.equal(read.values[0], (count % 256).toString(16).padStart(2, '0').repeat(4));
    }
    assert.equal(await shell.end(), 0);
  });

  it('take one system call for many of them', async () => {
    const shell = open(`unix:${scratch.path}/host`);
    await askAll(shell, ['use 1']);
    const address = (await askAll(shell, ['alloc 4096'])).values[0] ?? '';
    await askAll(shell, ['sends', `burst ${address} 4000`]);
    const sends = Number((await askAll(shell, ['sync', 'sends'])).values[0]);
    assert.ok(sends >= 1 && sends < 1000, `4000 calls took ${sends} system calls`);
    assert.equal(await shell.end(), 0);
  });
});
