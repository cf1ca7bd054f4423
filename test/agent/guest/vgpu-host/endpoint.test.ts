import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  parseEndpoint,
  parseGuestConf,
  requireEndpoint,
  resolveEndpoint,
} from '../../../../agent/guest/vgpu-host/endpoint.js';
import { VgpuError } from '../../../../agent/lib/errors.js';

describe('endpoint', () => {
  it('reads the three kinds', () => {
    assert.deepEqual(parseEndpoint('unix:/run/vgpu/hostd.sock'), {
      kind: 'unix',
      path: '/run/vgpu/hostd.sock',
    });
    assert.deepEqual(parseEndpoint('unix:@vgpu'), { kind: 'unix', path: '@vgpu' });
    assert.deepEqual(parseEndpoint('vsock:2:14833'), { kind: 'vsock', cid: 2, port: 14833 });
    assert.deepEqual(parseEndpoint('tcp:127.0.0.1:14833'), {
      kind: 'tcp',
      address: '127.0.0.1',
      port: 14833,
    });
    assert.deepEqual(parseEndpoint('tcp:[::1]:1'), { kind: 'tcp', address: '::1', port: 1 });
  });

  for (const [text, reason] of [
    ['', /none of unix:, vsock: and tcp:/],
    ['localhost', /none of/],
    ['http://host', /none of/],
    ['UNIX:/x', /none of/],
    ['unix:run/x', /absolute/],
    ['unix:', /absolute/],
    ['unix:/', /empty/],
    ['unix:/a\nhost=evil', /control character/],
    ['unix:/a\0b', /control character/],
    [`unix:/${'a'.repeat(107)}`, /longer than 107 bytes/],
    [`unix:/${'ä'.repeat(54)}`, /longer than 107 bytes/],
    ['vsock:14833', /CID:PORT/],
    ['vsock:2:', /CID:PORT/],
    ['vsock:-1:5', /CID:PORT/],
    ['vsock:0x2:5', /CID:PORT/],
    ['vsock:4294967295:5', /CID/],
    ['vsock:2:0', /port/],
    ['vsock:2:4294967295', /port/],
    ['tcp:127.0.0.1', /ADDRESS:PORT/],
    ['tcp::1:5', /ADDRESS:PORT|IPv4/],
    ['tcp:example.org:5', /IPv4/],
    ['tcp:127.0.0.256:5', /IPv4/],
    ['tcp:[127.0.0.1]:5', /IPv6/],
    ['tcp:127.0.0.1:65536', /65535/],
    ['tcp:127.0.0.1:0', /65535/],
    ['tcp:127.0.0.1:123456', /ADDRESS:PORT/],
  ] as const) {
    it(`refuses ${JSON.stringify(text.slice(0, 40))} with its reason`, () => {
      const endpoint = parseEndpoint(text);
      assert.ok(endpoint.kind === 'bad');
      assert.match(endpoint.reason, reason);
    });
  }

  it('accepts the longest socket path that fits sockaddr_un', () => {
    assert.equal(parseEndpoint(`unix:/${'a'.repeat(106)}`).kind, 'unix');
  });

  it('quotes the value and says how to write one', () => {
    assert.throws(
      () => requireEndpoint('tcp:host:1', '--host'),
      (error) => {
        assert.ok(error instanceof VgpuError);
        assert.equal(error.kind, 'usage');
        assert.match(error.message, /^--host "tcp:host:1" is not an address/);
        assert.match(error.remedy ?? '', /vsock:CID:PORT/);
        return true;
      },
    );
  });

  it('takes flag, then VGPU_HOST, then guest.conf, then the socket that exists, then vsock', () => {
    const all = {
      flag: 'unix:/flag',
      environment: 'unix:/environment',
      guestConf: 'host=unix:/conf\n',
      defaultSocketExists: true,
    };
    const steps = [
      [all, 'unix:/flag', 'flag'],
      [{ ...all, flagFrom: 'agent.json' }, 'unix:/flag', 'agent.json'],
      [{ ...all, flag: null }, 'unix:/environment', 'environment'],
      [{ ...all, flag: null, environment: '' }, 'unix:/conf', 'guest.conf'],
      [
        { ...all, flag: null, environment: undefined, guestConf: null },
        'unix:/run/vgpu/hostd.sock',
        'default',
      ],
      [
        { flag: null, environment: undefined, guestConf: '# host=x\n', defaultSocketExists: false },
        'vsock:2:14833',
        'default',
      ],
    ] as const;
    for (const [sources, endpoint, from] of steps) {
      assert.deepEqual(resolveEndpoint(sources), { endpoint, from, problem: null });
    }
  });

  it('throws for a bad variable, and tells a bad guest.conf, which can be repaired', () => {
    const none = { flag: null, environment: undefined, guestConf: null, defaultSocketExists: false };
    assert.throws(() => resolveEndpoint({ ...none, environment: 'nonsense' }), /VGPU_HOST "nonsense"/);
    const found = resolveEndpoint({ ...none, guestConf: 'host=nonsense\n' });
    assert.equal(found.from, 'guest.conf');
    assert.match(found.problem ?? '', /guest\.conf: "nonsense" is not an address/);
    assert.equal(resolveEndpoint({ ...none, flag: 'unix:/x', guestConf: 'host=nonsense\n' }).problem, null);
  });

  it('reads guest.conf as the shim does', () => {
    for (const [text, host] of [
      ['host=unix:/a\n', 'unix:/a'],
      ['# comment\n\n  host = vsock:2:1  \r\n', 'vsock:2:1'],
      ['host=unix:/a\nhost=unix:/b', 'unix:/b'],
      ['host=unix:/a\nhost=\n', 'unix:/a'],
      ['hostname=x\nhosts=y\n', null],
      ['#host=x\nnonsense\n', null],
      ['', null],
    ] as const) {
      assert.equal(parseGuestConf(text), host, JSON.stringify(text));
    }
  });
});
