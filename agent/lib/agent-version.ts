/** The version of this agent, as package.json says it. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from './paths.js';

export function agentVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(path.join(packageRoot(), 'package.json'), 'utf8'));
  const found =
    typeof manifest === 'object' && manifest !== null && 'version' in manifest ? manifest.version : null;
  return typeof found === 'string' ? found : 'unknown';
}
