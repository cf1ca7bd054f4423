/** Part of the build: makes validators of our schemas, so that the agent does not have to load ajv. */

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { default as StandaloneCode } from 'ajv/dist/standalone/index.js';
import { buildSync, type Metafile } from 'esbuild';
import { emptyDirSync, readJsonSync } from 'fs-extra/esm';
import { statusSchema } from '../agent/cli/commands/status.js';
import { manifestSchema } from '../agent/contracts/manifest.js';
import { probeReportSchema } from '../agent/contracts/probe.js';
import { hostDaemonSchema } from '../agent/contracts/serving.js';
import { sessionsSchema } from '../agent/contracts/sessions.js';
import { recordSchema } from '../agent/install/apply/records.js';
import { packageRoot } from '../agent/lib/paths.js';
import { compiledFile, newAjv } from '../agent/lib/schema.js';
import {
  defaultProfilePlaces,
  listProfiles,
  parseProfile,
  validatorOf,
  validMark,
} from '../agent/profile/load.js';
import { noteBundled } from './bundled.js';

const require = createRequire(import.meta.url);
const { default: standaloneCode } = require('ajv/dist/standalone/index.js') as {
  default: typeof StandaloneCode.default;
};
const files = ['profiles/profile.schema.json', 'units/agent.schema.json'];
const schemas: readonly (readonly [name: string, schema: object])[] = [
  ...files.map((name): [string, object] => [name, readJsonSync(path.join(packageRoot(), name))]),
  ['agent/contracts/probe.ts', probeReportSchema],
  ['agent/contracts/sessions.ts', sessionsSchema],
  ['agent/contracts/serving.ts', hostDaemonSchema],
  ['agent/contracts/manifest.ts', manifestSchema],
  ['agent/install/apply/records.ts', recordSchema],
  ['docs/json/status.schema.json', statusSchema()],
];
emptyDirSync(path.dirname(compiledFile({})));
const metafiles: Metafile[] = [];
for (const [name, schema] of schemas) {
  const ajv = newAjv(require, { source: true });
  // Bundles the code that ajv's output requires: the copy in /usr/lib/vgpu-agent has only one package in node_modules.
  const { metafile } = buildSync({
    stdin: { contents: standaloneCode(ajv, ajv.compile(schema)), resolveDir: packageRoot() },
    outfile: compiledFile(schema),
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    // The service keeps their text in memory.
    minify: true,
    banner: { js: `// From ${name} by ajv.` },
    logLevel: 'warning',
    metafile: true,
  });
  metafiles.push(metafile);
}
noteBundled('schemas', metafiles);
// A start does not validate the shipped profiles again: that took 5 % of `status`.
const { schema } = defaultProfilePlaces();
const schemaText = readFileSync(schema, 'utf8');
const validate = validatorOf(schema);
for (const { path: file } of listProfiles({ directories: [path.dirname(schema)], schema })) {
  const text = readFileSync(file, 'utf8');
  parseProfile(text, file, validate);
  writeFileSync(validMark(text, schemaText), '');
}
