import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messageIds } from '../../../agent/contracts/journal-messages.js';
import { journalFields, withoutFields } from '../../../agent/systemd/journal-writer.js';
import { cpuVerdict, verdict } from '../cli/output/samples.js';

test('every kind of message has an ID of its own, as sd_journal(3) wants them', () => {
  const ids = Object.values(messageIds);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
});

test('a verdict entry says that the GPU is simulated, in words and in a field', () => {
  const { message, fields, priority } = journalFields({ kind: 'verdict', verdict });
  assert.match(message, /^ollama\.service: gpu \(simulated\)\./);
  assert.equal(fields['VGPU_SIMULATED'], '1');
  assert.equal(fields['VGPU_DEVICES'], 'NVIDIA H100 80GB HBM3 (simulated)');
  assert.equal(fields['VGPU_REASON'], undefined);
  assert.equal(priority, 'info');
});

test('a verdict other than GPU is a warning and carries its reason', () => {
  const { fields, priority } = journalFields({ kind: 'verdict', verdict: cpuVerdict });
  assert.equal(priority, 'warning');
  assert.equal(fields['VGPU_REASON'], 'host-unreachable');
  assert.equal(fields['MESSAGE_ID'], messageIds.verdict);
});

test('entries without fields come with the fault of the module', () => {
  const otherNode = Object.assign(new Error('NODE_MODULE_VERSION 115'), { code: 'ERR_DLOPEN_FAILED' });
  assert.match(withoutFields(otherNode).message, /compiled for another Node than v\d+\..*scripts\/setup/);
  const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
  assert.match(withoutFields(missing).message, /does not exist or was not compiled; scripts\/setup/);
});
