/** What only the doctor looks at, beside the facts that install has. Reads, never writes. */
import path from 'node:path';
import type { Profile } from '../profile/types.js';
import { consumerDirectories } from './candidates.js';
import type { ContentCache } from './content.js';
import { isSecure } from './process-security.js';
import { Root } from './root.js';
import type { ElfFacts, MachineFacts } from './types.js';

/** One shared library in a directory of the consumer's own. */
export interface ConsumerLibrary {
  readonly path: string;
  /** Null when it is no ELF file, or may not be read: then `problem` says why. */
  readonly elf: ElfFacts | null;
  readonly problem: string | null;
}

/** One process of the unit that lived when the facts were read. */
export interface ProcessSecurity {
  readonly pid: number;
  readonly name: string;
  readonly executable: string | null;
  /** AT_SECURE: the loader ignores LD_PRELOAD and LD_LIBRARY_PATH for it. Null: it could not be read. */
  readonly secure: boolean | null;
}

export interface CloserLook {
  /** Directories of the consumer's own libraries that exist, and what is in them (`*.so*`). */
  readonly consumer: {
    readonly directories: readonly string[];
    readonly libraries: readonly ConsumerLibrary[];
  };
  readonly security: readonly ProcessSecurity[];
}

export interface LookEffects {
  /** Prefix of the file system that is examined; `/` is the running one. */
  readonly root: string;
  readonly contents: ContentCache;
}

/** A machine without the consumer gives empty lists; nothing is thrown for what may not be read. */
export async function lookCloser(
  effects: LookEffects,
  profile: Profile,
  facts: MachineFacts,
): Promise<CloserLook> {
  const root = new Root(effects.root);
  const directories = consumerDirectories(root, profile, facts.distribution);
  const files = directories.flatMap((directory) =>
    root
      .readdir(directory)
      .filter((name) => /\.so(\.|$)/.test(name))
      .map((name) => path.join(directory, name)),
  );
  return {
    consumer: {
      directories,
      libraries: await Promise.all(files.map((file) => readLibrary(root, effects.contents, file))),
    },
    security: facts.processes.map(({ pid, name, executable }) => ({
      pid,
      name,
      executable,
      secure: isSecure(pid),
    })),
  };
}

async function readLibrary(root: Root, contents: ContentCache, file: string): Promise<ConsumerLibrary> {
  try {
    const resolution = root.resolve(file);
    if (resolution.kind !== 'file') return { path: file, elf: null, problem: resolution.kind };
    const content = await contents.of(root.prefix + resolution.realPath, file);
    if (content === null) return { path: file, elf: null, problem: 'it is no regular file' };
    return content.elf.kind === 'elf'
      ? { path: file, elf: content.elf.facts, problem: null }
      : { path: file, elf: null, problem: content.elf.reason };
  } catch (error) {
    return { path: file, elf: null, problem: error instanceof Error ? error.message : String(error) };
  }
}
