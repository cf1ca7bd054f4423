// Roots of other Debian releases (scripts/test-roots) and other Nodes (scripts/fetch-node), if they exist.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from './repository.js';

/** The releases that guests are tested on, beside this machine's own. */
export const releases = ['bookworm', 'trixie', 'sid'] as const;
/** The major versions of Node that the agent runs on. */
export const nodeVersions = [20, 22, 24] as const;

/** The directory of a root that scripts/test-roots makes. */
export function testRoot(name: string): string {
  return join(repository, '.cache/test-roots', name);
}

/** Why there is no such root, or false; for the `skip` option of a test. */
export function whyNoRoot(name: string): string | false {
  return existsSync(`${testRoot(name)}.made`) ? false : `scripts/test-roots ${name} was not run`;
}

/** A Node of that major version. */
export function testNode(major: number): string {
  const arch = process.arch === 'arm64' ? 'arm64' : 'x64';
  return join(repository, `.cache/nodes/${major}/node_modules/node-linux-${arch}/bin/node`);
}

/** Why there is no such Node, or false; for the `skip` option of a test. */
export function whyNoNode(major: number): string | false {
  return existsSync(testNode(major)) ? false : `scripts/fetch-node ${major} was not run`;
}
