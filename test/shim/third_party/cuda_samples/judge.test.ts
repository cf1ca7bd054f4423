import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { judge } from './judge.js';

const quiet = { host: '', guest: '' };
const refused =
  'vgpu-hostd: session 1: kernel dot_kernel cannot be run here: its module has only machine code, no PTX; a real GPU runs it';

describe('judge of a sample', () => {
  it('passes what ends with 0 and names no failure', () => {
    assert.deepEqual(judge({ status: 0, text: 'Result = PASS' }, quiet, 1000), { kind: 'passed' });
  });

  it('takes a failure in the text for one, whatever the exit status', () => {
    const { kind } = judge({ status: 0, text: 'a\nTest FAILED!' }, quiet, 1000);
    assert.equal(kind, 'failed');
  });

  it('does not pass a sample whose kernel was refused, though it ends with 0', () => {
    assert.deepEqual(
      judge({ status: 0, text: 'Error amount = 1.000000' }, { host: refused, guest: '' }, 1000),
      {
        kind: 'refused',
        why: 'kernel dot_kernel cannot be run here: its module has only machine code, no PTX; a real GPU runs it',
      },
    );
  });

  it('names the refused kernel, not another refusal before it', () => {
    const guest =
      'vgpu[7]: the private table x is not known: each of its functions answers that it is not supported';
    const outcome = judge({ status: 1, text: 'error' }, { host: refused, guest }, 1000);
    assert.match(outcome.kind === 'refused' ? outcome.why : '', /^kernel dot_kernel /);
  });

  it('names a refused call where no kernel was refused', () => {
    const outcome = judge(
      { status: 1, text: '' },
      { host: '', guest: 'vgpu[7]: cuX is not supported' },
      1000,
    );
    assert.deepEqual(outcome, { kind: 'refused', why: 'cuX is not supported' });
  });

  it('tells waived, killed and failed apart', () => {
    assert.equal(judge({ status: 2, text: 'no second GPU' }, quiet, 1000).kind, 'waived');
    assert.deepEqual(judge({ status: null, text: 'on its way' }, quiet, 1000), {
      kind: 'failed',
      why: 'killed or not done after 1 s; on its way',
    });
    assert.deepEqual(judge({ status: 1, text: 'CUDA error 700' }, quiet, 1000), {
      kind: 'failed',
      why: 'status 1: CUDA error 700',
    });
  });
});
