/**
 * JSON Schema by ajv, without loading ajv where that can be helped: our own schemas are compiled when the package is
 * built (scripts/compile-schemas.ts), since ajv costs every command a fifth of its run and the service 3 MB for life.
 */

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { DefinedError, Options } from 'ajv';
import type { Ajv2020 } from 'ajv/dist/2020.js';
import { jsonIn } from './json.js';
import { findPackageRoot } from './paths.js';

export type Checked<T> =
  | { readonly kind: 'fits'; readonly value: T }
  | { readonly kind: 'wrong'; readonly errors: readonly DefinedError[] };

export function firstProblem(errors: readonly DefinedError[]): string {
  // A document of another version fails in many places, and its version is the reason.
  const first = errors.find(({ instancePath }) => instancePath === '/schema') ?? errors[0];
  const given = JSON.stringify(first?.data)?.slice(0, 80);
  const where = first === undefined || first.instancePath === '' ? 'it' : first.instancePath;
  const wanted =
    first?.keyword === 'const' ? `must be ${JSON.stringify(first.params.allowedValue)}` : first?.message;
  return `${where} ${wanted ?? 'is not allowed'}, but is ${given}`;
}

export type SchemaCheck<T> = (value: unknown) => Checked<T>;

declare const describes: unique symbol;

/** A JSON Schema 2020-12 object. `T` is what it describes: for a schema of the functions below by construction. */
export interface Schema<T> {
  readonly [keyword: string]: unknown;
  readonly [describes]: () => T;
}

/** A schema that is written by hand or read from a file. The caller says what it describes; nothing checks that. */
export function describing<T>(keywords: Readonly<Record<string, unknown>>): Schema<T> {
  return keywords as Schema<T>;
}

export type Described<S> = S extends Schema<infer T> ? T : never;

interface Compiled<T> {
  (value: unknown): value is T;
  errors?: unknown;
}

/** Compiles the schema, or takes what was compiled of the very same one. */
export function schemaCheck<T>(schema: Schema<T>): SchemaCheck<T> {
  const require = createRequire(import.meta.url);
  const built = compiledFile(schema);
  const fits: Compiled<T> = existsSync(built) ? require(built) : newAjv(require).compile<T>(schema);
  return (value) =>
    fits(value)
      ? { kind: 'fits', value }
      : { kind: 'wrong', errors: (fits.errors ?? []) as readonly DefinedError[] };
}

/** Reads JSON of a program or a file by a schema, or returns why it does not fit. */
export function readAs<T>(
  schema: Schema<T>,
  text: string,
): { readonly kind: 'fits'; readonly value: T } | { readonly kind: 'wrong'; readonly problem: string } {
  const value = jsonIn(text);
  if (value === undefined)
    return { kind: 'wrong', problem: `it is not JSON: ${JSON.stringify(text.slice(0, 200))}` };
  const checked = schemaCheck(schema)(value);
  return checked.kind === 'fits' ? checked : { kind: 'wrong', problem: firstProblem(checked.errors) };
}

/** Named by what it was made of, so that it can be missing but never out of date. */
export function compiledFile(schema: object): string {
  const source = JSON.stringify([options, schema]);
  const name = createHash('sha256').update(source).digest('hex').slice(0, 16);
  return path.join(findPackageRoot() ?? '', 'dist', 'agent', 'schemas', `${name}.cjs`);
}

export const text = describing<string>({ type: 'string' });
export const number = describing<number>({ type: 'number' });
export const integer = describing<number>({ type: 'integer' });
export const boolean = describing<boolean>({ type: 'boolean' });

export function constant<const T extends string | number | boolean>(value: T): Schema<T> {
  return describing({ const: value });
}

export function anyOf<const T extends readonly string[]>(...values: T): Schema<T[number]> {
  return describing({ enum: values });
}

export function oneOfCodes<const T extends string>(codes: readonly { readonly code: T }[]): Schema<T> {
  return describing({ enum: codes.map(({ code }) => code) });
}

export function list<T>(items: Schema<T>): Schema<readonly T[]> {
  return describing({ type: 'array', items });
}

export function orNull<T>(schema: Schema<T>): Schema<T | null> {
  const { type } = schema;
  return describing(
    typeof type === 'string' ? { ...schema, type: [type, 'null'] } : { anyOf: [schema, { type: 'null' }] },
  );
}

type Members = Readonly<Record<string, Schema<unknown>>>;

export function object<P extends Members, O extends Members = Record<never, never>>(
  properties: P,
  optional?: O,
): Schema<
  { readonly [Name in keyof P]: Described<P[Name]> } & { readonly [Name in keyof O]?: Described<O[Name]> }
> {
  return describing({
    type: 'object',
    required: Object.keys(properties),
    properties: { ...properties, ...optional },
  });
}

/** Objects that the member `name` distinguishes. */
export function oneOf<const S extends readonly Schema<unknown>[]>(
  name: string,
  ...alternatives: S
): Schema<Described<S[number]>> {
  return describing({
    type: 'object',
    discriminator: { propertyName: name },
    required: [name],
    properties: { [name]: text },
    oneOf: alternatives,
  });
}

const options: Options = {
  allErrors: true,
  verbose: true,
  strict: true,
  strictTypes: false,
  allowUnionTypes: true,
  // Less code: what is referred to is a function of its own.
  inlineRefs: false,
  // For alternatives with a member that distinguishes them, only the matching alternative reports errors.
  discriminator: true,
  // A test holds our schemas to theirs; to check them and make the code small takes longer than to run it once.
  validateSchema: false,
  code: { optimize: false },
};

export function newAjv(require: NodeJS.Require, code: Options['code'] = {}): Ajv2020 {
  const { Ajv2020: Constructor } = require('ajv/dist/2020.js') as { Ajv2020: typeof Ajv2020 };
  return new Constructor({ ...options, code: { ...options.code, ...code } });
}
