import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unitPath } from '../../../../agent/daemon/bus/watch.js';

test('a unit has the object path that systemd gives it', () => {
  assert.equal(unitPath('ollama.service'), '/org/freedesktop/systemd1/unit/ollama_2eservice');
  assert.equal(unitPath('9p-x@1.service'), '/org/freedesktop/systemd1/unit/_39p_2dx_401_2eservice');
});
