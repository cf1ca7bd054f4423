import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  askAll,
  type Host,
  isIdle,
  type Shell,
  scratchDirectory,
  startChain,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';

const MIB = 1024 * 1024;
const H100 = 85_017_755_648;

/**
 * With --device cuda memory that other threads have freed counts until the driver has freed it, and the host asks NVML once
 * a second what the driver still holds.
 */
async function freeMemory(shell: Shell): Promise<string | undefined> {
  let free: string | undefined;
  for (let time = 0; time < 30 && free !== String(H100); time++) {
    free = (await shell.ask('info')).values[0];
    await delay(time === 0 ? 0 : 100);
  }
  return free;
}

/** A TCP port that is probably free; the process number keeps parallel runs apart. */
const PORT = await freePort();

for (const transport of ['unix', 'tcp', 'a host with --device cuda'] as const) {
  describe(`the driver API over ${transport}`, () => {
    const scratch = scratchDirectory();
    let host: Host;
    const shells: Shell[] = [];
    const open = (env: Readonly<Record<string, string>> = {}): Shell => {
      const shell = startShell({ VGPU_HOST: host.address, ...env });
      shells.push(shell);
      return shell;
    };

    before(async () => {
      if (transport === 'a host with --device cuda') host = await startChain(scratch.path);
      else {
        host = await startHost({
          listen: transport === 'unix' ? `unix:${scratch.path}/s` : `tcp:127.0.0.1:${PORT}`,
        });
      }
    });
    afterEach(async () => {
      for (const shell of shells.splice(0)) shell.kill();
      await until('the sessions to end', () => isIdle(host), 20_000);
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });

    it('says what the device is and that it is simulated', async () => {
      const shell = open();
      assert.deepEqual((await shell.ask('version')).values, ['13000']);
      assert.equal((await shell.ask('count')).result, 3, 'CUDA_ERROR_NOT_INITIALIZED before cuInit');
      assert.equal((await shell.ask('init 1')).result, 1, 'flags must be 0');
      assert.equal((await shell.ask('init')).result, 0);
      assert.deepEqual((await shell.ask('count')).values, ['1']);
      assert.equal((await shell.ask('device 1')).result, 101);
      assert.equal((await shell.ask('name 0')).values.join(' '), 'NVIDIA H100 80GB HBM3 (simulated)');
      assert.deepEqual((await shell.ask('total 0')).values, [String(H100), '4294967295']);
      assert.deepEqual((await shell.ask('pci 0')).values, ['0000:01:00.0', '0']);
      assert.deepEqual((await shell.ask('attribute 75 0')).values, ['9']);
      assert.deepEqual((await shell.ask('attribute 76 0')).values, ['0']);
      assert.deepEqual((await shell.ask('attribute 18 0')).values, ['0'], 'not integrated');
      assert.equal(
        (await shell.ask('attributes')).result,
        0,
        'every attribute the runtime reads has an answer',
      );
      assert.equal((await shell.ask('attribute 162 0')).result, 1);
      assert.equal(await shell.end(), 0);
      assert.equal(shell.stderr(), '');
    });

    it('carries bytes to the device and back unchanged, at sizes around every boundary', async () => {
      const shell = open();
      await askAll(shell, ['init', 'ctx 0']);
      for (const size of [1, 7, 8, 4095, 65_537, MIB - 1, MIB, MIB + 1, 5 * MIB + 3]) {
        const address = (await askAll(shell, [`alloc ${size}`])).values[0] ?? '';
        assert.equal((await shell.ask(`trip ${address} ${size} ${size}`)).result, 0, `${size} bytes`);
        assert.equal((await shell.ask(`trip ${address} ${size + 1} 1`)).result, 1, 'one byte too many');
        assert.equal((await shell.ask(`free ${address}`)).result, 0);
        assert.equal((await shell.ask(`free ${address}`)).result, 1, 'freed twice');
      }
      assert.equal((await shell.ask('trip 0x1234 8 1')).result, 1, 'an address nobody gave');
    });

    it('fills and copies on the device', async () => {
      const shell = open();
      const address = (await askAll(shell, ['init', 'ctx 0', 'alloc 4096'])).values[0] ?? '';
      const at = (offset: number): string => `0x${(BigInt(address) + BigInt(offset)).toString(16)}`;
      await askAll(shell, [`set8 ${address} 0 4096`, `set8 ${at(3)} 0xab 2`]);
      assert.equal((await shell.ask(`read ${address} 8`)).values[0], '000000abab000000');
      await askAll(shell, [`set16 ${at(16)} 0x1234 3`]);
      assert.equal((await shell.ask(`read ${at(16)} 8`)).values[0], '3412341234120000');
      await askAll(shell, [`set32 ${at(32)} 0xdeadbeef 2`]);
      assert.equal((await shell.ask(`read ${at(32)} 12`)).values[0], 'efbeaddeefbeadde00000000');
      assert.equal((await shell.ask(`set32 ${at(33)} 1 1`)).result, 1, 'misaligned');
      assert.equal((await shell.ask(`set32 ${at(4092)} 1 2`)).result, 1, 'beyond the end');
      await askAll(shell, [`copy ${at(2048)} ${at(32)} 8`]);
      assert.equal((await shell.ask(`read ${at(2048)} 8`)).values[0], 'efbeaddeefbeadde');
      assert.equal((await shell.ask(`copy ${at(4090)} ${at(32)} 8`)).result, 1);
    });

    it('tells free memory as it is and gives out no more than there is', async () => {
      const shell = open();
      const whole = (await askAll(shell, ['init', 'ctx 0', 'info'])).values.map(Number);
      assert.equal(whole[1], H100);
      const address = (await askAll(shell, [`alloc ${1024 * MIB}`])).values[0] ?? '';
      assert.equal(Number((await shell.ask('info')).values[0]), (whole[0] ?? 0) - 1024 * MIB);
      assert.equal((await shell.ask(`alloc ${H100}`)).result, 2, 'CUDA_ERROR_OUT_OF_MEMORY');
      assert.equal((await shell.ask('alloc 0')).result, 1);
      assert.equal((await shell.ask('alloc 0xffffffffffffffff')).result, 2);
      await askAll(shell, [`free ${address}`]);
      assert.equal(Number((await shell.ask('info')).values[0]), whole[0]);
    });

    it('keeps a stack of contexts for each thread and knows a handle that is none', async () => {
      const shell = open();
      await askAll(shell, ['init']);
      assert.equal((await shell.ask('info')).result, 201, 'no context');
      assert.equal((await shell.ask('pop')).result, 201);
      const first = (await askAll(shell, ['ctx 0'])).values[0] ?? '';
      const second = (await askAll(shell, ['ctx3'])).values[0] ?? '';
      assert.notEqual(first, second);
      assert.equal((await shell.ask('current')).values[0], second);
      assert.equal((await shell.ask('pop')).values[0], second);
      assert.equal((await shell.ask('current')).values[0], first);
      assert.equal((await shell.ask(`push ${second}`)).result, 0);
      assert.equal((await shell.ask('push 0xdeadbeef')).result, 201);
      assert.equal((await shell.ask('set 0xdeadbeef')).result, 201);
      const memory = (await askAll(shell, ['alloc 4096'])).values[0] ?? '';
      assert.equal((await shell.ask(`ctxdestroy1 ${second}`)).result, 0, 'the unversioned cuCtxDestroy');
      assert.equal((await shell.ask(`ctxdestroy ${second}`)).result, 201);
      assert.equal((await shell.ask('current')).values[0], first);
      assert.equal((await shell.ask(`trip ${memory} 4096 1`)).result, 1, 'its memory went with it');
      assert.equal((await shell.ask('info')).values[0], String(H100));
      const fourth = (await askAll(shell, ['ctx4'])).values[0] ?? '';
      await askAll(shell, [`ctxdestroy ${fourth}`]);
      assert.equal((await shell.ask('ctx 3')).result, 101);
    });

    it('counts who retains the primary context', async () => {
      const shell = open();
      await askAll(shell, ['init']);
      assert.deepEqual((await shell.ask('state')).values, ['0', '0']);
      const primary = (await askAll(shell, ['retain 0', 'retain 0'])).values[0] ?? '';
      assert.deepEqual((await shell.ask('state')).values, ['0', '1']);
      const flags = (await shell.ask('primaryflags 0 4')).result;
      assert.equal(flags, 708, 'CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: flags change before it is made');
      await askAll(shell, [`set ${primary}`, 'ctxdevice', 'alloc 100', 'release 0', 'info']);
      await askAll(shell, ['release 0']);
      assert.equal((await shell.ask('info')).result, 709, 'CUDA_ERROR_CONTEXT_IS_DESTROYED');
      assert.equal((await shell.ask('release 0')).result, 201);
      assert.equal((await shell.ask('retain 0')).values[0], primary);
      assert.equal(await freeMemory(shell), String(H100), 'what it held is free');
    });

    it('orders streams and events and measures time', async () => {
      const shell = open();
      const address = (await askAll(shell, ['init', 'ctx 0', `alloc ${3 * MIB}`])).values[0] ?? '';
      const stream = (await askAll(shell, ['stream'])).values[0] ?? '';
      const [start = '', end = ''] = [
        (await askAll(shell, ['event 0'])).values[0],
        (await askAll(shell, ['event 0'])).values[0],
      ];
      assert.equal((await shell.ask(`elapsed ${start} ${end}`)).result, 400, 'nothing recorded');
      await askAll(shell, [
        `record ${start} ${stream}`,
        `async ${address} ${3 * MIB} ${stream}`,
        `record ${end} ${stream}`,
        `eventsync ${end}`,
      ]);
      assert.ok(Number((await askAll(shell, [`elapsed ${start} ${end}`])).values[0]) > 0);
      for (const special of ['0', '1', '2']) await askAll(shell, [`async ${address} 1000 ${special}`]);
      assert.equal((await shell.ask(`async ${address} 1000 0x7777`)).result, 400);
      assert.equal((await shell.ask('record 0x7777 0')).result, 400);
      await askAll(shell, [`streamdestroy ${stream}`]);
      assert.equal((await shell.ask(`streamsync ${stream}`)).result, 400);
      assert.equal((await shell.ask('sync')).result, 0);
    });

    it('knows what a pointer points to', async () => {
      const shell = open();
      const address = (await askAll(shell, ['init', 'ctx 0', 'alloc 5000'])).values[0] ?? '';
      const inside = `0x${(BigInt(address) + 100n).toString(16)}`;
      assert.deepEqual((await shell.ask(`pointer ${inside}`)).values, ['2', '0', address]);
      assert.equal((await shell.ask('pointer 0x1000')).result, 1);
      const mapped = transport === 'unix'; // where the device has the same memory, the flags tell it
      assert.deepEqual((await shell.ask('pinned')).values, ['1', mapped ? '3' : '1', '0']);
    });

    it('refuses to launch what is no function', async () => {
      const shell = open();
      await askAll(shell, ['init', 'ctx 0']);
      assert.equal((await shell.ask('launch')).result, 400);
    });

    it('gives a forked child a session of its own and leaves the parent its', async () => {
      const shell = open();
      await askAll(shell, ['init', 'ctx 0']);
      assert.deepEqual((await shell.ask('fork')).values, ['0', '0']);
      assert.deepEqual(shell.extra(), ['child 3 0']);
      assert.equal((await shell.ask('info')).result, 0);
    });

    it('serves 64 threads at once', async () => {
      const shell = open();
      await askAll(shell, ['init']);
      assert.deepEqual((await shell.ask('threads 64 12', 60_000)).values, ['0']);
      assert.equal((await shell.ask('ctx 0')).result, 0);
      assert.equal(await freeMemory(shell), String(H100), 'every thread freed what it took');
    });

    it('starts once however many threads begin', async () => {
      const shell = open();
      assert.deepEqual((await shell.ask('initmany 64')).values, ['64']);
      assert.equal((await shell.ask('count')).values[0], '1');
    });
  });
}

describe('errors by name', () => {
  it('has a name and a text for each, none for what is no error', async () => {
    const shell = startShell({ VGPU_HOST: 'unix:/nonexistent' });
    try {
      assert.equal(
        (await shell.ask('error 100')).values.join(' '),
        'CUDA_ERROR_NO_DEVICE no CUDA-capable device is detected',
      );
      assert.equal((await shell.ask('error 0')).values.join(' '), 'CUDA_SUCCESS no error');
      assert.equal(
        (await shell.ask('error 801')).values.join(' '),
        'CUDA_ERROR_NOT_SUPPORTED operation not supported',
      );
      assert.equal((await shell.ask('error 12345')).result, 1);
    } finally {
      shell.kill();
    }
  });
});
