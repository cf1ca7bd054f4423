// biome-ignore-all lint/suspicious/noTemplateCurlyInString: profiles have variables of that form.
/** Mistakes that the schema allows: each is reported with its field and the allowed values. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describing } from '../../../agent/lib/schema.js';
import { loadProfile } from '../../../agent/profile/load.js';
import type { LogGrammar, Profile, ProfileEnvironment } from '../../../agent/profile/types.js';
import { createProfileValidator } from '../../../agent/profile/validate.js';

const ollama = loadProfile('ollama');
const llama = loadProfile('llama-server');
const bad = '(open';
const isBad = '"(open": not a regular expression: Unterminated group';

// Allows everything: the checks of schemas have their own tests.
const validate = createProfileValidator(describing<Profile>({}));
const told = (profile: Profile): readonly string[] => {
  const result = validate(JSON.parse(JSON.stringify(profile)));
  return result.kind === 'ok' ? [] : result.problems.map(({ pointer, message }) => `${pointer}: ${message}`);
};
const ofLog = (change: Partial<LogGrammar>, profile = ollama): readonly string[] =>
  told({ ...profile, log: { ...profile.log, ...change } });

const [preload] = ollama.environment;
const [device] = llama.log.devices;
const [reason] = ollama.log.reasons;
assert.ok(preload !== undefined && device !== undefined && reason !== undefined);

function ofVariable(change: Partial<ProfileEnvironment>): readonly string[] {
  const entry: ProfileEnvironment = {
    name: 'GGML_CUDA',
    entries: ['/x'],
    separator: ',',
    preflight: 'none',
    why: '',
    ...change,
  };
  return told({ ...ollama, environment: [entry] });
}

test('the shipped profiles mean something', () => {
  for (const name of ['ollama', 'llama-server', 'generic', 'vllm', 'comfyui', 'whisper-server', 'jupyter']) {
    assert.deepEqual(told(loadProfile(name)), [], name);
  }
});

test('each expression of a log is compiled', () => {
  const rule = { ...reason, message: bad };
  for (const [pointer, change] of [
    ['starts/0/message', { starts: [{ message: bad, first: true }] }],
    ['version/message', { version: { message: bad } }],
    ['address/message', { address: { message: bad } }],
    ['finished/0', { finished: [bad] }],
    ['prefix', { prefix: bad }],
    ['loads/0/message', { loads: [{ message: bad, says: 'gpu' }] }],
    ['reasons/0/message', { reasons: [rule] }],
    ['reasons/0/fields/a~1b', { reasons: [{ ...reason, fields: { 'a/b': bad } }] }],
  ] as const) {
    assert.deepEqual(ofLog(change), [`/log/${pointer}: ${isBad}`]);
  }
});

test('the device rules of a text log are expressions too, told once; those of logfmt are the exact message', () => {
  const devices = [{ ...device, message: bad }];
  assert.deepEqual(ofLog({ devices }, llama), [`/log/devices/0/message: ${isBad}`]);
  assert.deepEqual(ofLog({ devices: [{ ...device, message: 'inference compute (x' }] }), []);
});

test('a field that is read from a line needs a group of that name', () => {
  const no = (group: string) => `"plain" has no group (?<${group}>...)`;
  assert.deepEqual(ofLog({ version: { message: 'plain' } }), [`/log/version/message: ${no('version')}`]);
  assert.deepEqual(ofLog({ address: { message: 'plain' } }), [`/log/address/message: ${no('address')}`]);
  assert.deepEqual(ofLog({ loads: [{ message: 'plain', says: 'layers' }] }), [
    `/log/loads/0/message: ${no('gpu')}`,
    `/log/loads/0/message: ${no('all')}`,
  ]);
  assert.deepEqual(ofLog({ loads: [{ message: 'plain', says: 'gpu' }] }), []);
});

test('the fields of a device in a text log are groups of its expression', () => {
  const fields = { library: [], compute: ['capability'], name: ['name'], pci: [] };
  const devices = [{ ...device, message: 'Device (?<name>.{1,9})', fields }];
  assert.deepEqual(ofLog({ devices }, llama), [
    '/log/devices/0/fields/compute/0: "capability" is not a group of the expression in "message"',
  ]);
  const none = [{ ...device, message: 'Device' }];
  assert.equal(ofLog({ devices: none }, llama).length, 2);
});

test('a device needs a library: of a field, or fixed', () => {
  const without = { ...device, fixed: {} };
  assert.deepEqual(ofLog({ devices: [without] }, llama), [
    '/log/devices/0/fields/library: no key is named, and fixed.library is not given: the library stays unknown',
  ]);
  const named = { ...without, fields: { ...device.fields, library: ['name'] } };
  assert.deepEqual(ofLog({ devices: [named] }, llama), []);
});

test('a text log has no fields for a reason to look at', () => {
  assert.deepEqual(ofLog({ reasons: [{ ...reason, fields: { 'a/b': 'x' } }] }, llama), [
    '/log/reasons/0/fields/a~1b: a log of format "text" has no fields',
  ]);
  assert.deepEqual(ofLog({ reasons: [{ ...reason, fields: { 'a/b': 'x' } }] }), []);
});

test('versions are ranges, wherever they stand', () => {
  const versions = 'new ones';
  const no = `"new ones" is not a range of versions; allowed: as in ">=0.12.4 <0.30" or "*"`;
  assert.deepEqual(ofLog({ reasons: [{ ...reason, versions }] }), [`/log/reasons/0/versions: ${no}`]);
  assert.deepEqual(ofLog({ devices: [{ ...device, versions }] }, llama), [`/log/devices/0/versions: ${no}`]);
  const doctor = {
    backend: { versions, files: ['x'], why: '', reinstall: 'y' },
  };
  assert.deepEqual(told({ ...ollama, doctor: { ...ollama.doctor, ...doctor } }), [
    `/doctor/backend/versions: ${no}`,
  ]);
  const { doctor: _, ...plain } = ollama;
  assert.deepEqual(told(plain), []);
});

test('an expression on the value of a variable is compiled', () => {
  const override = { variable: 'X', value: bad, reason: 'no-device', why: '' } as const;
  assert.deepEqual(told({ ...ollama, overrides: [override] }), [`/overrides/0/value: ${isBad}`]);
});

test('paths refer to known variables', () => {
  const known = 'known: ${store}, ${multiarch}';
  assert.deepEqual(told({ ...ollama, consumerLibraries: ['/usr', '/usr/${arch}'] }), [
    `/consumerLibraries/1: \${arch} is unknown; ${known}`,
  ]);
  assert.deepEqual(ofVariable({ entries: ['${stor}/x', '${store}/y'] }), [
    `/environment/0/entries/0: \${stor} is unknown; ${known}`,
  ]);
  const { publicLinks } = ollama;
  const directories = { ...publicLinks.directories, arch: [{ path: '/usr/lib/${x}', create: true }] };
  assert.deepEqual(told({ ...ollama, publicLinks: { ...publicLinks, directories } }), [
    `/publicLinks/directories/arch/0/path: \${x} is unknown; ${known}`,
  ]);
});

test("nothing is put into the consumer's own directories, with a star or without", () => {
  const { publicLinks } = ollama;
  for (const own of ['/opt/own', '/opt/own/', '/opt/own/*']) {
    const directories = { ...publicLinks.directories, arch: [{ path: '/opt/own', create: true }] };
    const profile = { ...ollama, consumerLibraries: [own], publicLinks: { ...publicLinks, directories } };
    assert.deepEqual(told(profile), [
      '/publicLinks/directories/arch/0/path: "/opt/own" belongs to the consumer (consumerLibraries); vgpu-agent writes nothing there',
    ]);
  }
});

test("the loader's variables are joined by a colon, others as they like", () => {
  for (const name of ['LD_PRELOAD', 'LD_LIBRARY_PATH']) {
    assert.deepEqual(ofVariable({ name }), [
      `/environment/0/separator: "," was given; for ${name} allowed: ":"`,
    ]);
  }
  assert.deepEqual(ofVariable({}), []);
});

test('a variable is set once', () => {
  const environment = [preload, { ...preload }];
  assert.deepEqual(told({ ...ollama, environment }), [
    `/environment/1/name: "${preload.name}" is given twice`,
  ]);
});

test('an entry has no line break and no NUL', () => {
  for (const text of ['/a\nb', '/a\rb', '/a\0b']) {
    assert.deepEqual(ofVariable({ entries: [text] }), [
      '/environment/0/entries/0: line breaks and NUL are not allowed',
    ]);
  }
});

test('an entry that is looked for before the start is an absolute path; another may be any text', () => {
  for (const preflight of ['library', 'directory'] as const) {
    assert.deepEqual(ofVariable({ preflight, entries: ['/ok', '${store}/ok', 'lib/x'] }), [
      '/environment/0/entries/2: "lib/x" was given, allowed: an absolute path or ${store}/...',
    ]);
  }
  assert.deepEqual(ofVariable({ preflight: 'none', entries: ['lib/x'] }), []);
});
