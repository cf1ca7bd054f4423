import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxFacts } from '../../../agent/contracts/unit.js';
import { blockedTransport, sandboxObstacles } from '../../../agent/systemd/unit-sandbox.js';
import { openSandbox } from '../verdict/support.js';

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

test('a /tmp of its own hides a socket in /tmp, and no other', () => {
  assert.equal(blocked('unix:/tmp/hostd.sock', { privateTmp: true }), 'PrivateTmp=yes');
  assert.equal(blocked('unix:/var/tmp/x/hostd.sock', { privateTmp: true }), 'PrivateTmp=yes');
  assert.equal(blocked(unix, { privateTmp: true }), null);
});

test('a denied address is blocked unless it is allowed too, and only over TCP', () => {
  const any = ['0.0.0.0/0', '0:0:0:0:0:0:0:0/0'];
  assert.match(blocked(tcp, { ipAddressDeny: any }) ?? '', /^IPAddressDeny=/);
  assert.match(blocked('tcp:[::1]:1', { ipAddressDeny: any }) ?? '', /^IPAddressDeny=/);
  assert.equal(blocked(tcp, { ipAddressDeny: any, ipAddressAllow: ['127.0.0.0/8'] }), null);
  assert.equal(blocked(tcp, { ipAddressDeny: ['10.0.0.0/8'] }), null);
  assert.equal(blocked(unix, { ipAddressDeny: any }), null);
  assert.equal(blocked(vsock, { ipAddressDeny: any }), null);
});

test('a filter of system calls must let a socket be made and connected', () => {
  const allowed = { deny: false, calls: ['read', 'write', 'mmap'] };
  assert.match(blocked(unix, { systemCallFilter: allowed }) ?? '', /^SystemCallFilter= without socket/);
  const more = { deny: false, calls: ['read', 'socket', 'connect'] };
  assert.equal(blocked(unix, { systemCallFilter: more }), null);
  assert.match(blocked(vsock, { systemCallFilter: { deny: true, calls: ['connect'] } }) ?? '', /connect/);
  assert.equal(blocked(unix, { systemCallFilter: { deny: true, calls: ['mount'] } }), null);
  assert.equal(blocked(unix, { systemCallFilter: null }), null);
});

function all(endpoint: string, changes: Partial<SandboxFacts>): readonly (readonly [string, string])[] {
  return sandboxObstacles(endpoint, { ...openSandbox, ...changes }).map(({ setting, keepsFrom }) => [
    keepsFrom,
    setting,
  ]);
}

test('an abstract socket is behind a private network, one with a path is not', () => {
  assert.deepEqual(all('unix:@vgpu', { privateNetwork: true }), [['host', 'PrivateNetwork=yes']]);
  assert.deepEqual(all(unix, { privateNetwork: true }), []);
  assert.deepEqual(all(vsock, { privateNetwork: true }), []);
});

test('a setting that hides the store or guest.conf blocks files with every transport', () => {
  for (const endpoint of [unix, vsock, tcp]) {
    assert.deepEqual(all(endpoint, { inaccessiblePaths: ['-/opt'] }), [
      ['files', 'InaccessiblePaths=/opt, which hides /opt/vgpu'],
    ]);
    assert.deepEqual(all(endpoint, { temporaryFileSystem: ['/etc:ro'] }), [
      ['files', 'TemporaryFileSystem=/etc, which hides /etc/vgpu/guest.conf'],
    ]);
  }
});

test('settings that block the host come before those that block files, and all are named', () => {
  assert.deepEqual(all(unix, { inaccessiblePaths: ['/opt', '/run'], rootDirectory: '/srv' }), [
    ['host', 'InaccessiblePaths=/run'],
    ['host', 'RootDirectory=/srv'],
    ['files', 'InaccessiblePaths=/opt, which hides /opt/vgpu'],
    ['files', 'RootDirectory=/srv, which hides /opt/vgpu and /etc/vgpu/guest.conf'],
  ]);
  assert.equal(blocked(vsock, { rootDirectory: '/srv' }), null);
});
