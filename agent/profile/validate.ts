import type { DefinedError } from 'ajv';
import validRange from 'semver/ranges/valid.js';
import { VgpuError } from '../lib/errors.js';
import { schemaCheck } from '../lib/schema.js';
import { isVariable, variableNames, variablesIn } from './instance.js';
import { type Json, placesIn, pointerPart } from './json.js';
import { compilePattern } from './patterns.js';
import type { DeviceRule, Profile } from './types.js';

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
  const places = placesIn(text);
  return problems.map(({ pointer, message }) => {
    const place = places.get(pointer);
    return `${place === undefined ? '' : `line ${place.line}, `}${readablePointer(pointer)}: ${message}`;
  });
}

/** Compiles the schema once; a test checks the shipped one against JSON Schema 2020-12. */
export function createProfileValidator(schema: object): ProfileValidator {
  const check = schemaCheck<Profile>(schema);
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

function didYouMean(given: unknown, words: readonly string[]): string {
  const word = typeof given === 'string' ? nearest(given, words) : null;
  return word === null ? '' : `; did you mean ${JSON.stringify(word)}?`;
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
      const hint = didYouMean(key, allowed);
      const message = `unknown key${hint === '' ? '.' : hint} Allowed here: ${allowed.join(', ')}`;
      return [{ pointer: `${pointer}/${pointerPart(key)}`, message }];
    }
    case 'required':
      return [{ pointer, message: `the key ${JSON.stringify(error.params.missingProperty)} is missing` }];
    case 'enum': {
      const allowed: readonly unknown[] = error.params.allowedValues;
      const words = allowed.filter((value) => typeof value === 'string');
      const list = allowed.map((value) => JSON.stringify(value)).join(', ');
      return [{ pointer, message: `${given} was given, allowed: ${list}${didYouMean(error.data, words)}` }];
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

export function checkMeaning(profile: Profile): readonly Problem[] {
  const problems: Problem[] = [];
  const say = (pointer: string, message: string): void => {
    problems.push({ pointer, message });
  };
  /** The groups of the expression; null: it is bad, which was said. */
  const pattern = (
    pointer: string,
    source: string,
    groups: readonly string[] = [],
  ): readonly string[] | null => {
    const result = compilePattern(source);
    if (result.kind === 'bad') {
      say(pointer, `${JSON.stringify(source)}: ${result.message}`);
      return null;
    }
    for (const group of groups) {
      if (!result.groups.includes(group)) {
        say(pointer, `${JSON.stringify(source)} has no group (?<${group}>...)`);
      }
    }
    return result.groups;
  };
  const range = (pointer: string, versions: string): void => {
    if (validRange(versions) === null) {
      say(
        pointer,
        `${JSON.stringify(versions)} is not a range of versions; allowed: as in ">=0.12.4 <0.30" or "*"`,
      );
    }
  };
  const variables = (pointer: string, text: string): void => {
    for (const name of variablesIn(text)) {
      if (isVariable(name)) continue;
      const word = nearest(name, variableNames);
      const known = variableNames.map((variable) => `\${${variable}}`).join(', ');
      const hint = word === null ? '' : `; did you mean \${${word}}?`;
      say(pointer, `\${${name}} is unknown; known: ${known}${hint}`);
    }
  };

  profile.consumerLibraries.forEach((path, index) => {
    variables(`/consumerLibraries/${index}`, path);
  });
  for (const rule of ['backend', 'opensByPath'] as const) {
    const versions = profile.doctor?.[rule]?.versions;
    if (versions !== undefined) range(`/doctor/${rule}/versions`, versions);
  }
  for (const [family, directories] of Object.entries(profile.publicLinks.directories)) {
    directories.forEach(({ path }, index) => {
      const pointer = `/publicLinks/directories/${family}/${index}/path`;
      variables(pointer, path);
      const owned = profile.consumerLibraries.find((own) => own.replace(/\/\*?$/, '') === path);
      if (owned !== undefined) {
        say(
          pointer,
          `${JSON.stringify(path)} belongs to the consumer (consumerLibraries); vgpu-agent writes nothing there`,
        );
      }
    });
  }
  profile.environment.forEach((entry, index) => {
    const pointer = `/environment/${index}`;
    if (loaderVariables.has(entry.name) && entry.separator !== ':') {
      say(
        `${pointer}/separator`,
        `${JSON.stringify(entry.separator)} was given; for ${entry.name} allowed: ":"`,
      );
    }
    if (profile.environment.findIndex(({ name }) => name === entry.name) !== index) {
      say(`${pointer}/name`, `${JSON.stringify(entry.name)} is given twice`);
    }
    entry.entries.forEach((text, at) => {
      variables(`${pointer}/entries/${at}`, text);
      if (/[\n\r\0]/.test(text)) say(`${pointer}/entries/${at}`, 'line breaks and NUL are not allowed');
      if (entry.preflight !== 'none' && !/^(?:\/|\$\{store\})/.test(text)) {
        say(
          `${pointer}/entries/${at}`,
          `${JSON.stringify(text)} was given, allowed: an absolute path or \${store}/...`,
        );
      }
    });
  });
  profile.overrides.forEach(({ value }, index) => {
    pattern(`/overrides/${index}/value`, value);
  });

  const { log } = profile;
  log.starts.forEach(({ message }, index) => {
    pattern(`/log/starts/${index}/message`, message);
  });
  if (log.version !== null) pattern('/log/version/message', log.version.message, ['version']);
  if (log.address !== null) pattern('/log/address/message', log.address.message, ['address']);
  log.finished.forEach((message, index) => {
    pattern(`/log/finished/${index}`, message);
  });
  if (log.prefix !== undefined) pattern('/log/prefix', log.prefix);
  const fields = (pointer: string, rules: Readonly<Record<string, string>>): void => {
    for (const [key, source] of Object.entries(rules)) {
      pattern(`${pointer}/${pointerPart(key)}`, source);
      if (log.format === 'text')
        say(`${pointer}/${pointerPart(key)}`, 'a log of format "text" has no fields');
    }
  };
  log.loads?.forEach((rule, index) => {
    pattern(`/log/loads/${index}/message`, rule.message, rule.says === 'layers' ? ['gpu', 'all'] : []);
    fields(`/log/loads/${index}/fields`, rule.fields ?? {});
  });
  if (log.children !== undefined) {
    pattern('/log/children/line', log.children.line, ['child']);
    pattern('/log/children/began', log.children.began, ['child', 'name']);
    pattern('/log/children/ended', log.children.ended, ['name']);
  }
  log.reasons.forEach((rule, index) => {
    range(`/log/reasons/${index}/versions`, rule.versions);
    pattern(`/log/reasons/${index}/message`, rule.message);
    fields(`/log/reasons/${index}/fields`, rule.fields);
  });
  log.devices.forEach((rule, index) => {
    const pointer = `/log/devices/${index}`;
    range(`${pointer}/versions`, rule.versions);
    if (rule.fields.library.length === 0 && rule.fixed.library === undefined) {
      say(
        `${pointer}/fields/library`,
        'no key is named, and fixed.library is not given: the library stays unknown',
      );
    }
    if (log.format === 'text') {
      const groups = pattern(`${pointer}/message`, rule.message);
      if (groups !== null) checkGroups(rule, groups, pointer, say);
    }
  });
  return problems;
}

/** In a text log the fields are groups of the expression: each must be there. */
function checkGroups(
  rule: DeviceRule,
  groups: readonly string[],
  pointer: string,
  say: (pointer: string, message: string) => void,
): void {
  for (const [field, names] of Object.entries(rule.fields)) {
    names.forEach((name, at) => {
      if (!groups.includes(name)) {
        say(
          `${pointer}/fields/${field}/${at}`,
          `${JSON.stringify(name)} is not a group of the expression in "message"`,
        );
      }
    });
  }
}

// "Did you mean ...": the nearest of a few words.

/** Edits (insert, delete, replace, swap of neighbours) from `a` to `b`. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(replaced, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      // At the edges a or b has no letter there, and nothing is equal to it.
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        best = Math.min(best, (beforeLast[j - 2] ?? 0) + 1);
      }
      row.push(best);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length] ?? 0;
}

/** The word nearest to `given` if it is near enough to be a slip, else null. Case does not count. */
export function nearest(given: string, words: Iterable<string>): string | null {
  const lower = given.toLowerCase();
  let best: string | null = null;
  let bestDistance = Math.max(1, Math.floor(given.length / 3)) + 1;
  for (const word of words) {
    // No spelling mistake is a hundred letters long: keep the table small for any input.
    if (Math.abs(word.length - given.length) >= bestDistance) continue;
    const distance = editDistance(lower, word.toLowerCase());
    if (distance < bestDistance) {
      best = word;
      bestDistance = distance;
    }
  }
  return best;
}
