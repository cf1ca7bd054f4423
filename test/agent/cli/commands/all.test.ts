/** A command line loads the command that it names, and all only where their list is needed. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandNames, commandsFor } from '../../../../agent/cli/commands/command-line.js';

async function loaded(...argv: readonly string[]): Promise<readonly string[]> {
  const made = await commandsFor(argv);
  return made.map((make) => make(async () => {}).name());
}

test('every name is that of the command that it loads', async () => {
  for (const name of commandNames) assert.deepEqual(await loaded(name), [name]);
});

test('options before the command and words after it load nothing more', async () => {
  assert.deepEqual(await loaded('--json', '-v', 'install', 'doctor', '--help'), ['install']);
  assert.deepEqual(await loaded('host', 'install'), ['host']);
});

test('the version alone needs no command', async () => {
  assert.deepEqual(await loaded('--version'), []);
  assert.deepEqual(await loaded('-V', '--json'), []);
});

test('help, an unknown command and no command need all of them', async () => {
  for (const argv of [['--help'], ['help', 'install'], ['instal'], []])
    assert.deepEqual(await loaded(...argv), commandNames);
});
