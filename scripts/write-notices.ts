/**
 * Part of scripts/package: NOTICES, the licences of everything of others that is shipped, and sbom.cdx.json, the same as a
 * CycloneDX list. `node write-notices.js DIRECTORY NODE_PACKAGE VERSION`; SOURCE_DATE_EPOCH gives the date.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { outputFileSync } from 'fs-extra/esm';
import { packageRoot } from '../agent/lib/paths.js';
import { readBundled } from './bundled.js';

interface Part {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly text: string;
  /** Base64, of the archive in npm's registry; null: not in package-lock.json. */
  readonly integrity: string | null;
  readonly how: string;
}

/** Where package.json says it in a form that is no SPDX expression, or not at all: what the licence file says. */
const spoken: Readonly<Record<string, string>> = {
  '@nornagon/put': 'MIT',
  jsbi: 'Apache-2.0',
  'map-stream': 'MIT',
  'pause-stream': 'MIT OR Apache-2.0',
};

const locked: Readonly<Record<string, { readonly integrity?: string }>> = JSON.parse(
  readFileSync(path.join(packageRoot(), 'package-lock.json'), 'utf8'),
).packages;

function partOf(directory: string, how: string): Part {
  const place = path.resolve(packageRoot(), directory);
  const { name, version, license } = JSON.parse(readFileSync(path.join(place, 'package.json'), 'utf8'));
  const said: unknown = spoken[name] ?? license;
  const files = readdirSync(place).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  if (typeof said !== 'string' || files.length === 0) {
    throw new Error(
      `${directory}: no licence in package.json or no licence file: add what it says to "spoken"`,
    );
  }
  const text = files.map((file) => readFileSync(path.join(place, file), 'utf8').trim()).join('\n\n');
  return { name, version, license: said, text, integrity: locked[directory]?.integrity ?? null, how };
}

function notices(parts: readonly Part[]): string {
  const head = `This product has software of others in it. Each is named here with its licence.\n\n${parts
    .map(({ name, version, license, how }) => `  ${name} ${version} (${license}): ${how}`)
    .join('\n')}\n`;
  const line = '='.repeat(78);
  return `${head}\n${parts.map(({ name, version, text }) => `${line}\n${name} ${version}\n${line}\n\n${text}\n`).join('\n')}`;
}

/** CycloneDX 1.5; https://cyclonedx.org/docs/1.5/json/ */
function sbom(parts: readonly Part[], version: string, time: string): object {
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    version: 1,
    metadata: {
      timestamp: time,
      component: {
        type: 'application',
        'bom-ref': 'vgpu-agent',
        name: 'vgpu-agent',
        version,
        licenses: [{ license: { id: 'Apache-2.0' } }],
      },
    },
    components: parts.map(({ name, version: of, license, integrity, how }) => {
      const purl = `pkg:npm/${name.replace('@', '%40')}@${of}`;
      return {
        type: 'library',
        'bom-ref': purl,
        name,
        version: of,
        description: how,
        licenses: license.includes(' ') ? [{ expression: license }] : [{ license: { id: license } }],
        purl,
        ...(integrity === null ? {} : { hashes: [hashOf(integrity)] }),
      };
    }),
    dependencies: [
      {
        ref: 'vgpu-agent',
        dependsOn: parts.map(({ name, version: of }) => `pkg:npm/${name.replace('@', '%40')}@${of}`),
      },
    ],
  };
}

function hashOf(integrity: string): { alg: string; content: string } {
  const [algorithm = '', base64 = ''] = integrity.split('-');
  const content = Buffer.from(base64, 'base64').toString('hex');
  return { alg: algorithm.replace('sha', 'SHA-'), content };
}

const [directory, nodePackage, version] = process.argv.slice(2);
const epoch = Number(process.env['SOURCE_DATE_EPOCH']);
if (
  directory === undefined ||
  nodePackage === undefined ||
  version === undefined ||
  !Number.isInteger(epoch)
) {
  throw new Error('usage: SOURCE_DATE_EPOCH=SECONDS node write-notices.js DIRECTORY NODE_PACKAGE VERSION');
}
if (!existsSync(nodePackage)) throw new Error(`no package of Node at ${nodePackage}`);
const parts = [
  partOf(nodePackage, 'the runtime, bin/node; what Node has in it of others is in its licence'),
  partOf('node_modules/systemd-journald', 'as it is, with a native part compiled for that Node'),
  partOf('node_modules/nan', 'headers, compiled into that native part'),
  ...readBundled(['agent', 'schemas']).map((place) => partOf(place, 'bundled')),
];
const time = new Date(epoch * 1000).toISOString();
outputFileSync(path.join(directory, 'NOTICES'), notices(parts));
outputFileSync(
  path.join(directory, 'sbom.cdx.json'),
  `${JSON.stringify(sbom(parts, version, time), null, 2)}\n`,
);
