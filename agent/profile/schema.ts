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
import { packageRoot } from '../paths.js';

/** What is wrong with a value; empty: it fits. */
export type SchemaCheck = (value: unknown) => readonly DefinedError[];

/** As ajv compiles it, at build time or now. */
interface Compiled {
  (value: unknown): boolean;
  errors?: unknown;
}

/** Compiles a JSON Schema 2020-12 object, or takes what was compiled of the very same one. */
export function schemaCheck(schema: object): SchemaCheck {
  const require = createRequire(import.meta.url);
  const built = compiledFile(schema);
  const fits: Compiled = existsSync(built) ? require(built) : newAjv(require).compile(schema);
  return (value) => (fits(value) ? [] : ((fits.errors ?? []) as DefinedError[]));
}

/** Named by what it was made of, so that it can be missing but never out of date. */
export function compiledFile(schema: object): string {
  const source = JSON.stringify([options, schema]);
  const name = createHash('sha256').update(source).digest('hex').slice(0, 16);
  return path.join(packageRoot(), 'dist', 'agent', 'schemas', `${name}.cjs`);
}

const options: Options = {
  allErrors: true,
  verbose: true,
  strict: true,
  strictTypes: false,
  allowUnionTypes: true,
  // A test holds our schemas to theirs; to check them and make the code small takes longer than to run it once.
  validateSchema: false,
  code: { optimize: false },
};

/** `code`: settings of the code that is made, besides ours. */
export function newAjv(require: NodeJS.Require, code: Options['code'] = {}): Ajv2020 {
  const { Ajv2020: Constructor } = require('ajv/dist/2020.js') as { Ajv2020: typeof Ajv2020 };
  return new Constructor({ ...options, code: { ...options.code, ...code } });
}
