/** Holds documents against docs/json/. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';

const directory = fileURLToPath(new URL('../../../../../docs/json/', import.meta.url));

function schemas(): ReadonlyMap<string, object> {
  const found = new Map<string, object>();
  for (const file of readdirSync(directory).filter((name) => name.endsWith('.schema.json'))) {
    const schema: unknown = JSON.parse(readFileSync(path.join(directory, file), 'utf8'));
    assert.ok(typeof schema === 'object' && schema !== null, file);
    found.set(file, schema);
  }
  return found;
}

/** Fails unless `text` is one JSON document that fits docs/json/NAME.schema.json; returns it. */
export function assertDocument(name: string, text: string): unknown {
  const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true, strict: true });
  for (const schema of schemas().values()) ajv.addSchema(schema);
  const validate = ajv.getSchema(`${name}.schema.json`);
  assert.ok(validate !== undefined, `docs/json/${name}.schema.json`);
  const document: unknown = JSON.parse(text);
  assert.ok(validate(document), `${ajv.errorsText(validate.errors, { separator: '\n' })}\n${text}`);
  return document;
}

/** A definition of docs/json/common.schema.json. */
export function commonDefinition(name: string): unknown {
  const common: unknown = schemas().get('common.schema.json');
  assert.ok(typeof common === 'object' && common !== null && '$defs' in common);
  return Reflect.get(Object(common.$defs), name);
}
