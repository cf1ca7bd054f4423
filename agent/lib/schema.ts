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

interface Compiled<T> {
  (value: unknown): value is T;
  errors?: unknown;
}

/**
 * Compiles a JSON Schema 2020-12 object, or takes what was compiled of the very same one. `T` is what the schema
 * describes: that the two agree is for the schema's tests to show.
 */
export function schemaCheck<T>(schema: object): SchemaCheck<T> {
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

export function object(
  properties: Readonly<Record<string, object>>,
  optional: Readonly<Record<string, object>> = {},
): { type: 'object'; required: string[]; properties: Readonly<Record<string, object>> } {
  return { type: 'object', required: Object.keys(properties), properties: { ...properties, ...optional } };
}

export function orNull(schema: object): object {
  return { anyOf: [schema, { type: 'null' }] };
}

export function oneOfCodes(codes: readonly { readonly code: string }[]): object {
  return { enum: codes.map(({ code }) => code) };
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
