import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import {
  type JournalMessage,
  journalFields,
  messageIds,
  planEntry,
  withoutFields,
} from '../../../agent/systemd/journal-writer.js';
import { cpuVerdict, plan, verdict } from '../cli/output/samples.js';

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

test('the catalog names only fields that every entry of its kind has', () => {
  const nobody = { profile: null, unit: null, text: 'x' } as const;
  const consumer = { profile: 'ollama', unit: 'ollama.service', text: 'x' } as const;
  // As few fields as the agent writes.
  const messages: readonly JournalMessage[] = [
    ...(['installed', 'uninstalled', 'rolledBack'] as const).map((kind) => planEntry(kind, plan)),
    { kind: 'verdict', verdict },
    { kind: 'drift', ...consumer, fields: { CHANGES: 1, PATHS: '/x' } },
    { kind: 'repaired', ...consumer, fields: { CHANGES: 1, MILLISECONDS: 1, PATHS: '' } },
    { kind: 'repairFailed', ...consumer, fields: { PATHS: '/x', FAILURES: 1 } },
    { kind: 'repairLimit', ...consumer, fields: { PATHS: '/x' } },
    { kind: 'consumerRestarted', ...consumer, fields: { CAUSE: 'x' } },
    { kind: 'restartDeferred', ...consumer, fields: { CAUSE: 'x' } },
    { kind: 'hostLost', ...nobody, fields: { ENDPOINT: 'unix:/x' } },
    { kind: 'hostBack', ...nobody, fields: { ENDPOINT: 'unix:/x', SECONDS: '1' } },
    ...(['serviceStarted', 'serviceStopped', 'packageManager'] as const).map((kind) => ({ kind, ...nobody })),
    ...(['configLoaded', 'configRefused', 'resumed'] as const).map((kind) => ({ kind, ...nobody })),
  ];
  const catalog = readFileSync(path.join(packageRoot(), 'units/vgpu-agent.catalog'), 'utf8');
  const entries = catalog.split(/^-- (?=[0-9a-f]{32}$)/m).slice(1);
  for (const entry of entries) {
    const message = messages.find(({ kind }) => entry.startsWith(messageIds[kind]));
    if (message === undefined) continue;
    const { fields } = journalFields(message);
    for (const [, name] of entry.matchAll(/@([A-Z_]+)@/g))
      assert.ok(fields[name ?? ''] !== undefined, `${message.kind}: ${name}`);
  }
});

test('entries without fields come with the fault of the module', () => {
  const otherNode = Object.assign(new Error('NODE_MODULE_VERSION 115'), { code: 'ERR_DLOPEN_FAILED' });
  assert.match(withoutFields(otherNode).message, /compiled for another Node than v\d+\..*scripts\/setup/);
  const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
  assert.match(withoutFields(missing).message, /does not exist or was not compiled; scripts\/setup/);
});
