import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import {
  agentConfCheck,
  createConfigReader,
  defaultConfig,
  readConfigText,
} from '../../../agent/guest/agent-conf.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import { packageRoot } from '../../../agent/lib/paths.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { loadDesired } from '../../../agent/service/desired.js';

const read = createConfigReader();
const page = readFileSync(path.join(packageRoot(), 'docs/man/vgpu-agent.json.5'), 'utf8');
const schema: unknown = JSON.parse(readFileSync(path.join(packageRoot(), 'units/agent.schema.json'), 'utf8'));

test('an empty object but for the schema is the defaults', () => {
  assert.deepEqual(read('{"schema":1}', 'agent.json'), defaultConfig);
});

test('the defaults are these', () => {
  assert.deepEqual(defaultConfig, {
    consumers: 'installed',
    host: null,
    hosts: { prefer: 'used', leaveAfterSeconds: 10, returnAfterSeconds: 60 },
    repair: { enabled: true, perHour: 30, backoffSeconds: 1 },
    restart: {
      enabled: true,
      whileServing: false,
      busy: false,
      idleSeconds: 600,
      perHour: 6,
      minimumSeconds: 30,
    },
    checkMinutes: 30,
    waitForHostSeconds: 3,
    metrics: { textfile: null, listen: null },
    kubernetes: { timeSlicing: 1 },
  });
});

test('a host that is null is none of its own; several problems stand below the name of the file', () => {
  assert.equal(read('{"schema":1,"host":null}', 'agent.json').host, null);
  assert.throws(
    () => read('{"schema":2,\n"checkMinutes":"x"}', 'agent.json'),
    (error) =>
      error instanceof VgpuError &&
      /^agent\.json:\n {2}line 1, schema: .*\n {2}line 2, checkMinutes: /.test(error.message) &&
      error.operation === 'read the configuration' &&
      error.remedy === 'correct the file; vgpu-agent.json(5) explains every key',
  );
  assert.throws(() => read('7', 'agent.json'), /^VgpuError: agent\.json: line 1, the file: 7 was given/);
});

test('a group that is given in part keeps the rest of its defaults', () => {
  const { restart } = read('{"schema":1,"restart":{"perHour":2}}', 'agent.json');
  assert.deepEqual(restart, { ...defaultConfig.restart, perHour: 2 });
});

for (const [text, message] of [
  ['{', /line 1, column 2: not JSON/],
  ['{}', /"schema" is missing/],
  ['{"schema":2}', /line 1, schema: 2 was given, allowed: 1/],
  [
    '{"schema":1,\n"repair":{"perhour":1}}',
    /line 2, repair\.perhour: unknown key\. Allowed here: enabled, perHour, backoffSeconds$/,
  ],
  ['{"schema":1,"host":"http://x"}', /host: it begins with none of unix:/],
  ['{"schema":1,"metrics":{"listen":"tcp:0.0.0.0:1"}}', /metrics\.listen: "tcp:0\.0\.0\.0:1" was given/],
  ['{"schema":1,"metrics":{"textfile":"/x.txt"}}', /metrics\.textfile/],
] as const) {
  test(`refused: ${text.replaceAll('\n', ' ')}`, () => {
    assert.throws(
      () => read(text, 'agent.json'),
      (error) => error instanceof VgpuError && error.kind === 'profile' && message.test(error.message),
    );
  });
}

test('a bad file or an unknown profile is refused as a value, so that the settings stay as they are', () => {
  const loaded = loadDesired(() => '{"schema":1,"consumers":["olama"]}', null, read, loadProfile);
  assert.equal(loaded.kind, 'refused');
  assert.match(
    loaded.kind === 'refused' ? loaded.problem : '',
    /no profile is named "olama"\. Profiles: (.*, )?ollama, /,
  );
});

test('a directory in the place of agent.json is refused as a value too', (context) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-config-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = path.join(directory, 'agent.json');
  assert.equal(readConfigText(file), null);
  mkdirSync(file);
  const loaded = loadDesired(() => readConfigText(file), null, read, loadProfile);
  assert.equal(loaded.kind, 'refused');
  assert.match(loaded.kind === 'refused' ? loaded.problem : '', /agent\.json: it must be a regular file/);
});

test('what the service would refuse is known before it is installed, with the path', (context) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-config-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = path.join(directory, 'agent.json');
  const problem = agentConfCheck(loadProfile, file);
  assert.equal(problem(), null, 'none is there');
  for (const [text, expected] of [
    ['{"schema":1}', /^null$/],
    ['{"schema":1,"consumers":["ollama","vllm"]}', /^null$/],
    ['{"schema":1,"checkMinutes":0}', /agent\.json: line 1, checkMinutes: .*0/],
    ['{"schema":1,', /agent\.json: line 1, column \d+: not JSON/],
    ['{"schema":1,"consumers":["olama"]}', /agent\.json: no profile is named "olama"/],
    ['{"schema":1,"consumers":[{"profile":"olama"}]}', /agent\.json: no profile is named "olama"/],
    ['{"schema":1,"host":"vsock:x"}', /agent\.json: host: /],
  ] as const) {
    writeFileSync(file, text);
    assert.match(String(problem()), expected, text);
  }
});

test('vgpu-agent.json(5) explains every key, and tells the true defaults', () => {
  const keys: string[] = [];
  const walk = (node: unknown, prefix: string): void => {
    const properties: unknown = Reflect.get(Object(node), 'properties');
    for (const [name, value] of Object.entries(Object(properties))) {
      const key = `${prefix}${name}`;
      if (Reflect.get(Object(value), 'properties') === undefined) keys.push(key);
      else walk(value, `${key}.`);
    }
  };
  walk(schema, '');
  assert.ok(keys.length > 12);
  for (const key of keys.filter((one) => one !== '$schema')) {
    assert.ok(page.includes(`.It Li ${key}\n`), key);
    const value = key
      .split('.')
      .reduce<unknown>((inner, part) => Reflect.get(Object(inner), part), defaultConfig);
    if (typeof value !== 'number') continue;
    const part = page.split(`.It Li ${key}\n`)[1]?.split('.It ')[0] ?? '';
    assert.match(part, new RegExp(`Default: ${value}\\.`), key);
  }
});
