/** The transport of a service's calls: its own sessions come before the probe. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostSession } from '../../../agent/contracts/sessions.js';
import { carrierOf } from '../../../agent/verdict/decide.js';
import { answered, hostWord, unit } from './support.js';

const first: HostSession = {
  ...{ session: 3, age: 1_000, memory: 4_096, launches: 9, calls: 99, refused: 0, lastRefusal: 0 },
  carrier: 'rings',
  claimed: { library: 'libcuda', pid: 140, pidNamespace: 0, program: 'llama-server' },
};
const one = (carrier: HostSession['carrier']): HostSession => ({ ...first, carrier });
const nvml: HostSession = { ...one('tcp'), claimed: { ...first.claimed, library: 'libnvidia-ml' } };

function carrier(
  own: readonly HostSession[],
  endpoint = 'unix:/run/vgpu/hostd.sock',
  environment: Readonly<Record<string, string>> = {},
): string | undefined {
  const told = { kind: 'told', own, processes: 1, others: 0, turnedAway: null } as const;
  const sessions = { ...told, refusedKernels: null, memory: null };
  return carrierOf({
    present: { loaded: { kind: 'unasked' }, sessions },
    probe: answered({ host: hostWord('ok', { carrier: 'tcp' }) }),
    unit: unit({ environment }),
    endpoint,
  });
}

test('the sessions of its processes come before the probe, and the slowest is named', () => {
  for (const known of ['rings', 'vm-memory', 'unix', 'vsock'] as const)
    assert.equal(carrier([one(known)]), known);
  assert.equal(carrier([one('vm-memory'), one('vsock'), one('vm-memory')]), 'vsock');
});

test("without a session, or where the host does not tell, the probe's transport counts", () => {
  for (const own of [[], [one('none')], [nvml]]) assert.equal(carrier(own), 'tcp');
});

test('a stream has the name that it has in this machine', () => {
  assert.equal(carrier([one('unix')], 'vsock:2:14833'), 'vsock');
  assert.equal(carrier([one('unix')], undefined, { VGPU_HOST: 'vsock:2:14833' }), 'vsock');
  assert.equal(carrier([one('unix')], 'nowhere'), 'unix');
  assert.equal(carrier([one('vm-memory')], 'vsock:2:14833'), 'vm-memory');
});
