import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { VgpuError } from './errors.js';
import { jsonIn } from './json.js';
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
  const { packaged, commit, date, node } = Object(jsonIn(readFileSync(file, 'utf8')));
  if (packaged !== 'deb' && packaged !== 'tarball')
    throw broken(file, '"packaged" is neither deb nor tarball');
  if (typeof commit !== 'string' || typeof date !== 'string' || typeof node !== 'string') {
    throw broken(file, '"commit", "date" or "node" is missing');
  }
  return { packaged, commit, date, node };
}

function broken(file: string, what: string): VgpuError {
  return new VgpuError(`${file} is not of this release: ${what}`, {
    kind: 'failed',
    operation: 'read what this release is',
    path: file,
    remedy: 'install vgpu-agent again; files of it are damaged',
  });
}

type Part = 'the service' | 'the host';

/** The text of a file that comes with vgpu-agent; throws as `missingFile` says. */
export function packagedText(part: Part, ...place: readonly string[]): string {
  const file = path.join(packageRoot(), ...place);
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw missingFile(part, file, cause);
  }
}

export function missingFile(part: Part, file: string, cause?: unknown): VgpuError {
  return new VgpuError(`${part} cannot be installed: ${file} is missing`, {
    kind: 'failed',
    operation: `read the files of ${part}`,
    path: file,
    remedy:
      part === 'the host' && readBuildInfo()?.packaged === 'deb'
        ? 'on Debian the daemon is a package of its own: apt install vgpu-hostd, which prints the next command'
        : 'build it (npm run build) or install vgpu-agent again; files of it are missing',
    cause,
  });
}

export function agentVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(path.join(packageRoot(), 'package.json'), 'utf8'));
  const found =
    typeof manifest === 'object' && manifest !== null && 'version' in manifest ? manifest.version : null;
  return typeof found === 'string' ? found : 'unknown';
}
