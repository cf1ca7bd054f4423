/**
 * Triton through `vgpu-agent run`: its compiler gives PTX to the driver, because its ptxas is ours. The kernels compute
 * on the simulated GPU what numpy computes; wgmma and TMA on 9.0, TMA and mma.sync on 12.0, mma.sync
 * before. For 10.0 Triton's products are tcgen05, which is refused.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

/** A Triton that launches without PyTorch, where none is imported. */
const python = findPython(
  'VGPU_TEST_TRITON',
  'triton-pip',
  'import triton, numpy, sys; assert "torch" not in sys.modules and triton.__version__ >= "3.9"',
);
const skip =
  skipPython || (python === undefined && 'no Triton 3.9 without PyTorch (scripts/fetch-packages triton-pip)');

const devices = {
  '9.0': 'h100-80gb',
  '12.0': 'rtx-5090',
  '8.9': 'l40s',
  '8.6': 'rtx-3090',
  '8.0': 'a100-40gb',
} as const;

for (const [compute, profile] of Object.entries(devices)) {
  describe(`Triton on a simulated ${compute}`, {
    skip: skip || (compute !== '9.0' && !long && '--long only'),
  }, () => {
    const scratch = scratchDirectory();
    let host: Host;
    before(async () => {
      const file = path.join(ROOT, 'profiles/devices', `${profile}.json`);
      host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--profile', file] });
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });

    it('adds, multiplies, normalizes and attends as numpy does', async () => {
      const steps = ['add', 'softmax', 'matmul', 'layer-norm', 'attention'];
      // As Triton asks: with tensor maps, which devices have from 9.0 on.
      if (!compute.startsWith('8.')) steps.push('tensor-maps');
      await stepsPass(python ?? '', 'triton_steps.py', steps, host, scratch.path);
      const cache = path.join(scratch.path, 'vgpu-agent/triton/simulated');
      const images = readdirSync(cache, { recursive: true, encoding: 'utf8' }).filter((name) =>
        name.endsWith('.cubin'),
      );
      assert.ok(
        images.length >= steps.length,
        `${images.length} images in the cache that vgpu-agent run names`,
      );
      for (const name of images)
        assert.match(readFileSync(path.join(cache, name), 'latin1'), /^.*\.version .*\.entry .*\0$/s);
    });
  });
}
