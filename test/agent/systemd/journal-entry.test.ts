import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseEntry } from '../../../agent/systemd/journal-reader.js';

const base = { __CURSOR: 's=1', __REALTIME_TIMESTAMP: '1795252117763208' };
const parse = (fields: object) => parseEntry(JSON.stringify({ ...base, ...fields }));

test('an ordinary line has its message, process and start', () => {
  assert.deepEqual(parse({ MESSAGE: 'hello', _PID: '42', _SYSTEMD_INVOCATION_ID: 'ab' }), {
    cursor: 's=1',
    message: 'hello',
    pid: 42,
    invocationId: 'ab',
  });
});

test('bytes that are not UTF-8 are replaced', () => {
  assert.equal(parse({ MESSAGE: [98, 97, 100, 0xff, 0xfe] })?.message, 'bad\ufffd\ufffd');
});

test('a message that is null, missing or empty is no crash', () => {
  assert.equal(parse({ MESSAGE: null })?.message, '');
  assert.equal(parse({})?.message, '');
  assert.equal(parse({ MESSAGE: [] })?.message, '');
});

test('a field that an entry has twice is read as both, bytes among them too', () => {
  assert.equal(parse({ MESSAGE: ['one', 'two'] })?.message, 'one\ntwo');
  assert.equal(parse({ MESSAGE: ['one', [0xff]] })?.message, 'one\n\ufffd');
});

test("systemd's own line about a unit names the start by another field", () => {
  assert.equal(parse({ MESSAGE: 'Started.', INVOCATION_ID: 'cd' })?.invocationId, 'cd');
});

test('a line that is cut short, or is no entry, is passed over', () => {
  for (const line of ['', '{"__CURSOR":"s=1"', 'null', '[]', '7', '{"MESSAGE":"no cursor"}']) {
    assert.equal(parseEntry(line), null, line);
  }
});
