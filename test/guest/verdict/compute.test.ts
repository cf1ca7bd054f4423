// The verdict that numbers decide: kernels of our own, through the whole path, in the unit's environment.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whyNoConsumer } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { assertVerdict, evidence, ready, tell } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

test('--compute proves that the GPU computes, and finds out one that does not', { skip }, async (t) => {
  const guest = await ready(t);
  const installed = await assertVerdict(guest, await tell(guest, 'install', '--yes', '--compute'), {
    mode: 'gpu',
  });
  assert.match(evidence(installed, 'compute').join(), /^the test kernels ran there: 65665 numbers, each/);
  assert.match(installed.summary, /The test kernels compute the right numbers on it\./);

  const verified = await tell(guest, 'verify', '--compute');
  await assertVerdict(guest, verified, { mode: 'gpu' });
  const plain = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
  assert.deepEqual(evidence(plain, 'compute'), [], 'not asked, not claimed');

  // The consumer finds its device as before: only the numbers tell.
  await guest.hosts.start({ args: ['--software-kernels', 'skip'] });
  await guest.must('systemctl', 'restart', 'ollama');
  await assertVerdict(guest, await tell(guest, 'verify', '--timeout', '60'), { mode: 'gpu' });
  const skipped = await assertVerdict(guest, await tell(guest, 'verify', '--compute', '--timeout', '60'), {
    mode: 'degraded',
    reason: 'compute-failed',
  });
  assert.match(
    evidence(skipped, 'compute').join(),
    /65665 of 65665 numbers that the kernels computed are wrong/,
  );
  assert.match(evidence(skipped, 'probe').join(), /bytes were written and read back/, 'its memory is fine');
  assert.match(skipped.next ?? '', /vgpu-probe --json --compute$/);

  await guest.hosts.start({ args: ['--software-kernels', 'refuse'] });
  await guest.must('systemctl', 'restart', 'ollama');
  const refused = await assertVerdict(guest, await tell(guest, 'verify', '--compute', '--timeout', '60'), {
    mode: 'degraded',
    reason: 'compute-failed',
  });
  assert.match(evidence(refused, 'compute').join(), /CUDA_ERROR_NOT_SUPPORTED/);
});
