/** A profile's grammar of a log: what its expressions are matched against, and what a line announces by them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VgpuError } from '../../../agent/lib/errors.js';
import { maxMatchLength } from '../../../agent/profile/patterns.js';
import type { DeviceRule, LogGrammar, ReasonRule } from '../../../agent/profile/types.js';
import {
  compileGrammar,
  type DeviceLine,
  matchesReason,
  readDevice,
  subjectOf,
  versionFits,
} from '../../../agent/verdict/log/grammar.js';
import { type Logfmt, parseLogfmt } from '../../../agent/verdict/log/logfmt.js';
import { ollama } from './support.js';

const device: DeviceRule = {
  versions: '*',
  message: '^GPU (?<library>\\S*) (?<name>\\S+)(?: (?<compute>\\S+))?$',
  fields: { library: ['lib', 'library'], compute: ['compute'], name: ['name'], pci: ['pci'] },
  fixed: {},
  gpu: ['cuda'],
  cpu: ['cpu'],
  degradedCompute: ['3.0'],
};
const empty: LogGrammar = {
  format: 'text',
  starts: [],
  version: null,
  address: null,
  devices: [],
  reasons: [],
  finished: [],
  loads: [],
};
const plain: Logfmt = { kind: 'plain' };

function announced(
  text: string,
  rule: Partial<DeviceRule> = {},
  {
    format = 'text',
    truncated = false,
  }: { readonly format?: LogGrammar['format']; readonly truncated?: boolean } = {},
): DeviceLine | null {
  const [compiled] = compileGrammar({ ...empty, format, devices: [{ ...device, ...rule }] }).devices;
  assert.ok(compiled !== undefined);
  return readDevice(compiled, text, format === 'logfmt' ? parseLogfmt(text) : plain, truncated);
}

test('a device has the values of its line, in the order of the keys, else the fixed ones', () => {
  const found = (library: string, name: string, compute: string, what: string) => ({
    kind: 'device',
    device: { library, compute, name, pci: null },
    what,
  });
  assert.deepEqual(announced('GPU CUDA H100 9.0'), found('cuda', 'H100', '9.0', 'gpu'));
  assert.deepEqual(announced('GPU CUDA H100'), found('cuda', 'H100', '', 'unusable'));
  assert.deepEqual(announced('GPU CUDA H100 3.0'), found('cuda', 'H100', '3.0', 'unusable'));
  assert.deepEqual(announced('GPU CUDA H100 0.5'), found('cuda', 'H100', '0.5', 'unusable'));
  assert.deepEqual(announced('GPU cpu x'), found('cpu', 'x', '', 'cpu'));
  assert.deepEqual(announced('GPU ROCm x 9.0'), found('rocm', 'x', '9.0', 'other'));
  assert.equal(announced('something else'), null);
  const bare = { message: '^GPU$', fixed: { library: 'CUDA', compute: '9.0' } };
  assert.deepEqual(announced('GPU', bare), found('cuda', '', '9.0', 'gpu'), 'a rule without groups');
});

test('a grammar asks for a compute capability where its lines have one, or it is fixed', () => {
  const fields = { ...device.fields, compute: [] };
  const what = (rule: Partial<DeviceRule>) => {
    const line = announced('GPU cuda x', rule);
    return line?.kind === 'device' ? line.what : line;
  };
  assert.equal(what({ fields }), 'gpu');
  assert.equal(what({ fields, fixed: { compute: '9.0' } }), 'gpu');
  assert.equal(what({ fields, fixed: { compute: '3.0' } }), 'unusable');
  assert.equal(what({}), 'unusable');
});

test('an announcement that cannot be trusted is reported, with the reason', () => {
  const why = (...given: Parameters<typeof announced>) => {
    const line = announced(...given);
    return line?.kind === 'spoilt' ? line.why : line;
  };
  assert.equal(why('GPU CUDA H100 9.0', {}, { truncated: true }), 'the line is truncated');
  assert.equal(why('GPU  H100 9.0'), 'it names no library');
  assert.equal(why('GPU', { message: '^GPU$' }), 'it names no library');
  for (const library of ['-cuda', 'cu/da', 'x'.repeat(32)])
    assert.equal(why(`GPU ${library} H100 9.0`), 'the name that it has is not a library', library);
  const record = { message: 'found' };
  assert.equal(
    why('msg=found library=cuda', record, { format: 'logfmt', truncated: true }),
    'the line is truncated',
  );
  assert.equal(why('msg=found library="cu', record, { format: 'logfmt' }), 'the line is truncated');
  for (const key of ['msg=found', 'library=cuda', 'pci=1'])
    assert.equal(
      why(`msg=found library=cuda pci=1 ${key}`, record, { format: 'logfmt' }),
      `it has ${key.split('=')[0]}= twice`,
    );
  const other = announced('msg=found library=cuda x=1 x=2', record, { format: 'logfmt' });
  assert.equal(other?.kind, 'device', 'a key that nothing is read from may');
  assert.equal(announced('msg=find library=cuda', record, { format: 'logfmt' }), null);
  assert.equal(announced('no record', record, { format: 'logfmt' }), null);
});

test('expressions are matched against the first part of a line', () => {
  const long = 'x'.repeat(maxMatchLength - 4);
  const ending = { message: 'end$', fixed: { library: 'cuda' } };
  assert.equal(announced(`${long} end and more`, ending)?.kind, 'device');
  assert.equal(announced(`${long}x end`, ending), null);
  const grammar = compileGrammar(empty);
  assert.equal(subjectOf(grammar, `${long}12345`, plain), `${long}1234`);
  assert.equal(subjectOf(grammar, 'x', parseLogfmt(`msg=${long}12345 a=b`)), `${long}1234`);
});

test('the subject is the message of a record, else the line without its prefix', () => {
  const grammar = compileGrammar({ ...empty, prefix: '\\d+ [A-Z] ' });
  assert.equal(subjectOf(grammar, '12 E hello', plain), 'hello');
  assert.equal(subjectOf(grammar, 'x 12 E hello', plain), 'x 12 E hello');
  assert.equal(subjectOf(grammar, '12 E hello', parseLogfmt('msg=other')), 'other');
  assert.equal(subjectOf(grammar, '12 E a=b', parseLogfmt('a=b')), 'a=b');
  assert.equal(subjectOf(compileGrammar(empty), '12 E hello', plain), '12 E hello');
});

test('a rule for some versions does not fit where none is known', () => {
  assert.equal(versionFits('*', null), true);
  assert.equal(versionFits('*', 'nonsense'), true);
  for (const version of [null, 'nonsense', '0.0.0', 'v0.0.0-dev'])
    assert.equal(versionFits('>=0.0.0', version), false, String(version));
  assert.equal(versionFits('>=0.13.0', '0.13.5'), true);
  assert.equal(versionFits('>=0.13.0', 'v0.14.0-rc1'), true);
  assert.equal(versionFits('>=0.13.0', '0.12.9'), false);
});

test('a reason fits by its message, its version, and every field that it names', () => {
  const rule: ReasonRule = {
    ...{ reason: 'no-device', versions: '*', message: '^failed', weight: 'reason' },
    fields: { error: '^no device', step: '^init$' },
  };
  const fits = (line: string, changes: Partial<ReasonRule> = {}, version: string | null = null) => {
    const [compiled] = compileGrammar({
      ...empty,
      format: 'logfmt',
      reasons: [{ ...rule, ...changes }],
    }).reasons;
    assert.ok(compiled !== undefined);
    return matchesReason(compiled, 'failed to begin', parseLogfmt(line), version);
  };
  assert.equal(fits('error="no device found" step=init'), true);
  assert.equal(fits('error="no device found" step=other'), false);
  assert.equal(fits('error="no device found"'), false);
  assert.equal(fits('not a record'), false);
  assert.equal(fits('error="no device" step="in'), false, 'a record that is cut');
  assert.equal(fits('not a record', { fields: {} }), true);
  assert.equal(fits('not a record', { fields: {}, message: '^other' }), false);
  assert.equal(fits('not a record', { fields: {}, versions: '>=1.0.0' }, '0.9.0'), false);
  assert.equal(fits('not a record', { fields: {}, versions: '>=1.0.0' }, '1.9.0'), true);
  const long = { fields: { error: 'end$' } };
  assert.equal(fits(`error=${'x'.repeat(maxMatchLength - 3)}end`, long), true);
  assert.equal(fits(`error=${'x'.repeat(maxMatchLength - 3)}ending`, long), true, 'its first part');
  assert.equal(fits(`error=${'x'.repeat(maxMatchLength)}end`, long), false);
});

test('one expression tells whether a line means anything: with all of them, none, or names used twice', () => {
  const { any } = compileGrammar({
    ...empty,
    starts: [{ message: '^start (?<version>\\d)', first: true }],
    version: { message: 'version (?<version>\\d)' },
    address: { message: 'listens on (?<address>\\S+)' },
    reasons: [
      { ...{ reason: 'no-device', versions: '*', fields: {}, weight: 'reason' }, message: 'broken \\p{L}' },
    ],
    finished: ['^over'],
    loads: [{ message: 'loaded', says: 'gpu' }],
  });
  for (const line of ['start 1', 'version 2', 'listens on x', 'it is broken é', 'over', 'is loaded'])
    assert.ok(any.test(line), line);
  for (const line of ['', 'x', 'listens', 'broken 1', 'not over']) assert.ok(!any.test(line), line);
  const none = compileGrammar(empty).any;
  for (const line of ['', 'x', '\n']) assert.ok(!none.test(line));
  const { loads, ...without } = empty;
  assert.deepEqual([loads, compileGrammar(without).loads], [[], []]);
  assert.ok(!compileGrammar({ ...without, finished: ['^over'] }).any.test('x'));
  assert.ok(compileGrammar(ollama.log).any.test('server config'));
});

test('an expression that is not allowed is an error of the profile', () => {
  assert.throws(
    () => compileGrammar({ ...empty, finished: ['('] }),
    (error: unknown) => {
      assert.ok(error instanceof VgpuError);
      assert.deepEqual([error.kind, error.operation], ['profile', 'compile log grammar']);
      assert.match(error.message, /^"\(": ./);
      return true;
    },
  );
});
