// How often a program has to wait for the host. Counted in frames, which no busy machine changes.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  scratchDirectory,
  startHost,
  startShell,
  until,
  VARIANT,
} from '../shim_host.js';
import { type Relay, startRelay } from './counting_relay.js';
import { op } from './wire_client.js';

const run = promisify(execFile);

async function withoutNvcc(): Promise<string | false> {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return run('nvcc', ['--version']).then(
    () => false,
    () => "no nvcc here: NVIDIA's runtime is not counted, only the driver API",
  );
}

/** VGPU_OP_GOODBYE of shim-src/wire/frame.h: of a process that ends. */
const GOODBYE = 10;

const skip = await withoutNvcc();

describe('the round trips of a program', () => {
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

  it('are two for all properties of a device, greeting included', async () => {
    const shell = startShell({ VGPU_HOST: relay.address, VGPU_TRANSPORT: 'socket' });
    await askAll(shell, [
      'init 0',
      'count',
      'device 0',
      'name 0',
      'uuid 0',
      'pci 0',
      'total 0',
      'attributes 0',
    ]);
    await askAll(shell, ['name 0', 'uuid 0', 'pci 0', 'total 0', 'attributes 0']);
    assert.equal(await shell.end(), 0);
    await until('all it sent', () => relay.guests() === 0);
    assert.deepEqual(relay.take(), { waiting: [1, 3], oneway: [GOODBYE] });
  });

  it('are one for each wait, and none for the work before it', async () => {
    const shell = startShell({ VGPU_HOST: relay.address, VGPU_TRANSPORT: 'socket' });
    await askAll(shell, ['use 1']);
    const made = await askAll(shell, ['alloc 4096']);
    const address = made.values[0] ?? '';
    relay.take();
    await askAll(shell, [`set8 ${address} 1 4096`, `set8 ${address} 2 4096`, `set32 ${address} 3 1024`]);
    await askAll(shell, ['sync']);
    const { waiting, oneway } = relay.take();
    assert.equal(oneway.length, 3);
    assert.equal(waiting.length, 1);
    await askAll(shell, ['sync', 'sync']);
    assert.deepEqual(relay.take(), { waiting: [], oneway: [] }, 'there was nothing to wait for');
    assert.equal(await shell.end(), 0);
  });

  it('are one for the first wait after memory was freed to a pool, and none for the next', async () => {
    const shell = startShell({ VGPU_HOST: relay.address, VGPU_TRANSPORT: 'socket' }, 'driver_shell');
    await askAll(shell, ['init', 'ctx 0', 'poolkeep 0']);
    const { values } = await askAll(shell, ['poolalloc 4096']);
    await askAll(shell, [`poolfree ${values[0] ?? ''}`, 'streamquery 0']);
    relay.take();
    await askAll(shell, ['sync']);
    assert.equal(relay.take().waiting.length, 1);
    await askAll(shell, ['sync', 'streamsync 0']);
    assert.deepEqual(relay.take(), { waiting: [], oneway: [] });
    assert.equal(await shell.end(), 0);
  });

  it('are one for each context in which a kernel is launched, however often and in whatever order', async () => {
    relay.take();
    const ended = await runProgram(builtFile('programs/launch_limits'), ['two_contexts'], {
      env: { VGPU_HOST: relay.address, VGPU_TRANSPORT: 'socket', LD_LIBRARY_PATH: SHIM },
      limit: 60_000,
    });
    assert.equal(ended.code, 0, ended.stderr);
    assert.equal(relay.take().waiting.filter((opcode) => opcode === op('function_load')).length, 2);
  });

  it("are two when NVIDIA's runtime tells the properties of a device", { skip }, async () => {
    const source = `${scratch.path}/properties.cu`;
    const program = path.join(scratch.path, 'properties');
    writeFileSync(
      source,
      `#include <cstdio>
       int main() {
         cudaDeviceProp properties;
         int result = cudaGetDeviceProperties(&properties, 0);
         std::printf("%d %s\\n", result, properties.name);
       }`,
    );
    await run('nvcc', ['-cudart', 'static', '-o', program, source], { maxBuffer: 1 << 24 });
    relay.take();
    const ended = await runProgram(program, [], {
      env: { VGPU_HOST: relay.address, VGPU_TRANSPORT: 'socket', LD_LIBRARY_PATH: SHIM },
      limit: 60_000,
    });
    assert.equal(ended.stdout, '0 NVIDIA H100 80GB HBM3 (simulated)\n', ended.stderr);
    assert.deepEqual(relay.take().waiting, [1, 3], 'all of it comes with the facts of the device');
  });
});
