// biome-ignore-all lint/suspicious/noTemplateCurlyInString: profiles have variables of that form.
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { reasons } from '../../../agent/contracts/verdict.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import { packageRoot } from '../../../agent/lib/paths.js';
import {
  defaultProfilePlaces,
  listProfiles,
  loadProfile,
  type ProfilePlaces,
  parseProfile,
  readableProfiles,
  validatorOf,
  validMark,
} from '../../../agent/profile/load.js';

const shipped = path.join(packageRoot(), 'profiles');
const good = readFileSync(path.join(shipped, 'ollama.json'), 'utf8');
let directory: string;
let places: ProfilePlaces;

before(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'vgpu-profile-'));
  places = {
    directories: [path.join(directory, 'own'), shipped],
    schema: path.join(shipped, 'profile.schema.json'),
  };
  mkdirSync(path.join(directory, 'own'));
});

after(() => {
  rmSync(directory, { recursive: true });
});

/** The error that a profile of this text gives. */
function problemWith(text: string, name = 'ollama'): VgpuError {
  writeFileSync(path.join(directory, 'own', `${name}.json`), text);
  try {
    loadProfile(name, places);
  } catch (error) {
    if (error instanceof VgpuError) return error;
    throw error;
  } finally {
    rmSync(path.join(directory, 'own', `${name}.json`));
  }
  throw new assert.AssertionError({ message: 'the profile was accepted' });
}

/** Ollama's profile with one piece of its text replaced. */
function changed(from: string | RegExp, to: string): string {
  const text = good.replace(from, () => to);
  assert.notEqual(text, good);
  return text;
}

test('every shipped profile is listed, and the schema is not one of them', () => {
  const names = listProfiles({ directories: [shipped], schema: places.schema }).map(({ name }) => name);
  assert.ok(names.includes('ollama') && names.includes('llama-server'));
  assert.ok(!names.includes('profile.schema'));
});

test('every shipped profile is valid, and the build has marked it', () => {
  const schema = readFileSync(places.schema, 'utf8');
  for (const { name, path: file } of listProfiles({ directories: [shipped], schema: places.schema })) {
    const text = readFileSync(file, 'utf8');
    const profile = parseProfile(text, file, validatorOf(places.schema));
    assert.deepEqual([profile.name, profile.schema], [name, 1]);
    assert.ok(existsSync(validMark(text, schema)), `${name} has no mark: npm run build:agent makes it`);
  }
});

test("a user's own profile comes before the package's", () => {
  const own = path.join(directory, 'own', 'ollama.json');
  writeFileSync(own, changed('as its own installer sets it up', 'MINE'));
  try {
    assert.match(loadProfile('ollama', places).description, /MINE/);
    assert.equal(listProfiles(places).find(({ name }) => name === 'ollama')?.path, own);
  } finally {
    rmSync(own);
  }
});

test("the user's directory is /etc/vgpu-agent/profiles", () => {
  assert.equal(defaultProfilePlaces().directories[0], '/etc/vgpu-agent/profiles');
});

test('an unknown name lists the profiles that there are', () => {
  assert.throws(
    () => loadProfile('olama', places),
    (error: unknown) => {
      assert.ok(error instanceof VgpuError);
      assert.equal(error.kind, 'profile');
      assert.match(error.message, /"olama".*llama-server, ollama/);
      return true;
    },
  );
});

test('a name cannot lead out of the directories', () => {
  for (const name of ['../../etc/passwd', '/etc/passwd', '', '.', 'a/b', 'OLLAMA', 'profile.schema']) {
    assert.throws(() => loadProfile(name, places), VgpuError);
  }
});

test('a JSON mistake is reported with file, line and column', () => {
  const error = problemWith('{\n  "schema": 1,\n  "name": ollama\n}');
  assert.match(error.message, /own\/ollama\.json: line 3, column 11: not JSON: invalid symbol/);
  assert.equal(error.kind, 'profile');
});

test('the error for a misspelt key names the right key', () => {
  const error = problemWith(changed('"readiness"', '"readyness"'));
  assert.match(error.message, /line \d+, readyness: unknown key\. Allowed here: .*readiness/);
  assert.match(error.message, /the key "readiness" is missing/);
});

test('the error for a wrong value lists the allowed values', () => {
  const error = problemWith(changed('"kind": "http"', '"kind": "htpp"'));
  assert.match(error.message, /line \d+, readiness\.kind: "htpp" was given, allowed: "http", "none"/);
});

test('a missing key, a wrong version and an empty file are reported with their place', () => {
  assert.match(problemWith(changed(/^ {2}"unit": .*\n/m, '')).message, /the file: the key "unit" is missing/);
  assert.match(problemWith(changed('"schema": 1', '"schema": 2')).message, /schema: 2 was given, allowed: 1/);
  assert.match(problemWith('').message, /line 1, column 1: not JSON: value expected/);
});

test('a wrong type is reported', () => {
  const error = problemWith(changed('"baseSeconds": 30', '"baseSeconds": "30"'));
  assert.match(error.message, /line \d+, timeouts\.baseSeconds: "30" was given, allowed: number/);
});

test('the error for an unknown reason lists the known reasons', () => {
  const error = problemWith(changed('"reason": "driver-too-old"', '"reason": "driver-to-old"'));
  assert.match(
    error.message,
    /log\.reasons\[\d+\]\.reason: "driver-to-old" was given, allowed: "driver-too-old"/,
  );
});

test('a process name longer than the kernel keeps is refused', () => {
  const error = problemWith(changed('"ollama_llama_se"', '"ollama_llama_server"'));
  assert.match(
    error.message,
    /processes\.children\[2\]: "ollama_llama_server" was given, but it must NOT have more than 15 characters/,
  );
});

test('a unit name must be the name of a service', () => {
  for (const unit of ['ollama', 'ollama.timer', '../x.service', 'a b.service']) {
    const error = problemWith(changed('"unit": "ollama.service"', `"unit": ${JSON.stringify(unit)}`));
    assert.match(error.message, /line \d+, unit: .* was given, allowed: what matches/);
  }
});

test('a template unit is a service', () => {
  const text = changed('"unit": "ollama.service"', '"unit": "ollama@gpu-0.service"');
  writeFileSync(path.join(directory, 'own', 'ollama.json'), text);
  assert.equal(loadProfile('ollama', places).unit, 'ollama@gpu-0.service');
  rmSync(path.join(directory, 'own', 'ollama.json'));
});

test('a bad regular expression is reported with its field', () => {
  const error = problemWith(changed('"^NVIDIA driver too old$"', '"^NVIDIA (driver"'));
  assert.match(
    error.message,
    /line \d+, log\.reasons\[\d+\]\.message: "\^NVIDIA \(driver": not a regular expression: Unterminated group/,
  );
});

test('an expression that can take forever is refused', () => {
  const error = problemWith(changed('"^NVIDIA driver too old$"', '"^(N+)+$"'));
  assert.match(error.message, /log\.reasons\[\d+\]\.message: .*take forever/);
});

test('a version expression without its group is refused', () => {
  const error = problemWith(changed('(?<version>', '(?<vers>'));
  assert.match(error.message, /log\.version\.message: .* has no group \(\?<version>\.\.\.\)/);
});

test('a bad range of versions is reported', () => {
  const error = problemWith(changed('"<0.1.35"', '"older than 0.1.35"'));
  assert.match(
    error.message,
    /log\.reasons\[0\]\.versions: "older than 0\.1\.35" is not a range of versions/,
  );
});

test('the error for an unknown variable lists the known ones', () => {
  const error = problemWith(changed('"${store}/libcuda.so.1"', '"${stoer}/libcuda.so.1"'));
  assert.match(
    error.message,
    /environment\[1\]\.entries\[0\]: \$\{stoer\} is unknown; known: \$\{store\}, \$\{multiarch\}/,
  );
});

test("nothing may be installed into the consumer's own directories", () => {
  const error = problemWith(
    changed('"path": "/usr/local/lib", "create": true', '"path": "/usr/local/lib/ollama", "create": true'),
  );
  assert.match(error.message, /publicLinks\.directories\.unknown\[0\]\.path: .*belongs to the consumer/);
});

test("the loader's variables are joined by a colon", () => {
  const error = problemWith(changed(/"separator": ":"/, '"separator": ";"'));
  assert.match(error.message, /environment\[0\]\.separator: ";" was given; for LD_LIBRARY_PATH allowed: ":"/);
});

test('the name must be that of the file', () => {
  const error = problemWith(good, 'mine');
  assert.match(error.message, /"ollama" was given, but the file is named "mine\.json"/);
});

test('all problems are reported together', () => {
  const text = good
    .replace('"schema": 1', '"schema": 2')
    .replace('"unit": "ollama.service"', '"unit": 7')
    .replace('"probe": true', '"probe": 1');
  const error = problemWith(text);
  assert.match(error.message, /schema: 2 was given, allowed: 1/);
  assert.match(error.message, /unit: 7 was given, allowed: string/);
  assert.match(error.message, /evidence\.probe: 1 was given, allowed: boolean/);
});

test('a file that is not UTF-8, or far too large, is refused', () => {
  const file = path.join(directory, 'own', 'bytes.json');
  writeFileSync(file, Buffer.from([0x7b, 0xff, 0x7d]));
  assert.throws(() => loadProfile('bytes', places), /not UTF-8/);
  writeFileSync(file, Buffer.alloc(1024 * 1024 + 1, 0x20));
  assert.throws(() => loadProfile('bytes', places), /1048577 bytes/);
  rmSync(file);
});

test('a text grammar must name groups that its expression has', () => {
  const text = readFileSync(path.join(shipped, 'llama-server.json'), 'utf8').replace(
    '"name": ["name"], "pci": []',
    '"name": ["nmae"], "pci": []',
  );
  const error = problemWith(text, 'llama-server');
  assert.match(error.message, /log\.devices\[0\]\.fields\.name\[0\]: "nmae" is not a group/);
});

/** Profiles of these names in a directory of the test's own, and nowhere else. */
function placesWith(files: Readonly<Record<string, string>>): ProfilePlaces {
  const own = mkdtempSync(path.join(directory, 'places-'));
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(own, name), text);
  return { ...places, directories: [own] };
}

function errorOf(run: () => unknown): VgpuError {
  try {
    run();
  } catch (error) {
    if (error instanceof VgpuError) return error;
    throw error;
  }
  throw new assert.AssertionError({ message: 'it was accepted' });
}

test('profiles are listed by name, in order; files with other names are not listed', () => {
  const none = '{}';
  const files = {
    'b.json': none,
    'a.json': none,
    '-x.json': none,
    'X.json': none,
    'c.txt': none,
    '.json': none,
  };
  const long = `${'n'.repeat(63)}.json`;
  const listed = listProfiles(placesWith({ ...files, [long]: none, [`n${long}`]: none, 'a_b!.json': none }));
  assert.deepEqual(
    listed.map(({ name }) => name),
    ['a', 'b', 'n'.repeat(63)],
  );
});

test('profiles of two directories are in one order, whichever comes first', () => {
  const [first = ''] = placesWith({ 'b.json': '{}', 'd.json': '{}' }).directories;
  const [second = ''] = placesWith({ 'a.json': '{}', 'b.json': '{}', 'c.json': '{}' }).directories;
  assert.deepEqual(
    listProfiles({ ...places, directories: [first, second] }).map((one) =>
      path.relative(directory, one.path),
    ),
    [
      `${path.basename(second)}/a.json`,
      `${path.basename(first)}/b.json`,
      `${path.basename(second)}/c.json`,
      `${path.basename(first)}/d.json`,
    ],
  );
});

test('a directory that is not there, or is none, has no profiles; one that cannot be read is an error', () => {
  const file = path.join(directory, 'file');
  writeFileSync(file, '');
  const loop = path.join(directory, 'loop');
  symlinkSync(loop, loop);
  assert.deepEqual(listProfiles({ ...places, directories: [path.join(directory, 'no'), file] }), []);
  const error = errorOf(() => listProfiles({ ...places, directories: [loop] }));
  assert.match(error.message, /^cannot list the profiles in .*loop: .*ELOOP/);
  assert.deepEqual([error.kind, error.operation, error.path], ['failed', 'list profiles', loop]);
});

test('without any profile the error says so, and where to put one', () => {
  const empty = placesWith({});
  const error = errorOf(() => loadProfile('ollama', empty));
  assert.equal(error.message, 'no profile is named "ollama". No profile exists.');
  const [own] = empty.directories;
  assert.deepEqual(
    [error.operation, error.path, error.remedy],
    ['read profile', own, `name one of these, or put a profile of your own into ${own}`],
  );
});

test('readable profiles are read, and the others are reported', () => {
  const other = good.replace('"name": "ollama"', '"name": "other"');
  const { profiles, problems } = readableProfiles(placesWith({ 'bad.json': '{', 'other.json': other }));
  assert.deepEqual(
    profiles.map(({ name }) => name),
    ['other'],
  );
  assert.deepEqual(
    problems.map(({ message }) => path.basename(message.split(':')[0] ?? '')),
    ['bad.json'],
  );
});

test('a bad schema is not the fault of a profile: it ends the listing', () => {
  const broken = {
    ...placesWith({ 'ollama.json': `${good}\n` }),
    schema: path.join(directory, 'no.schema.json'),
  };
  assert.equal(errorOf(() => readableProfiles(broken)).kind, 'internal');
});

test('a single problem is on the line of the file, several are below it, with a remedy', () => {
  const one = problemWith(changed('"schema": 1', '"schema": 2'));
  assert.match(one.message, /^\S+ollama\.json: line 3, schema: 2 was given, allowed: 1$/);
  const two = problemWith(changed('"schema": 1', '"schema": 2').replace('"probe": true', '"probe": 1'));
  assert.match(two.message, /^\S+ollama\.json:\n {2}line 3, schema: .*\n {2}line \d+, evidence\.probe: /);
  assert.deepEqual(
    [one.operation, one.remedy],
    ['read profile', 'repair the file; docs/reference/profiles.md explains every field'],
  );
});

test('a wrong file name is reported at its field', () => {
  assert.match(problemWith(good, 'mine').message, /mine\.json: name: "ollama" was given/);
});

test('a path that cannot be read as a file is reported with the reason', () => {
  const own = placesWith({});
  const [at = ''] = own.directories;
  mkdirSync(path.join(at, 'dir.json'));
  symlinkSync('loop.json', path.join(at, 'loop.json'));
  symlinkSync('/nowhere', path.join(at, 'gone.json'));
  for (const [name, why] of [
    ['dir', /^cannot read \S+dir\.json: it is a directory$/],
    ['loop', /^cannot read \S+loop\.json: its links form a loop$/],
    ['gone', /^cannot read \S+gone\.json: ENOENT/],
  ] as const) {
    const error = errorOf(() => loadProfile(name, own));
    assert.match(error.message, why);
    assert.equal(error.kind, 'profile');
    assert.equal(error.remedy, 'make it a file that you may read, or move it away');
  }
});

test('a profile of exactly a megabyte is read', () => {
  const text = good.trimEnd();
  writeFileSync(path.join(directory, 'own', 'ollama.json'), text.padEnd(1024 * 1024));
  assert.equal(loadProfile('ollama', places).name, 'ollama');
  rmSync(path.join(directory, 'own', 'ollama.json'));
  assert.match(
    problemWith(text.padEnd(1024 * 1024 + 1)).message,
    /: the file: 1048577 bytes; allowed: 1048576/,
  );
});

test('a schema that is missing, no JSON or no object is a fault of the installation', () => {
  for (const [text, why] of [
    ['{', /cannot use the schema of profiles \S+bad\.schema\.json: SyntaxError/],
    ['7', /no object/],
    ['null', /no object/],
  ] as const) {
    const file = path.join(directory, 'bad.schema.json');
    writeFileSync(file, text);
    const error = errorOf(() => validatorOf(file));
    assert.match(error.message, why);
    assert.deepEqual(
      [error.kind, error.operation, error.path, error.remedy],
      ['internal', 'read schema', file, 'install vgpu-agent again; files of it are missing or damaged'],
    );
  }
});

test('the schema is a JSON Schema 2020-12', () => {
  const ajv = new Ajv2020({ strict: true, strictTypes: false, allowUnionTypes: true });
  const valid = ajv.validateSchema(JSON.parse(readFileSync(places.schema, 'utf8')));
  assert.equal(valid, true, ajv.errorsText());
});

test('the schema allows exactly the reasons that the agent knows', () => {
  const schema: { readonly $defs: { readonly reason: { readonly enum: readonly string[] } } } = JSON.parse(
    readFileSync(places.schema, 'utf8'),
  );
  assert.deepEqual(schema.$defs.reason.enum, [...reasons]);
});

test('a marked profile is not validated again; another byte of it or of the schema needs another mark', () => {
  const own = path.join(directory, 'own', 'ollama.json');
  // No profile fits it, so only a mark can make one load.
  const schema = JSON.stringify({ not: {}, $comment: 'a test' });
  const refusing = { ...places, schema: path.join(directory, 'refusing.schema.json') };
  const mark = validMark(good, schema);
  writeFileSync(own, good);
  writeFileSync(refusing.schema, schema);
  assert.throws(() => loadProfile('ollama', refusing), /must NOT be valid/);
  writeFileSync(mark, '');
  try {
    assert.deepEqual(loadProfile('ollama', refusing), JSON.parse(good));
    writeFileSync(refusing.schema, `${schema}\n`);
    assert.throws(() => loadProfile('ollama', refusing), /must NOT be valid/);
    writeFileSync(refusing.schema, schema);
    writeFileSync(own, `${good}\n`);
    assert.throws(() => loadProfile('ollama', refusing), /must NOT be valid/);
  } finally {
    rmSync(mark);
    rmSync(own);
  }
});
