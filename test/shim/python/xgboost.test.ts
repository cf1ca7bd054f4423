/**
 * XGBoost through `vgpu-agent run`, computed: its wheel has PTX for 12.0 only (and machine code for others), so the
 * simulated GPU is an RTX 5090.
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

  it('grows the trees of the CPU, for classes', async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['classes'], host, scratch.path);
  });

  it('grows the trees of the CPU, for values', { skip: long ? false : '--long only' }, async () => {
    await stepsPass(python ?? '', 'xgboost_steps.py', ['values'], host, scratch.path);
  });
});
