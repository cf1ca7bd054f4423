/** From parsed JSON to a Profile, or a list of what is wrong with it, each with its field. */
import type { DefinedError } from 'ajv';
import { schemaCheck } from '../lib/schema.js';
import type { Json } from './json.js';
import { pointerPart } from './json.js';
import { checkMeaning } from './meaning.js';
import { nearest } from './suggest.js';
import type { Profile } from './types.js';

/** One thing wrong with a profile. */
export interface Problem {
  /** JSON pointer of the field. */
  readonly pointer: string;
  readonly message: string;
}

export type ProfileResult =
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
  return readable === '' ? 'the profile' : readable;
}

/**
 * Compiles the schema once. It must be a JSON Schema 2020-12 object (a test checks the shipped one); not every
 * mistake in it is noticed here.
 */
export function createProfileValidator(schema: object): ProfileValidator {
  const check = schemaCheck<Profile>(schema);
  return (given) => {
    const checked = check(given);
    if (checked.kind === 'wrong') return { kind: 'bad', problems: problemsOf(checked.errors) };
    const problems = checkMeaning(checked.value);
    return problems.length === 0 ? { kind: 'ok', profile: checked.value } : { kind: 'bad', problems };
  };
}

/** ajv's errors (`allErrors`, `verbose`) in words, each once. */
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

/** ajv's error in words: what was given, what is allowed. */
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
