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
import { findPackageRoot } from './paths.js';

export type Checked<T> =
  | { readonly kind: 'fits'; readonly value: T }
  | { readonly kind: 'wrong'; readonly errors: readonly DefinedError[] };

export function firstProblem([first]: readonly DefinedError[]): string {
  const given = JSON.stringify(first?.data)?.slice(0, 80);
  const where = first === undefined || first.instancePath === '' ? 'it' : first.instancePath;
  return `${where} ${first?.message ?? 'is not allowed'}, but is ${given}`;
}

export type SchemaCheck<T> = (value: unknown) => Checked<T>;

declare const describes: unique symbol;

/** A JSON Schema 2020-12 object. `T` is what it describes: for a schema of the functions below by construction. */
export interface Schema<T> {
  readonly [keyword: string]: unknown;
  readonly [describes]?: () => T;
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

/** Named by what it was made of, so that it can be missing but never out of date. */
export function compiledFile(schema: object): string {
  const source = JSON.stringify([options, schema]);
  const name = createHash('sha256').update(source).digest('hex').slice(0, 16);
  return path.join(findPackageRoot() ?? '', 'dist', 'agent', 'schemas', `${name}.cjs`);
}

export const text: Schema<string> = { type: 'string' };
export const number: Schema<number> = { type: 'number' };
export const integer: Schema<number> = { type: 'integer' };
export const boolean: Schema<boolean> = { type: 'boolean' };

export function constant<const T extends string | number | boolean>(value: T): Schema<T> {
  return { const: value };
}

export function anyOf<const T extends readonly string[]>(...values: T): Schema<T[number]> {
  return { enum: values };
}

export function oneOfCodes<const T extends string>(codes: readonly { readonly code: T }[]): Schema<T> {
  return { enum: codes.map(({ code }) => code) };
}

export function list<T>(items: Schema<T>): Schema<readonly T[]> {
  return { type: 'array', items };
}

export function orNull<T>(schema: Schema<T>): Schema<T | null> {
  const { type } = schema;
  return typeof type === 'string'
    ? { ...schema, type: [type, 'null'] }
    : { anyOf: [schema, { type: 'null' }] };
}

type Members = Readonly<Record<string, Schema<unknown>>>;

export function object<P extends Members, O extends Members = Record<never, never>>(
  properties: P,
  optional?: O,
): Schema<
  { readonly [Name in keyof P]: Described<P[Name]> } & { readonly [Name in keyof O]?: Described<O[Name]> }
> {
  return { type: 'object', required: Object.keys(properties), properties: { ...properties, ...optional } };
}

/** Objects that the member `name` distinguishes. */
export function oneOf<const S extends readonly Schema<unknown>[]>(
  name: string,
  ...alternatives: S
): Schema<Described<S[number]>> {
  return {
    type: 'object',
    discriminator: { propertyName: name },
    required: [name],
    properties: { [name]: text },
    oneOf: alternatives,
  };
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
