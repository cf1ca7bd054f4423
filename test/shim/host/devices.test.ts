/** Which of the host's devices a guest sees: devices= of hostd.conf, for both kinds of device. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { fetched } from '../nvml/hostd.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  startChain,
  startHost,
  startShell,
  VARIANT,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { hello, op, WireClient, words } from '../wire/wire_client.js';
import { standInNvml, startStandIn } from './stand_in.js';
import { profile, twoDevices } from './two_devices.js';

const MIB = 1 << 20;
const H200 = 'NVIDIA H200 (simulated)';
const A100 = 'NVIDIA A100-SXM4-40GB (simulated)';
const TWO = ['--profile', 'a100-40gb', '--profile', 'h200'];
const NO_DEVICE = 100;
const INVALID_DEVICE = 101;
const PORT = await freePort();
const fetchedSmi = await fetched('driver-550', 'usr/lib/nvidia/current/nvidia-smi');
/** It loads the library as it is, which one with a sanitizer does not allow. */
const smi = VARIANT === 'shim' && fetchedSmi.skip === false ? fetchedSmi.path : undefined;

const uuidOf = (name: string): string => profile(name).devices[0]?.uuid ?? '';

/** The devices that a guest at this address sees: names and UUIDs in order, by libcuda and by libnvidia-ml. */
async function seen(address: string): Promise<{ readonly names: string[]; readonly uuids: string[] }> {
  const shell = startShell({ VGPU_HOST: address });
  try {
    await askAll(shell, ['init']);
    const count = Number((await askAll(shell, ['count'])).values[0]);
    const names: string[] = [];
    const uuids: string[] = [];
    for (let i = 0; i < count; i++) {
      names.push((await askAll(shell, [`name ${i}`])).values.join(' '));
      const hex = (await askAll(shell, [`uuid ${i}`])).values[0] ?? '';
      uuids.push(`GPU-${hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')}`);
    }
    assert.equal((await shell.ask(`ctx ${count}`)).result, INVALID_DEVICE, 'one more than there are');
    if (smi !== undefined) {
      const told = await runProgram(smi, ['-L'], {
        env: { LD_LIBRARY_PATH: SHIM, VGPU_HOST: address },
        limit: 20_000,
      });
      assert.deepEqual(
        told.stdout.trim().split('\n'),
        names.map((name, i) => `GPU ${i}: ${name} (UUID: ${uuids[i]})`),
      );
    }
    return { names, uuids };
  } finally {
    shell.kill();
  }
}

describe('the devices that a guest sees', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  let address = '';
  let file = '';
  const conf = (text: string): readonly string[] => {
    writeFileSync(file, text);
    return ['--config', file, '--control', `${scratch.path}/control`];
  };
  const kept = (host: Host): Host => {
    hosts.push(host);
    return host;
  };
  const software = async (text: string, args: readonly string[] = TWO): Promise<Host> =>
    kept(await startHost({ listen: address, args: [...args, ...conf(text)] }));
  const status = async (): Promise<{
    readonly devices: readonly { readonly uuid: string; readonly used: number }[];
    readonly sessions: readonly { readonly devices: readonly number[] }[];
  }> => {
    const told = await runProgram(builtFile('vgpu-hostd'), [
      ...['status', '--json', '--control', `${scratch.path}/control`],
    ]);
    return JSON.parse(told.stdout);
  };
  const open = (): Shell => {
    const shell = startShell({ VGPU_HOST: address });
    shells.push(shell);
    return shell;
  };

  beforeEach(() => {
    scratch = scratchDirectory();
    address = `unix:${scratch.path}/s`;
    file = `${scratch.path}/c`;
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const host of hosts) await host.stop();
    [hosts, shells] = [[], []];
    scratch.remove();
  });

  it('are all of them where nothing chooses, and by peer where the file does', async () => {
    await software('allow tcp devices=1\nallow unix\n', [...TWO, '--listen', `tcp:127.0.0.1:${PORT}`]);
    assert.deepEqual((await seen(address)).names, [A100, H200]);
    assert.deepEqual(await seen(`tcp:127.0.0.1:${PORT}`), { names: [H200], uuids: [uuidOf('h200')] });
  });

  it('are those of the limits lines above, in the order that is written, by index or UUID', async () => {
    for (const [text, names] of [
      ['limits devices=1,0\nallow unix\n', [H200, A100]],
      ['limits devices=1\nallow unix devices=all\n', [A100, H200]],
      [`limits devices=1\nallow unix devices=${uuidOf('a100-40gb')}\n`, [A100]],
      [`allow unix devices=${uuidOf('h200').slice(0, 17).toUpperCase()}\n`, [H200]],
      [`allow unix devices=1,${uuidOf('a100-40gb')}\n`, [H200, A100]],
    ] as const) {
      const host = await software(text);
      assert.deepEqual((await seen(address)).names, names, text);
      await host.stop();
    }
  });

  it('hold what a guest allocates: the host counts it for the device that was meant', async () => {
    await software('allow unix devices=1 memory=64M\n');
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${5 * MIB}`]);
    const now = await status();
    assert.equal(now.devices[0]?.used, 0);
    assert.ok((now.devices[1]?.used ?? 0) >= 5 * MIB);
    assert.equal(now.devices[1]?.uuid, uuidOf('h200'));
    assert.deepEqual(now.sessions[0]?.devices, [1]);
    assert.equal((await shell.ask(`alloc ${60 * MIB}`)).result, 2, 'the limit of the peer holds there');
    if (smi !== undefined) {
      const told = await runProgram(smi, ['--query-gpu=memory.used,memory.total', '--format=csv,noheader'], {
        env: { LD_LIBRARY_PATH: SHIM, VGPU_HOST: address },
      });
      assert.match(told.stdout, /^[5-9] MiB, 64 MiB\n$/);
    }
  });

  it('are all that a guest can ask for, whatever it sends', async () => {
    await software('allow unix devices=1\n');
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'socket');
    const [FACTS, USAGE, PROCESSES, INVALID] = [3, 4, 5, 3];
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(16n, 1, 0))).status, INVALID_DEVICE);
    assert.equal(
      (await client.call(op('cuDevicePrimaryCtxRetain'), words(17n, 1, 0))).status,
      INVALID_DEVICE,
    );
    const facts = await client.call(FACTS, words(0, 32));
    assert.equal(facts.body.readUInt32LE(0), 1, 'one device');
    assert.ok(facts.bulk.toString('latin1').startsWith(H200));
    assert.equal((await client.call(FACTS, words(2, 1))).status, INVALID);
    for (const device of [1, 2, 31, 32, 0xffff_ffff])
      for (const opcode of [USAGE, PROCESSES])
        assert.equal((await client.call(opcode, words(device, 0))).status, INVALID, `${opcode} of ${device}`);
    client.close();
    const asking = await WireClient.open(`${scratch.path}/s`, 'socket');
    asking.send(hello(3));
    // vgpu_welcome: the number of devices follows magic, versions, features and frame_max.
    assert.equal((await asking.receive())?.body.readUInt32LE(20), 1, 'nor is it told how many there are');
    asking.close();
  });

  for (const [value, complaint] of [
    ['', '"" is neither the index of a device nor a UUID'],
    ['none', '"none" is neither the index of a device nor a UUID (GPU-..., MIG-...); "all" is every device'],
    ['0,', '"" is neither'],
    ['0;1', '"0;1" is neither'],
    ['-1', '"-1" is neither'],
    ['GPU-xyz', '"GPU-xyz" is neither'],
    ['GPU-', '"GPU-" is neither'],
    ['2', 'this host has no device 2; it has 2, and the first is 0'],
    ['0,0', 'device 0 is named twice'],
    [`1,${uuidOf('h200')}`, 'device 1 is named twice'],
    ['GPU-ffffffff', 'the UUID of no device of this host begins with "GPU-ffffffff"'],
    [uuidOf('h200').replace('GPU', 'MIG'), 'the UUID of no device of this host begins with "MIG-'],
  ] as const) {
    it(`cannot be "${value}": it says why, and does not start`, async () => {
      writeFileSync(file, `# devices\nallow unix devices=${value}\n`);
      for (const more of [['--check-config'], ['--listen', address]]) {
        const told = await runProgram(builtFile('vgpu-hostd'), [
          ...['--device', 'software', ...TWO, '--config', file, ...more],
        ]);
        assert.equal(told.code, 2, told.stdout);
        assert.ok(told.stderr.includes(`${file}: line 2: devices="${value}": ${complaint}`), told.stderr);
      }
    });
  }

  it('cannot be chosen by a beginning that several UUIDs have, nor for a peer that is denied', async () => {
    for (const [text, complaint] of [
      ['allow unix devices=GPU-5a0d\n', /the UUID of several devices of this host begins with "GPU-5a0d"/],
      ['deny unix devices=0\n', /line 1: devices= has no meaning for a peer that is denied/],
    ] as const) {
      writeFileSync(file, text);
      const told = await runProgram(builtFile('vgpu-hostd'), [
        ...['--device', 'software', '--profile', 'h100-80gb', '--profile', 'h100-80gb'],
        ...['--config', file, '--check-config'],
      ]);
      assert.equal(told.code, 2);
      assert.match(told.stderr, complaint);
    }
  });

  it('can be changed by a reload, for new sessions; one that the host does not have is refused', async () => {
    const host = await software('allow unix devices=0\n');
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${MIB}`]);
    writeFileSync(file, 'allow unix devices=5\n');
    host.signal('SIGHUP');
    await host.logged(
      /not reloaded, the former rules stay in force: .*devices="5": this host has no device 5/,
    );
    assert.deepEqual((await seen(address)).names, [A100]);
    writeFileSync(file, 'allow unix devices=1\n');
    host.signal('SIGHUP');
    await host.logged(/hostd.conf was read again/);
    assert.deepEqual((await seen(address)).names, [H200]);
    await askAll(shell, [`alloc ${MIB}`]);
    assert.equal((await shell.ask('name 0')).values.join(' '), A100, 'sessions go on as they began');
  });

  it('are chosen of a real driver by CUDA_VISIBLE_DEVICES in the worker, so that it knows no other', async () => {
    kept(await startChain(scratch.path, TWO, conf('allow unix devices=1\n')));
    assert.deepEqual(await seen(address), { names: [H200], uuids: [uuidOf('h200')] });
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${5 * MIB}`, 'use 1']);
    assert.equal((await status()).devices[0]?.used, 0);
    assert.ok(((await status()).devices[1]?.used ?? 0) >= 5 * MIB);
  });
});

describe('the devices of a driver with several', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host | undefined;
  let address = '';
  const start = async (
    stand: string,
    text: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<Host> => {
    writeFileSync(`${scratch.path}/c`, text);
    host = await startStandIn(stand, {
      listen: address,
      profile: twoDevices(`${scratch.path}/two.json`),
      args: ['--nvml-library', await standInNvml(), '--config', `${scratch.path}/c`],
      env,
    });
    return host;
  };
  beforeEach(() => {
    scratch = scratchDirectory();
    address = `unix:${scratch.path}/s`;
  });
  afterEach(async () => {
    await host?.stop();
    host = undefined;
    scratch.remove();
  });

  it('are chosen by peer, and used', async () => {
    await start('always', 'allow unix devices=1\n');
    assert.deepEqual((await seen(address)).names, [H200]);
    const shell = startShell({ VGPU_HOST: address });
    await askAll(shell, ['use 1']);
    shell.kill();
  });

  it('are refused when the driver shows others than those chosen', async () => {
    const here = await start('blind', 'allow unix devices=1\n');
    const shell = startShell({ VGPU_HOST: address });
    await askAll(shell, ['init']);
    assert.equal((await shell.ask('ctx 0')).result, NO_DEVICE);
    await here.logged(/the driver shows this worker 2 devices, and not the 1 that hostd\.conf chose/);
    shell.kill();
  });

  it('may be instances of one GPU, each chosen by its UUID, the first where nothing chooses', async () => {
    const uuids = ['a100-40gb', 'h200'].map((name) => uuidOf(name).slice(4));
    const MIG = { STAND_IN_MIG: uuids.join() };
    const here = await start('mig', `allow unix devices=MIG-${uuids[1]}\n`, MIG);
    await here.logged(/device 1: NVIDIA H200/);
    assert.deepEqual((await seen(address)).names, [H200]);
    await here.stop();
    await start('mig', 'allow unix\n', MIG);
    assert.deepEqual((await seen(address)).names, [A100]);
    await host?.stop();
    await assert.rejects(
      start('mig', 'allow unix devices=0,1\n', MIG),
      /CUDA shows one process a single MIG instance, and no other device beside it: name one/,
    );
  });
});
