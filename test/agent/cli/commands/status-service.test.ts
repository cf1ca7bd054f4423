// The document that comes over the bus is believed only if it is what `status --json` prints.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readStatus } from '../../../../agent/cli/commands/status.js';
import { assertDocument } from './json-schemas.js';

const unit = { name: 'ollama.service', load: 'loaded', active: 'active', invocationId: null, restarts: 0 };
const document = {
  schema: 1,
  command: 'status',
  installed: null,
  interrupted: false,
  consumers: [{ profile: 'ollama', unit, drift: [], verdict: null }],
  drift: [],
  unit,
  host: { endpoint: 'vsock:2:14833', from: 'default', answer: { kind: 'unasked' } },
  verdict: null,
};

test('a document as docs/json describes it is read unchanged', () => {
  const json = JSON.stringify(document);
  assertDocument('status', json);
  assert.deepEqual(readStatus(json), document);
});

test('anything else is as if the service had said nothing', () => {
  const { consumers: _, ...without } = document;
  const [consumer] = document.consumers;
  const verdict = { mode: 'fast' };
  for (const other of [
    null,
    [],
    without,
    { ...document, schema: 2 },
    { ...document, consumers: [] },
    { ...document, consumers: [{ ...consumer, drift: 'none' }] },
    { ...document, consumers: [{ ...consumer, unit: 'ollama.service' }] },
    { ...document, verdict },
    { ...document, host: { ...document.host, answer: { kind: 'maybe' } } },
  ]) {
    assert.equal(readStatus(JSON.stringify(other)), null, JSON.stringify(other));
  }
  assert.equal(readStatus('{'), null);
});
