import assert from 'node:assert/strict';
import { test } from 'node:test';
import { watchBus } from '../../../../agent/service/bus/watch.js';
import { unitPath } from '../../../../agent/systemd/run-in-unit.js';
import { fakeBus } from '../../systemd/fake-bus.js';

/** The events of the units, on a bus that refuses rules about `refused`. */
async function watched(refused: (path: string) => boolean = () => false) {
  const heard: string[] = [];
  const fake = fakeBus(({ member, body }) => {
    const rule = String(body?.[0]);
    if (member === 'AddMatch' && refused(rule)) throw new Error('the bus is full');
    return [];
  });
  const watch = await watchBus(fake.bus, {
    unit: (name) => heard.push(name),
    reloaded: () => {},
    resumed: () => {},
  });
  const rules = (unit: string): number =>
    fake.calls.filter(
      ({ member, body }) => member === 'AddMatch' && String(body?.[0]).includes(unitPath(unit)),
    ).length;
  return { ...fake, watch, heard, rules };
}

test('after a reload to another profile its unit is heard, and the former one no more', async () => {
  const { watch, changed, heard, rules } = await watched();
  await watch.units(['ollama.service']);
  changed('ollama.service', 'Unit', { ActiveState: 'active' });
  await watch.units(['llama-server.service']);
  changed('ollama.service', 'Unit', { ActiveState: 'inactive' });
  changed('llama-server.service', 'Unit', { SubState: 'running' });
  changed('llama-server.service', 'Unit', { MemoryCurrent: 7 });
  assert.deepEqual(heard, ['ollama.service', 'llama-server.service']);
  await watch.units(['ollama.service']);
  assert.deepEqual(
    [rules('ollama.service'), rules('llama-server.service')],
    [1, 1],
    'each rule is added once',
  );
});

test('a unit whose rule the bus refused once is heard from the next time on', async () => {
  let full = true;
  const { watch, rules } = await watched((rule) => full && rule.includes('ollama'));
  await assert.rejects(watch.units(['ollama.service']), /the bus is full/);
  full = false;
  await watch.units(['ollama.service']);
  assert.equal(rules('ollama.service'), 2);
});
