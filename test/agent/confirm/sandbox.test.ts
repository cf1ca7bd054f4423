import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blockedTransport } from '../../../agent/confirm/sandbox.js';
import type { SandboxFacts } from '../../../agent/machine/types.js';
import { openSandbox } from './support.js';

const unix = 'unix:/run/vgpu/hostd.sock';
const vsock = 'vsock:2:14833';
const tcp = 'tcp:127.0.0.1:14833';

function blocked(endpoint: string, changes: Partial<SandboxFacts>): string | null {
  return blockedTransport(endpoint, { ...openSandbox, ...changes })?.setting ?? null;
}

test('an open sandbox blocks nothing', () => {
  for (const endpoint of [unix, vsock, tcp, 'tcp:[::1]:14833']) assert.equal(blocked(endpoint, {}), null);
});

test('a list of allowed address families must hold the one of the transport', () => {
  const inet = { deny: false, families: ['AF_INET', 'AF_INET6'] };
  assert.match(
    blocked(unix, { restrictAddressFamilies: inet }) ?? '',
    /RestrictAddressFamilies=AF_INET AF_INET6 \(without AF_UNIX\)/,
  );
  assert.match(blocked(vsock, { restrictAddressFamilies: inet }) ?? '', /AF_VSOCK/);
  assert.equal(blocked(tcp, { restrictAddressFamilies: inet }), null);
  assert.match(
    blocked('tcp:[::1]:1', { restrictAddressFamilies: { deny: false, families: ['AF_INET'] } }) ?? '',
    /AF_INET6/,
  );
  assert.match(blocked(tcp, { restrictAddressFamilies: { deny: false, families: [] } }) ?? '', /=none/);
});

test('a list of denied address families must not', () => {
  const denied = { deny: true, families: ['AF_VSOCK'] };
  assert.match(blocked(vsock, { restrictAddressFamilies: denied }) ?? '', /~AF_VSOCK/);
  assert.equal(blocked(unix, { restrictAddressFamilies: denied }), null);
});

test('a network of its own keeps from TCP only', () => {
  assert.equal(blocked(tcp, { privateNetwork: true }), 'PrivateNetwork=yes');
  assert.equal(blocked(unix, { privateNetwork: true }), null);
  assert.equal(blocked(vsock, { privateNetwork: true }), null);
});

test('a socket under a hidden path cannot be reached', () => {
  assert.equal(blocked(unix, { inaccessiblePaths: ['-/run/vgpu'] }), 'InaccessiblePaths=/run/vgpu');
  assert.equal(blocked(unix, { inaccessiblePaths: ['/run/vgpu2', '/run/vg'] }), null);
  assert.equal(blocked(unix, { temporaryFileSystem: ['/run:ro'] }), 'TemporaryFileSystem=/run');
  assert.equal(blocked(unix, { rootDirectory: '/srv/jail' }), 'RootDirectory=/srv/jail');
  assert.equal(blocked('unix:/home/a/s.sock', { protectHome: 'yes' }), 'ProtectHome=yes');
  assert.equal(blocked(unix, { protectHome: 'yes' }), null);
  assert.equal(blocked(vsock, { inaccessiblePaths: ['/run/vgpu'], rootDirectory: '/srv/jail' }), null);
});
