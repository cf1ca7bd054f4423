import assert from 'node:assert/strict';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type Ended, runProgram } from '../cuda/private_programs.js';
import { type Hostd, SHIM, startHostd } from '../nvml/hostd.js';

const PROBE = path.join(SHIM, 'vgpu-probe');

interface Answer {
  readonly ok: boolean;
  readonly simulated: boolean;
  readonly library: string | null;
  readonly devices: readonly { readonly name: string; readonly memory: number; readonly pci: string }[];
  readonly roundTrip: { readonly ok: boolean; readonly bytes: number } | null;
  readonly nvml: { readonly ok: boolean; readonly driver: string | null; readonly error: string | null };
  readonly error: {
    readonly step: string;
    readonly code: number | null;
    readonly name: string | null;
  } | null;
}

describe('vgpu-probe through the built libraries and vgpu-hostd', () => {
  let host: Hostd;
  beforeEach(async () => {
    host = await startHostd();
  });
  afterEach(() => host.stop());

  async function probe(args: readonly string[] = []): Promise<Ended & { readonly answer: Answer }> {
    const ended = await runProgram(PROBE, args, { env: host.env, limit: 30_000 });
    assert.equal(ended.stderr, '');
    return { ...ended, answer: JSON.parse(ended.stdout) as Answer };
  }

  it('finds the simulated device and carries a megabyte there and back', async () => {
    const { code, answer } = await probe();
    assert.equal(code, 0);
    assert.equal(answer.ok, true);
    assert.equal(answer.simulated, true);
    assert.equal(answer.library, path.join(SHIM, 'libcuda.so.1'));
    assert.deepEqual(
      answer.devices.map(({ name, memory, pci }) => [name, memory, pci]),
      [['NVIDIA H100 80GB HBM3 (simulated)', 85017755648, '0000:01:00.0']],
    );
    assert.equal(answer.roundTrip?.ok, true);
    assert.deepEqual(answer.nvml, { ok: true, driver: '580.65.06', error: null });
    assert.equal(answer.error, null);
  });

  it('shows the profile that the host was given', async () => {
    await host.stop();
    host = await startHostd(['--profile', 't4']);
    const { answer } = await probe();
    assert.equal(answer.devices[0]?.name, 'Tesla T4 (simulated)');
    assert.equal(answer.devices[0]?.memory, 15828320256);
  });

  it('a host that has gone is CUDA_ERROR_NO_DEVICE, at once', async () => {
    await host.stop();
    const { code, answer, milliseconds } = await probe();
    assert.equal(code, 1);
    assert.deepEqual([answer.error?.step, answer.error?.code], ['cuInit', 100]);
    assert.equal(answer.error?.name, 'CUDA_ERROR_NO_DEVICE');
    assert.deepEqual(answer.devices, []);
    assert.equal(answer.nvml.ok, false);
    assert.ok(milliseconds < 9000, `${milliseconds} ms`);
  });

  it('a frozen host is an answer within the limit', async () => {
    host.process.kill('SIGSTOP');
    const { code, answer, milliseconds } = await probe();
    assert.equal(code, 1);
    assert.equal(answer.ok, false);
    assert.equal(answer.error?.step, 'cuInit');
    assert.ok(milliseconds < 40_000, `${milliseconds} ms`);
    const short = await probe(['--timeout', '1']);
    assert.equal(short.code, 1);
    assert.ok(short.milliseconds < 9000, `${short.milliseconds} ms`);
  });
});
