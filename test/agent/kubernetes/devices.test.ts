// The shares of GPUs, and what a container that was given some of them gets.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cdiSpec } from '../../../agent/install/plan/container.js';
import { gpusIn, grant, prefer, sharesOf } from '../../../agent/kubernetes/devices.js';

const spec = (kind: string, devices: number): string =>
  JSON.stringify(cdiSpec({ kind, storeId: 'id', endpoint: 'unix:/run/vgpu/hostd.sock', devices }));
const ids = (shares: ReturnType<typeof sharesOf>): readonly string[] => shares.map(({ id }) => id);

test('offers the GPUs that the CDI file of the agent numbers', () => {
  assert.deepEqual(gpusIn(spec('vgpu.org/gpu', 2)), [0, 1]);
  assert.deepEqual(gpusIn(spec('nvidia.com/gpu', 2)), []);
  assert.deepEqual(gpusIn('not a CDI file'), []);
});

test('divides each GPU, or some of them', () => {
  assert.deepEqual(ids(sharesOf([0, 1], 1)), ['0-0', '1-0']);
  assert.deepEqual(ids(sharesOf([0, 1], 2)), ['0-0', '0-1', '1-0', '1-1']);
  assert.deepEqual(ids(sharesOf([0, 1, 2], [1, 2])), ['0-0', '1-0', '1-1', '2-0']);
});

test('grants one GPU by its CDI device, however many shares of it were requested', () => {
  const shares = sharesOf([0, 1], 2);
  const value = { envs: {}, cdi_devices: [{ name: 'vgpu.org/gpu=1' }] };
  assert.deepEqual(grant(shares, ['1-0']), { kind: 'answer', value });
  assert.deepEqual(grant(shares, ['1-0', '1-1']), { kind: 'answer', value });
});

test('grants several GPUs by the device that sets no CUDA_VISIBLE_DEVICES, and by that variable', () => {
  const value = { envs: { CUDA_VISIBLE_DEVICES: '0,2' }, cdi_devices: [{ name: 'vgpu.org/gpu=all' }] };
  assert.deepEqual(grant(sharesOf([0, 1, 2], 1), ['2-0', '0-0']), { kind: 'answer', value });
  const all = cdiSpec({ kind: 'vgpu.org/gpu', storeId: 'id', endpoint: 'vsock:2:1', devices: 3 }).devices[0];
  assert.doesNotMatch(JSON.stringify(all), /CUDA_VISIBLE_DEVICES/);
});

test('refuses a device that the node does not have, and a request for none', () => {
  const shares = sharesOf([0], 1);
  for (const id of ['1-0', '0-1', '', '0', '__proto__', '0-0\n', `0-${'0'.repeat(5000)}`]) {
    const answer = grant(shares, ['0-0', id]);
    assert.equal(answer.kind, 'wrong', id);
    assert.ok(JSON.stringify(answer).length < 300);
  }
  assert.equal(grant(shares, []).kind, 'wrong');
});

test('prefers different GPUs, and of these the one with most shares left', () => {
  const shares = sharesOf([0, 1, 2], 3);
  const left = ['0-1', '0-2', '1-0', '1-1', '1-2', '2-0'];
  const value = (answer: ReturnType<typeof prefer>): unknown =>
    answer.kind === 'answer' ? answer.value : answer.reason;
  const some = (count: number, required: readonly string[] = []) =>
    value(prefer(shares, { available: left, required, count }));
  assert.deepEqual(some(1), ['1-0']);
  assert.deepEqual(some(3), ['1-0', '0-1', '2-0']);
  assert.deepEqual(some(2, ['1-2']), ['1-2', '0-1']);
  assert.deepEqual(some(6), ['1-0', '0-1', '2-0', '1-1', '0-2', '1-2']);
  assert.match(String(some(7)), /7 devices were requested, and 6 are available/);
  assert.match(
    String(value(prefer(shares, { available: ['9-9'], required: [], count: 1 }))),
    /no device "9-9"/,
  );
});
