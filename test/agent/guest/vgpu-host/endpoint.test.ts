import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  hostInUse,
  inOrderOfUse,
  parseEndpoint,
  parseGuestConf,
  parseHosts,
  requireHosts,
  resolveEndpoint,
  splitHosts,
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
      () => requireHosts('tcp:host:1', '--host'),
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

describe('a list of hosts', () => {
  const [a, b, six] = ['unix:/run/a b,c/s', 'vsock:2:14833', 'tcp:[fe80::1]:14833'] as const;

  it('has commas or blanks between addresses, and the path of a socket may have both', () => {
    for (const text of [`${a},${b},${six}`, ` ${a} ${b}\t${six}\n`, `${a} , ${b}, ${six}`])
      assert.deepEqual(splitHosts(text), [a, b, six], JSON.stringify(text));
    assert.deepEqual(splitHosts(a), [a]);
    assert.deepEqual(splitHosts('unix:/a,'), ['unix:/a,'], 'a comma at the end belongs to the path');
    assert.deepEqual(splitHosts(`,${b}`), ['', b]);
  });

  it('is written in one way, wherever it is from', () => {
    const text = ` ${b} , ${six}`;
    const sources = { flag: null, environment: undefined, guestConf: null, defaultSocketExists: false };
    const list = `${b},${six}`;
    assert.equal(parseGuestConf(`host=${text}\n`), list);
    assert.equal(resolveEndpoint({ ...sources, flag: text }).endpoint, list);
    assert.equal(resolveEndpoint({ ...sources, environment: text }).endpoint, list);
    assert.equal(resolveEndpoint({ ...sources, guestConf: `host=${text}` }).endpoint, list);
  });

  it('names the address that is wrong, one that is there twice, and too many', () => {
    const reason = (text: string): string => {
      const parsed = parseHosts(text);
      return parsed.kind === 'bad' ? parsed.reason : 'none';
    };
    assert.match(reason(`${b},tcp:host:1`), /^"tcp:host:1": "host" is not an IPv4 address$/);
    assert.equal(reason(`${b}, ${six} ${b}`), `it names ${b} twice`);
    const many = Array.from({ length: 9 }, (_, index) => `vsock:2:${index + 1}`);
    assert.match(reason(many.join()), /^it names 9 hosts, at most 8 are possible$/);
    assert.equal(reason(many.slice(1).join()), 'none');
    assert.equal(reason('nonsense'), 'it begins with none of unix:, vsock: and tcp:', 'as of one address');
  });

  it('the host in use comes first; one that is not in the list does not count', () => {
    const list = `${a},${b},${six}`;
    assert.deepEqual(
      [hostInUse(list, six), hostInUse(list, null), hostInUse(list, 'vsock:3:1')],
      [six, a, a],
    );
    assert.equal(inOrderOfUse(list, b), `${b},${a},${six}`);
    assert.equal(inOrderOfUse(b, six), b);
  });
});
