/** Names from outside that are also names of what every object inherits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAlternative } from '../../../agent/guest/libraries/alternatives.js';
import { environmentOf } from '../../../agent/guest/unit/processes.js';
import { member, own } from '../../../agent/lib/json.js';
import { toolEnvironment } from '../../../agent/lib/run-command.js';
import { bagOf } from '../../../agent/systemd/properties.js';
import { loadedModels } from '../../../agent/verdict/present.js';

const inherited = ['constructor', '__proto__', 'toString', 'hasOwnProperty'];

test('a record and a document have no entry that they only inherit', () => {
  for (const name of inherited) {
    assert.equal(own({}, name), undefined, name);
    assert.equal(member({}, name), undefined, name);
    assert.equal(own(Object.fromEntries([[name, 'given']]), name), 'given', name);
  }
  assert.equal(member(null, 'x'), undefined);
});

test('a variable, a property or an alternative of such a name is an entry like any other', () => {
  for (const name of inherited) {
    assert.deepEqual(Object.entries(environmentOf(Buffer.from(`${name}=x\0A=b\0`))), [
      [name, 'x'],
      ['A', 'b'],
    ]);
    const environment = toolEnvironment(Object.fromEntries([[name, 'x']]), false);
    assert.deepEqual(Object.entries(environment), [
      [name, 'x'],
      ['LC_ALL', 'C.UTF-8'],
    ]);
    assert.deepEqual(Object.entries(bagOf(Object.fromEntries([[name, { value: 1 }]]))), [[name, 1]]);
    const group = parseAlternative('x', `auto\n/usr/lib/x\n${name}\n/usr/lib/y\n\n/a\n5\n/b\n\n\n`, '/a');
    assert.deepEqual(Object.entries(group?.choices[0]?.slaves ?? {}), [[name, '/b']]);
  }
});

test('a profile that names the list of models so finds none', () => {
  const sizes = { name: 'name', all: 'size', gpu: 'size_vram' };
  assert.equal(loadedModels({ path: '/', list: 'constructor', sizes }, '{}'), null);
});
