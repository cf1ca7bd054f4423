/** Part of the build: makes validators of our schemas, so that nobody who runs the agent has to load ajv. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { default as StandaloneCode } from 'ajv/dist/standalone/index.js';
import { packageRoot } from '../agent/paths.js';
import { compiledFile, newAjv } from '../agent/profile/schema.js';

const require = createRequire(import.meta.url);
const { default: standaloneCode } = require('ajv/dist/standalone/index.js') as {
  default: typeof StandaloneCode.default;
};
const schemas = ['profiles/profile.schema.json', 'units/agent.schema.json'];
rmSync(path.dirname(compiledFile({})), { recursive: true, force: true });
mkdirSync(path.dirname(compiledFile({})), { recursive: true });
for (const name of schemas) {
  const schema: object = JSON.parse(readFileSync(path.join(packageRoot(), name), 'utf8'));
  const ajv = newAjv(require, { source: true });
  writeFileSync(
    compiledFile(schema),
    `// From ${name} by ajv.\n${standaloneCode(ajv, ajv.compile(schema))}\n`,
  );
}
