/** Which host a unit's processes connect to. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hostOfUnit } from '../../../agent/systemd/unit-environment.js';

const guests = 'vsock:2:14833';
const file = (content: string) => [{ path: '/etc/default/ollama', content }];

test('a unit without VGPU_HOST uses the host of the guest', () => {
  assert.equal(hostOfUnit({ environment: {} }, guests), guests);
});

test('a unit that sets VGPU_HOST uses that one', () => {
  assert.equal(hostOfUnit({ environment: { VGPU_HOST: 'tcp:10.0.0.1:1' } }, guests), 'tcp:10.0.0.1:1');
});

test('an environment file wins over Environment=', () => {
  const environment = { VGPU_HOST: 'tcp:10.0.0.1:1' };
  const environmentFileContents = file('VGPU_HOST="unix:/run/x.sock"\n');
  assert.equal(hostOfUnit({ environment, environmentFileContents }, guests), 'unix:/run/x.sock');
});

test('an empty VGPU_HOST is none, as the shim reads it', () => {
  assert.equal(hostOfUnit({ environment: { VGPU_HOST: '' } }, guests), guests);
});
