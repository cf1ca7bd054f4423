/**
 * XGBoost through `vgpu-agent run`, with computed kernels. Its wheel has PTX only for 12.0 (and machine code for other
 * GPUs), so the simulated GPU is an RTX 5090.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

const python = findPython(
  'VGPU_TEST_XGBOOST',
  'xgboost-pip',
  'import xgboost; assert xgboost.build_info()["USE_CUDA"]',
);
const skip =
  skipPython || (python === undefined && 'no XGBoost with CUDA (scripts/fetch-packages xgboost-pip)');

describe('XGBoost', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--profile', 'rtx-5090'] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  it('predicts as on the CPU after classification', async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['classes'], host, scratch.path);
  });

  it('predicts as on the CPU from random real numbers with the cuts of the CPU', async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['same-cuts'], host, scratch.path);
  });

  it("cuts random real numbers where numpy does by XGBoost's rule", async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['gpu-cuts'], host, scratch.path);
  });

  it('predicts as on the CPU after regression', { skip: long ? false : '--long only' }, async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['values'], host, scratch.path);
  });
});
