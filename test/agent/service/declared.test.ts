/** The declarations in force: read at the start, on a reload, and when the manifest names other consumers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Consumer, Manifest } from '../../../agent/contracts/manifest.js';
import { createConfigReader } from '../../../agent/guest/agent-conf.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { Board } from '../../../agent/service/board.js';
import { type Declared, declare } from '../../../agent/service/desired.js';

const consumer = (profile: string, unit: string): Consumer => ({ profile, unit, links: [] });
const ollama = consumer('ollama', 'ollama.service');
const llama = consumer('llama-server', 'llama-server.service');
const manifestOf = (...consumers: readonly Consumer[]): Manifest => ({
  schema: 2,
  agent: '0',
  storeId: '0',
  endpoint: 'unix:/x',
  consumers,
  items: [],
});

/** agent.json and the manifest as the test sets them, and what was told. */
class Bench {
  text: string | null = null;
  manifest: Manifest | null = null;
  readonly board = new Board();
  readonly said: string[] = [];

  declare(): Promise<Declared> {
    return declare({
      text: () => {
        if (this.text === 'unreadable')
          throw new VgpuError('it is a directory', { kind: 'profile', operation: 'read' });
        return this.text;
      },
      read: createConfigReader(),
      manifest: async () => this.manifest,
      profileOf: loadProfile,
      board: this.board,
      record: {
        write: (message) => void this.said.push(`${message.kind} ${'text' in message ? message.text : ''}`),
        say: (text) => void this.said.push(text),
      },
    });
  }
}

const unitsOf = ({ now }: Declared): readonly string[] => now.consumers.map((one) => one.unit);

test('without a file, the installed consumers are in force', async () => {
  const bench = new Bench();
  bench.manifest = manifestOf(ollama, llama);
  assert.deepEqual(unitsOf(await bench.declare()), ['ollama.service', 'llama-server.service']);
  assert.equal(bench.board.now.configProblem, null);
  assert.deepEqual(bench.said, []);
});

test('with a bad file at the start the defaults are in force, and it is reported once', async () => {
  const bench = new Bench();
  bench.text = '{';
  bench.manifest = manifestOf(llama);
  const declared = await bench.declare();
  assert.deepEqual(unitsOf(declared), ['llama-server.service']);
  assert.match(bench.board.now.configProblem ?? '', /line 1, column 2: not JSON/);
  assert.deepEqual(
    bench.said.map((one) => one.split(' ')[0]),
    ['configRefused'],
  );
});

test('a bad file on a reload: the former one stays in force, and the reload fails with the problem', async () => {
  const bench = new Bench();
  bench.text = '{"schema":1,"checkMinutes":7}';
  const declared = await bench.declare();
  bench.text = '{"schema":1,"checkMinutes":"7"}';
  await assert.rejects(
    () => declared.reload(),
    (error) => error instanceof VgpuError && error.kind === 'profile' && /checkMinutes/.test(error.message),
  );
  assert.equal(declared.now.config.checkMinutes, 7);
  assert.match(bench.board.now.configProblem ?? '', /checkMinutes/);
  assert.match(
    bench.said.join(),
    /^configRefused agent\.json is not valid, so the service keeps its current settings: /,
  );
});

test('a corrected file takes the problem away', async () => {
  const bench = new Bench();
  bench.text = '{';
  const declared = await bench.declare();
  bench.text = '{"schema":1,"checkMinutes":9}';
  await declared.reload();
  assert.equal(declared.now.config.checkMinutes, 9);
  assert.equal(bench.board.now.configProblem, null);
  assert.equal(bench.said.at(-1), 'configLoaded configuration loaded');
});

test('a file is changed until it was read, one that cannot be read too', async () => {
  const bench = new Bench();
  const declared = await bench.declare();
  assert.equal(declared.isChanged(), false);
  bench.text = 'unreadable';
  assert.equal(declared.isChanged(), true);
  await assert.rejects(() => declared.reload(), /it is a directory/);
  assert.equal(declared.isChanged(), false);
});

test('a consumer that a command installed is in force from the next look on; the same manifest changes nothing', async () => {
  const bench = new Bench();
  bench.manifest = manifestOf(ollama);
  const declared = await bench.declare();
  assert.equal(declared.follow(manifestOf(ollama)), false);
  assert.equal(declared.follow({ ...manifestOf(ollama, llama), storeId: '1' }), true);
  assert.deepEqual(unitsOf(declared), ['ollama.service', 'llama-server.service']);
  assert.equal(declared.follow({ ...manifestOf(ollama, llama), storeId: '2' }), false);
});

test('the last consumer was removed: the usual one is looked at', async () => {
  const bench = new Bench();
  bench.manifest = manifestOf(llama);
  const declared = await bench.declare();
  assert.equal(declared.follow(null), true);
  assert.deepEqual(unitsOf(declared), ['ollama.service']);
  assert.equal(declared.follow(manifestOf()), false);
});

test('an installed consumer whose profile is gone is named, and the others are kept', async () => {
  const bench = new Bench();
  const gone = consumer('gone', 'gone.service');
  bench.manifest = manifestOf(ollama, gone);
  const declared = await bench.declare();
  assert.deepEqual(unitsOf(declared), ['ollama.service']);
  assert.match(bench.said.join(), /^gone\.service is not kept: /);
});
