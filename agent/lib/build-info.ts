import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { VgpuError } from './errors.js';
import { packageRoot } from './paths.js';

export interface BuildInfo {
  /** `deb`: dpkg owns the bus policy, polkit actions, catalog, man pages and completions already. */
  readonly packaged: 'deb' | 'tarball';
  /** The git commit, with `-changed` appended if the tree had changes that were not committed. */
  readonly commit: string;
  readonly date: string;
  readonly node: string;
}

/** Null: not a release. Throws a VgpuError (`failed`) when build.json is not what scripts/package writes. */
export function readBuildInfo(): BuildInfo | null {
  const file = path.join(packageRoot(), 'build.json');
  if (!existsSync(file)) return null;
  const { packaged, commit, date, node } = Object(parsed(readFileSync(file, 'utf8')));
  if (packaged !== 'deb' && packaged !== 'tarball')
    throw broken(file, '"packaged" is neither deb nor tarball');
  if (typeof commit !== 'string' || typeof date !== 'string' || typeof node !== 'string') {
    throw broken(file, '"commit", "date" or "node" is missing');
  }
  return { packaged, commit, date, node };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function broken(file: string, what: string): VgpuError {
  return new VgpuError(`${file} is not of this release: ${what}`, {
    kind: 'failed',
    operation: 'read what this release is',
    path: file,
    remedy: 'install vgpu-agent again; files of it are damaged',
  });
}

export function agentVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(path.join(packageRoot(), 'package.json'), 'utf8'));
  const found =
    typeof manifest === 'object' && manifest !== null && 'version' in manifest ? manifest.version : null;
  return typeof found === 'string' ? found : 'unknown';
}
