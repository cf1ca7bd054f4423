import type { DefinedError } from 'ajv';
import { type JSONVisitor, printParseErrorCode, visit } from 'jsonc-parser';
import validRange from 'semver/ranges/valid.js';
import { VgpuError } from '../lib/errors.js';
import { type Schema, schemaCheck } from '../lib/schema.js';
import { isVariable, variableNames, variablesIn } from './instance.js';
import { compilePattern } from './patterns.js';
import type { Profile } from './types.js';

export interface Problem {
  readonly pointer: string;
  readonly message: string;
}

type ProfileResult =
  | { readonly kind: 'ok'; readonly profile: Profile }
  | { readonly kind: 'bad'; readonly problems: readonly Problem[] };

export type ProfileValidator = (value: Json) => ProfileResult;

/** `/log/devices/0` as a person writes it: `log.devices[0]`. */
export function readablePointer(pointer: string): string {
  let readable = '';
  for (const part of pointer.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (/^\d+$/.test(name)) readable += `[${name}]`;
    else if (/^[A-Za-z_$][\w$-]*$/.test(name)) readable += readable === '' ? name : `.${name}`;
    else readable += `[${JSON.stringify(name)}]`;
  }
  return readable === '' ? 'the file' : readable;
}

export function badFile(
  file: string,
  lines: readonly string[],
  details: { readonly operation: string; readonly remedy: string },
): VgpuError {
  const text = lines.length === 1 ? `${file}: ${lines[0]}` : `${file}:\n  ${lines.join('\n  ')}`;
  return new VgpuError(text, { kind: 'profile', path: file, ...details });
}

/** `line 3, log.devices[0]: MESSAGE`. */
export function problemLines(text: string, problems: readonly Problem[]): readonly string[] {
  const lines = linesIn(text);
  return problems.map(({ pointer, message }) => {
    const line = lines.get(pointer);
    return `${line === undefined ? '' : `line ${line}, `}${readablePointer(pointer)}: ${message}`;
  });
}

/** Compiles the schema once; a test checks the shipped one against JSON Schema 2020-12. */
export function createProfileValidator(schema: Schema<Profile>): ProfileValidator {
  const check = schemaCheck(schema);
  return (given) => {
    const checked = check(given);
    if (checked.kind === 'wrong') return { kind: 'bad', problems: problemsOf(checked.errors) };
    const problems = checkMeaning(checked.value);
    return problems.length === 0 ? { kind: 'ok', profile: checked.value } : { kind: 'bad', problems };
  };
}

export function problemsOf(errors: readonly DefinedError[]): readonly Problem[] {
  return unique(errors.flatMap(problemOf));
}

function unique(problems: readonly Problem[]): readonly Problem[] {
  const seen = new Set<string>();
  return problems.filter(({ pointer, message }) => {
    const key = `${pointer}\0${message}`;
    if (seen.has(key)) return false;
    seen.add(key);
    return true;
  });
}

const longest = 80;

function quote(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > longest ? `${text.slice(0, longest)}...` : text;
}

function problemOf(error: DefinedError): readonly Problem[] {
  const pointer = error.instancePath;
  const given = quote(error.data);
  switch (error.keyword) {
    case 'if':
    case 'anyOf':
      // Both repeat what the failing branch said already.
      return [];
    case 'additionalProperties': {
      const key = error.params.additionalProperty;
      const allowed = Object.keys(error.parentSchema?.['properties'] ?? {});
      const message = `unknown key. Allowed here: ${allowed.join(', ')}`;
      return [{ pointer: `${pointer}/${pointerPart(key)}`, message }];
    }
    case 'required':
      return [{ pointer, message: `the key ${JSON.stringify(error.params.missingProperty)} is missing` }];
    case 'enum': {
      const allowed: readonly unknown[] = error.params.allowedValues;
      const list = allowed.map((value) => JSON.stringify(value)).join(', ');
      return [{ pointer, message: `${given} was given, allowed: ${list}` }];
    }
    case 'const':
      return [{ pointer, message: `${given} was given, allowed: ${quote(error.params.allowedValue)}` }];
    case 'type': {
      const types: readonly string[] = [error.params.type].flat();
      return [{ pointer, message: `${given} was given, allowed: ${types.join(' or ')}` }];
    }
    case 'pattern':
      return [{ pointer, message: `${given} was given, allowed: what matches ${error.params.pattern}` }];
    case 'propertyNames':
      return [
        { pointer, message: `the key ${JSON.stringify(error.params.propertyName)} is not allowed here` },
      ];
    default:
      return [{ pointer, message: `${given} was given, but it ${error.message ?? 'is not allowed'}` }];
  }
}

// Rules that a schema cannot express: expressions compile, ranges are ranges, and names refer to something.

const loaderVariables: ReadonlySet<string> = new Set(['LD_PRELOAD', 'LD_LIBRARY_PATH']);

/** Where a profile has regular expressions, and the groups that they need. `*` stands for every member. */
const expressions: readonly (readonly [place: string, ...groups: string[]])[] = [
  ['/overrides/*/value'],
  ['/log/starts/*/message'],
  ['/log/version/message', 'version'],
  ['/log/address/message', 'address'],
  ['/log/finished/*'],
  ['/log/prefix'],
  ['/log/loads/*/message'],
  ['/log/loads/*/fields/*'],
  ['/log/children/line', 'child'],
  ['/log/children/began', 'child', 'name'],
  ['/log/children/ended', 'name'],
  ['/log/reasons/*/message'],
  ['/log/reasons/*/fields/*'],
];
const ranges = ['/doctor/*/versions', '/log/reasons/*/versions', '/log/devices/*/versions'];
const paths = ['/consumerLibraries/*', '/publicLinks/directories/*/*/path', '/environment/*/entries/*'];

function textsAt(value: unknown, place: string, pointer = ''): readonly (readonly [string, string])[] {
  if (place === '') return typeof value === 'string' ? [[pointer, value]] : [];
  if (typeof value !== 'object' || value === null) return [];
  const [, wanted, rest = ''] = /^\/([^/]*)(.*)$/.exec(place) ?? [];
  return Object.entries(value).flatMap(([name, inner]) =>
    wanted === '*' || wanted === name ? textsAt(inner, rest, `${pointer}/${pointerPart(name)}`) : [],
  );
}

function checkMeaning(profile: Profile): readonly Problem[] {
  const { log } = profile;
  const problems: Problem[] = [];
  const say = (pointer: string, message: string): void => {
    problems.push({ pointer, message });
  };
  /** The groups of the expression; null: it is bad, which was said. */
  const expression = (
    pointer: string,
    source: string,
    needed: readonly string[] = [],
  ): readonly string[] | null => {
    const result = compilePattern(source);
    if (result.kind === 'bad') {
      say(pointer, `${JSON.stringify(source)}: ${result.message}`);
      return null;
    }
    for (const group of needed.filter((one) => !result.groups.includes(one))) {
      say(pointer, `${JSON.stringify(source)} has no group (?<${group}>...)`);
    }
    return result.groups;
  };

  for (const [pointer, text] of paths.flatMap((place) => textsAt(profile, place))) {
    for (const name of variablesIn(text)) {
      if (isVariable(name)) continue;
      const known = variableNames.map((variable) => `\${${variable}}`).join(', ');
      say(pointer, `\${${name}} is unknown; known: ${known}`);
    }
  }
  for (const [pointer, text] of ranges.flatMap((place) => textsAt(profile, place))) {
    if (validRange(text) !== null) continue;
    const allowed = 'allowed: as in ">=0.12.4 <0.30" or "*"';
    say(pointer, `${JSON.stringify(text)} is not a range of versions; ${allowed}`);
  }
  for (const [place, ...groups] of expressions) {
    for (const [pointer, text] of textsAt(profile, place)) {
      expression(pointer, text, groups);
      if (log.format === 'text' && place.endsWith('/fields/*'))
        say(pointer, 'a log of format "text" has no fields');
    }
  }
  for (const [pointer, text] of textsAt(profile, '/publicLinks/directories/*/*/path')) {
    if (!profile.consumerLibraries.some((own) => own.replace(/\/\*?$/, '') === text)) continue;
    const why = 'belongs to the consumer (consumerLibraries); vgpu-agent writes nothing there';
    say(pointer, `${JSON.stringify(text)} ${why}`);
  }
  profile.environment.forEach(({ name, separator, entries, preflight }, index) => {
    const pointer = `/environment/${index}`;
    if (loaderVariables.has(name) && separator !== ':') {
      say(`${pointer}/separator`, `${JSON.stringify(separator)} was given; for ${name} allowed: ":"`);
    }
    if (profile.environment.findIndex((one) => one.name === name) !== index) {
      say(`${pointer}/name`, `${JSON.stringify(name)} is given twice`);
    }
    entries.forEach((text, at) => {
      const entry = `${pointer}/entries/${at}`;
      if (/[\n\r\0]/.test(text)) say(entry, 'line breaks and NUL are not allowed');
      if (preflight !== 'none' && !/^(?:\/|\$\{store\})/.test(text)) {
        say(entry, `${JSON.stringify(text)} was given, allowed: an absolute path or \${store}/...`);
      }
    });
  });
  log.loads?.forEach(({ message, says }, index) => {
    if (says === 'layers') expression(`/log/loads/${index}/message`, message, ['gpu', 'all']);
  });
  log.devices.forEach((rule, index) => {
    const pointer = `/log/devices/${index}`;
    if (rule.fields.library.length === 0 && rule.fixed.library === undefined) {
      const unknown = 'no key is named, and fixed.library is not given: the library stays unknown';
      say(`${pointer}/fields/library`, unknown);
    }
    // In a text log the fields are groups of the expression.
    const groups = log.format === 'text' ? expression(`${pointer}/message`, rule.message) : null;
    for (const [place, name] of textsAt(rule.fields, '/*/*')) {
      if (groups === null || groups.includes(name)) continue;
      const why = 'is not a group of the expression in "message"';
      say(`${pointer}/fields${place}`, `${JSON.stringify(name)} ${why}`);
    }
  });
  return unique(problems);
}

// JSON with the place of every value. `JSON.parse` loses where a value stood, accepts a repeated key, and reports the
// place of an error differently in each release of V8; a person who wrote a profile needs line and column.

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

type JsonResult =
  | { readonly kind: 'ok'; readonly value: Json }
  /** `line 3, column 5: not JSON: comma expected`. */
  | { readonly kind: 'bad'; readonly problem: string };

/** One part of a JSON pointer, escaped (RFC 6901). */
export function pointerPart(part: string | number): string {
  return String(part).replaceAll('~', '~0').replaceAll('/', '~1');
}

/** Parses `text` strictly (RFC 8259): no comments, no trailing commas, no repeated keys. */
export function parseJson(text: string): JsonResult {
  const source = withoutMark(text);
  try {
    const [first] = walk(source).mistakes;
    return first === undefined ? { kind: 'ok', value: JSON.parse(source) } : { kind: 'bad', problem: first };
  } catch (error) {
    // Of `walk`, or of JSON.parse.
    if (!(error instanceof RangeError)) throw error;
    return { kind: 'bad', problem: 'not JSON: too many levels' };
  }
}

/** Line of every value in `text`, which parseJson has read, by JSON pointer (`/log/devices/0`); the root is ``. */
export function linesIn(text: string): ReadonlyMap<string, number> {
  return walk(withoutMark(text)).lines;
}

const withoutMark = (text: string): string => (text.startsWith('\uFEFF') ? text.slice(1) : text);

/** Far more than any of our files has. `pathOf` takes time in proportion to the level. */
const mostLevels = 200;

function walk(source: string) {
  const lines = new Map<string, number>();
  const keys = new Set<string>();
  const mistakes: string[] = [];
  const found = (message: string, line: number, character: number): void => {
    mistakes.push(`line ${line + 1}, column ${character + 1}: not JSON: ${message}`);
  };
  const value: JSONVisitor['onObjectBegin'] = (_, __, line, ___, pathOf) => {
    const pointer = pathOf().map((part) => `/${pointerPart(part)}`);
    if (pointer.length > mostLevels) throw new RangeError('too many levels');
    lines.set(pointer.join(''), line + 1);
  };
  visit(
    source,
    {
      onObjectBegin: value,
      onArrayBegin: value,
      onLiteralValue: (_, offset, length, line, character, pathOf) =>
        value(offset, length, line, character, pathOf),
      onObjectProperty: (key, _, __, line, character, pathOf) => {
        const pointer = JSON.stringify([...pathOf(), key]);
        if (keys.has(pointer)) found(`the key ${JSON.stringify(key)} is given twice`, line, character);
        keys.add(pointer);
      },
      // `CommaExpected`: comma expected.
      onError: (code, _, __, line, character) => {
        const words = printParseErrorCode(code).replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`);
        found(words.toLowerCase(), line, character);
      },
    },
    { disallowComments: true, allowEmptyContent: false, allowTrailingComma: false },
  );
  return { lines, mistakes };
}
