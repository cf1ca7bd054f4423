// States of a machine on which a person types `vgpu-agent install`. Each state is made as such machines
// come by it: by real packages, ldconfig and update-alternatives, not by writing what they would have written.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { ConsumerDesign } from '../support/consumer.js';
import type { Guest } from '../support/guest.js';
import { repository } from '../support/repository.js';

export interface StartingState {
  /** Reads after "from": "links that dangle". */
  readonly name: string;
  /** The consumer's design whose way of looking meets this state. */
  readonly design: ConsumerDesign;
  /** Why it cannot be made here, or false. */
  readonly skip: string | false;
  /** Brings a booted, bare guest with an installed consumer into this state. */
  prepare(guest: Guest): Promise<void>;
  /** Undoes `prepare` for packages and mounts. Files need no undoing, because the guest is thrown away. */
  readonly expect?: Expectation;
}

/** The answer of install where that is not plainly "done". */
export interface Expectation {
  readonly refused: RegExp;
}

/** Where Debian's loader looks, and the first directory of every profile. */
export const multiarch = '/usr/lib/x86_64-linux-gnu';
export const localLib = '/usr/local/lib';

/** Writes links: `[path, target]` each. */
export async function link(guest: Guest, ...links: readonly (readonly [string, string])[]): Promise<void> {
  await guest.must(
    'bash',
    '-ec',
    links.map(([path, target]) => `mkdir -p "$(dirname ${path})"; ln -sfnT ${target} ${path}`).join('\n'),
  );
}

/** A group of scripts/fetch-packages: its unpacked root, or why it is not there. */
export function packageGroup(group: string): { readonly root: string; readonly skip: string | false } {
  const root = join(repository, '.cache/roots', group);
  const there = existsSync(join(root, '.complete'));
  return { root, skip: there ? false : `${group} is not fetched (scripts/fetch-packages ${group})` };
}

/** Why a program is not on this machine (whose root the guest reads), or false. */
export function whyNoProgram(name: string, why: string): string | false {
  try {
    execFileSync('sh', ['-c', `command -v ${name}`], { stdio: 'ignore' });
    return false;
  } catch {
    return `${name} is not installed; it ${why}`;
  }
}
