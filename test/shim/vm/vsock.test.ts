/** From a real virtual machine to a host, over vsock and through memory that both see. */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { builtFile, forksWithoutSignals, scratchDirectory, startHost, until } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { startCuttingRelay } from '../wire/cutting_relay.js';
import { noise } from '../wire/wire_client.js';
import { type Machine, startMachine, whyNoMachine } from './machine.js';
import { ended, listens } from './qemu.js';

describe('a program in a virtual machine', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machine: Machine;
  before(async () => {
    const programs = ['programs/vm_memory', 'programs/reconnecting'].map(builtFile);
    machine = await startMachine(scratch.path, { programs });
  });
  after(async () => {
    await machine.stop();
    scratch.remove();
  });

  it('finds the device and computes on it through vsock:2:14833, and through memory of its host', async () => {
    const console = await machine.boot([
      '/bin/vgpu-probe --library /lib/vgpu/libcuda.so.1',
      '/bin/ptx_guest /ptx 80',
      'VGPU_VM_MEMORY=none /bin/ptx_guest /ptx 80',
    ]);
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined)
      process.stderr.write(`${console}\n${machine.host.log()}\n`);
    assert.match(console, /NVIDIA H100 80GB HBM3 \(simulated\)/);
    assert.match(console, /"roundTrip":\{"bytes":1048576,"ok":true/);
    assert.equal((console.match(/vector_add 0 wrong 0/g) ?? []).length, 2);
    assert.equal((console.match(/fault 700 again 700/g) ?? []).length, 2);
    assert.equal((console.match(/vm: exit 0/g) ?? []).length, 3, console);
    const how = [...console.matchAll(/at vsock:2:14833: 1 device\(s\), (.*)/g)].map(([, way]) => way);
    assert.deepEqual([how.at(-2), how.at(-1)], ["through the VM's shared memory", 'over the socket']);
    await machine.host.logged(/libcuda ptx_guest \(guest pid \d+\) begins, in its VM's shared memory/);
  });

  it('uses the first host of a list of vsock addresses that answers', async () => {
    const console = await machine.boot([
      'VGPU_HOST=vsock:2:15001,vsock:2:14833 /bin/ptx_guest /ptx 80',
      'VGPU_HOST=vsock:2:14833,vsock:2:15001 /bin/ptx_guest /ptx 80',
      'VGPU_HOST=vsock:2:15001,vsock:2:15002 /bin/ptx_guest /ptx 80',
    ]);
    assert.equal((console.match(/at vsock:2:14833: 1 device\(s\)/g) ?? []).length, 2, console);
    assert.equal((console.match(/vector_add 0 wrong 0/g) ?? []).length, 2, console);
    assert.deepEqual(
      [...console.matchAll(/vm: exit (\d+)/g)].map(([, status]) => status === '0'),
      [true, true, false],
      console,
    );
  });

  // The guest's kernel keeps a lock of a PCI device's memory for as long as it is mapped (vm_memory.h).
  it('gives its memory to no other session while a child of it still maps it', {
    skip: forksWithoutSignals,
  }, async () => {
    const console = await machine.boot(['/bin/vm_memory stays_apart']);
    assert.match(console, /the child's memory was kept/);
    assert.equal((console.match(/through the VM's shared memory/g) ?? []).length, 2, console);
    assert.match(console, /vm: exit 0/);
  });

  it('computes through vsock alone where the VM has no such device, and goes on where vsock is cut', async () => {
    const port = await freePort();
    const host = await startHost({ listen: `tcp:127.0.0.1:${port}` });
    const random = noise(11);
    const next = (): number => 30_000 + ((random() >>> 8) % 3_000_000);
    // The relay behind the VM's port 15000.
    const relay = await startCuttingRelay(`${scratch.path}/0/uds_15000`, port, { next });
    try {
      const console = await machine.boot(
        ['/bin/ptx_guest /ptx 80', 'VGPU_HOST=vsock:2:15000 ROUNDS=8 /bin/reconnecting alone'],
        false,
      );
      assert.match(console, /vector_add 0 wrong 0/);
      assert.match(console, /at vsock:2:14833: 1 device\(s\), over the socket/);
      assert.equal((console.match(/vm: exit 0/g) ?? []).length, 2, console);
      assert.match(console, /session \d+ continues after \d+ ms/);
      assert.ok(relay.cuts() >= 2, `${relay.cuts()} cuts`);
      assert.equal([...host.log().matchAll(/libcuda reconnecting .* begins/g)].length, 1, 'one session');
    } finally {
      await relay.close();
      await host.stop();
    }
  });

  it('goes on in the memory of its host where vsock is cut', async () => {
    const [path, socket] = [`${scratch.path}/0/uds_15000`, `${scratch.path}/rings`];
    writeFileSync(`${socket}.conf`, `allow unix uid=${process.getuid?.()} vm-memory=${machine.memory}\n`);
    const host = await startHost({ listen: `unix:${socket}`, args: ['--config', `${socket}.conf`] });
    // A process between that is killed: its connections break, and the host knows that their other ends may live.
    const script = `
      const net = require('node:net');
      net.createServer((guest) => {
        const host = net.connect(process.argv[2]);
        for (const [one, other] of [[guest, host], [host, guest]]) one.on('error', () => other.destroy()).pipe(other);
      }).listen(process.argv[1]);`;
    let going = true;
    let cuts = 0;
    const cutting = (async () => {
      for (; going; cuts += 1) {
        rmSync(path, { force: true });
        const relay = spawn(process.execPath, ['-e', script, path, socket]);
        await until('the relay', () => listens(path), 20_000);
        await until('a session', () => !going || host.log().includes('begins, in its VM'), 240_000);
        // The last one stays.
        await until('some calls, or the end', () => !going, cuts < 3 ? 200 : 240_000).catch(() => undefined);
        relay.kill('SIGKILL');
        await until('its end', () => ended(relay));
      }
    })();
    try {
      const console = await machine.boot(['VGPU_HOST=vsock:2:15000 ROUNDS=30 /bin/reconnecting pinned']);
      assert.equal((console.match(/through the VM's shared memory/g) ?? []).length, 1, console);
      assert.equal((console.match(/vm: exit 0/g) ?? []).length, 1, console);
      const continued = [...console.matchAll(/session \d+ continues after \d+ ms/g)].length;
      assert.ok(continued >= 1, `continued ${continued} times`);
      assert.equal([...host.log().matchAll(/libcuda reconnecting .* begins, in its VM's/g)].length, 1);
      assert.doesNotMatch(host.log(), /violation|did not come back/);
      assert.ok(cuts >= 2, `${cuts} cuts`);
    } finally {
      going = false;
      await cutting;
      await host.stop();
    }
  });
});
