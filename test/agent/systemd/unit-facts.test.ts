import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assignments, lastAssignment } from '../../../agent/lib/unit-file.js';
import { bagOf, count, hex, structs, texts } from '../../../agent/systemd/properties.js';
import { type UnitSources, unitFacts } from '../../../agent/systemd/unit-facts.js';

const sources: UnitSources = {
  name: 'x.service',
  unit: { LoadState: 'loaded', Id: 'x.service' },
  service: {},
  fragment: '',
  dropIns: [],
};

function loaded(over: Partial<UnitSources>) {
  const facts = unitFacts({ ...sources, ...over });
  assert.ok(facts.kind === 'loaded', facts.kind);
  return facts;
}

test('variants are unpacked, and 64-bit integers become numbers', () => {
  const bag = bagOf({
    NRestarts: { signature: 't', value: 7n },
    Environment: { signature: 'as', value: ['A=1'] },
  });
  assert.equal(count(bag, 'NRestarts'), 7);
  assert.deepEqual(texts(bag, 'Environment'), ['A=1']);
});

test('a property of an unexpected type reads as nothing, never as a crash', () => {
  const bag = { Environment: 7, InvocationID: 'x', EnvironmentFiles: 'y' };
  assert.deepEqual(texts(bag, 'Environment'), []);
  assert.equal(hex(bag, 'InvocationID'), null);
  assert.deepEqual(structs(bag, 'EnvironmentFiles'), []);
  assert.deepEqual(bagOf(null), {});
});

test('the invocation ID is hex, and null before the first start', () => {
  assert.equal(hex({ InvocationID: Buffer.from([0xab, 0x01]) }, 'InvocationID'), 'ab01');
  assert.equal(hex({ InvocationID: Buffer.alloc(0) }, 'InvocationID'), null);
});

test('a value of the environment may hold an equals sign, spaces and nothing', () => {
  const { environment } = loaded({ service: { Environment: ['A=b=c', 'B=two words', 'C='] } });
  assert.deepEqual(environment, { A: 'b=c', B: 'two words', C: '' });
});

test('an output file is named by path, from the file that speaks last', () => {
  const facts = loaded({
    service: { StandardOutput: 'append', StandardError: 'inherit' },
    fragment: '[Service]\nStandardOutput=append:/var/log/old.log\n',
    dropIns: [
      {
        path: '/d',
        content: '[Unit]\nStandardOutput=append:/wrong\n[Service]\nStandardOutput=append:/var/log/%N.log\n',
      },
    ],
  });
  assert.equal(facts.standardOutput, 'append:/var/log/x.log');
  assert.equal(facts.standardError, 'append:/var/log/x.log');
});

test('reads the journal namespace of a unit, its LogLevelMax if that drops lines, and its limits', () => {
  const logging = (service: UnitSources['service']) => loaded({ service }).logging;
  const usual = { LogNamespace: '', LogLevelMax: -1, SyslogLevel: 6, LogRateLimitBurst: 0 };
  assert.equal(logging(usual), undefined);
  assert.equal(logging({}), undefined);
  const none = { namespace: '', levelMax: null, burst: null, intervalMs: null };
  assert.deepEqual(logging({ ...usual, LogNamespace: 'apart' }), { ...none, namespace: 'apart' });
  assert.deepEqual(logging({ ...usual, LogLevelMax: 4 }), { ...none, levelMax: 'warning' });
  assert.equal(logging({ ...usual, LogLevelMax: 4, SyslogLevel: 4 }), undefined);
  assert.deepEqual(logging({ LogRateLimitBurst: 40, LogRateLimitIntervalUSec: 3_600_000_000n }), {
    ...none,
    burst: 40,
    intervalMs: 3_600_000,
  });
});

test('no restriction of address families differs from a list that allows none', () => {
  const restriction = (value: unknown) =>
    loaded({ service: { RestrictAddressFamilies: value } }).sandbox.restrictAddressFamilies;
  assert.equal(restriction([false, []]), null);
  assert.deepEqual(restriction([true, []]), { deny: false, families: [] });
  assert.deepEqual(restriction([true, ['AF_INET']]), { deny: false, families: ['AF_INET'] });
  assert.deepEqual(restriction([false, ['AF_UNIX']]), { deny: true, families: ['AF_UNIX'] });
});

test('a system call filter is read with its kind, without its error names; an empty one counts as none', () => {
  const filter = (value: unknown) =>
    loaded({ service: { SystemCallFilter: value } }).sandbox.systemCallFilter;
  assert.deepEqual(filter([true, ['read', 'write:EPERM']]), { deny: false, calls: ['read', 'write'] });
  assert.deepEqual(filter([false, ['mount']]), { deny: true, calls: ['mount'] });
  assert.equal(filter([false, []]), null);
  assert.equal(filter(undefined), null);
});

test('denied and allowed addresses are written with their prefix; what is no address is left out', () => {
  const { ipAddressDeny } = loaded({
    service: {
      IPAddressDeny: [
        [2, Buffer.from([10, 0, 0, 0]), 8],
        [10, [0xfe, 0x80, ...Array.from({ length: 14 }, () => 0)], 64],
        [2, [1, 2], 8],
        ['x'],
      ],
    },
  }).sandbox;
  assert.deepEqual(ipAddressDeny, ['10.0.0.0/8', 'fe80:0:0:0:0:0:0:0/64']);
});

test("a bad unit has systemd's reason", () => {
  const facts = unitFacts({
    ...sources,
    unit: {
      LoadState: 'bad-setting',
      LoadError: ['org.freedesktop.systemd1.BadUnitSetting', 'Unit x.service has a bad unit file setting.'],
    },
  });
  assert.deepEqual(facts, {
    kind: 'bad',
    name: 'x.service',
    loadState: 'bad-setting',
    message: 'Unit x.service has a bad unit file setting.',
  });
});

test('comments, continued lines and other sections are not taken for assignments', () => {
  const file = `[Service]
# ExecStart=/no
ExecStart=/bin/a \\
# a comment in between
  --flag
Environment=A=1
[Install]
Environment=B=2
`;
  assert.deepEqual(assignments([file], 'Service', 'ExecStart'), ['/bin/a  --flag']);
  assert.deepEqual(assignments([file], 'Service', 'Environment'), ['A=1']);
});

test('an empty assignment clears the values before it', () => {
  assert.equal(lastAssignment(['[Service]\nX=1\n', '[Service]\nX=\n'], 'Service', 'X'), null);
});
