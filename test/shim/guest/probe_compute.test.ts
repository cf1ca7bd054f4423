import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { SHIM, startHostd } from '../nvml/hostd.js';

const PROBE = path.join(SHIM, 'vgpu-probe');

interface Answer {
  readonly ok: boolean;
  readonly roundTrip: { readonly ok: boolean } | null;
  readonly compute: {
    readonly ok: boolean;
    readonly values: number;
    readonly wrong: number;
    readonly microseconds: number;
  } | null;
  readonly error: {
    readonly step: string;
    readonly name: string | null;
    readonly message: string;
  } | null;
}

async function probe(
  host: readonly string[],
  ...args: readonly string[]
): Promise<{ readonly code: number | null; readonly answer: Answer }> {
  const hostd = await startHostd(host);
  try {
    const { code, stdout, stderr } = await runProgram(PROBE, args, { env: hostd.env, limit: 60_000 });
    assert.equal(stderr, '');
    return { code, answer: JSON.parse(stdout) as Answer };
  } finally {
    await hostd.stop();
  }
}

/** Sums, hashes, a sum a block, and the total. */
const VALUES = 2 * 128 * 256 + 128 + 1;

describe('vgpu-probe --compute', () => {
  it('runs its kernels on the software device and finds every number right', async () => {
    const { code, answer } = await probe([], '--compute', '--timeout', '50');
    assert.equal(code, 0, JSON.stringify(answer));
    assert.equal(answer.ok, true);
    assert.deepEqual(
      { ...answer.compute, microseconds: 0 },
      { ok: true, values: VALUES, wrong: 0, microseconds: 0 },
    );
    assert.equal(answer.error, null);
  });

  it('is not fooled by a device that says success and skips kernels', async () => {
    const { code, answer } = await probe(['--software-kernels', 'skip'], '--compute', '--timeout', '50');
    assert.equal(code, 1);
    assert.equal(answer.ok, false);
    assert.equal(answer.roundTrip?.ok, true, 'its memory is fine');
    assert.equal(answer.compute?.ok, false);
    assert.equal(
      answer.compute?.wrong,
      VALUES,
      'nothing was computed, and not one number is right by chance',
    );
    assert.equal(answer.error?.step, 'compare');
    assert.match(answer.error?.message ?? '', new RegExp(`^${VALUES} of ${VALUES} numbers .* are wrong$`));
  });

  it('tells by name when the device refuses kernels', async () => {
    const { code, answer } = await probe(['--software-kernels', 'refuse'], '--compute', '--timeout', '50');
    assert.equal(code, 1);
    assert.equal(answer.compute?.ok, false);
    assert.match(answer.error?.step ?? '', /^(?:cuModuleLoadData|cuLaunchKernel|cuCtxSynchronize)$/);
    assert.equal(answer.error?.name, 'CUDA_ERROR_NOT_SUPPORTED');
  });

  it('runs no kernel without the option', async () => {
    const { code, answer } = await probe(['--software-kernels', 'refuse']);
    assert.equal(code, 0);
    assert.equal(answer.compute, null);
  });
});
