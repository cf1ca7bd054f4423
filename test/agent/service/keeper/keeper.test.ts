import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Change } from '../../../../agent/contracts/plan.js';
import { causesOf } from '../../../../agent/service/keeper/keeper.js';
import { facts } from '../../install/plan/support.js';

test('the causes of a repair are its paths, each once, else the kinds of its changes', () => {
  const { shim } = facts();
  const change = (path: string): Change => ({ kind: 'remove-directory', path, reason: '' });
  const ldconfig: Change = { kind: 'ldconfig', links: false, reason: '' };
  const reload: Change = { kind: 'daemon-reload', reason: '' };
  assert.deepEqual(causesOf([change('/a'), { kind: 'store', shim, reason: '' }, ldconfig, change('/a')]), [
    '/a',
    '/opt/vgpu',
  ]);
  assert.deepEqual(causesOf([ldconfig, reload, reload]), ['/etc/ld.so.cache', 'daemon-reload']);
  assert.deepEqual(causesOf([]), []);
});
