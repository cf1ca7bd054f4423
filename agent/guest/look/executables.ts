/** The programs of a unit: what decides whether the loader does for them what the environment asks. */

import type { ElfFacts, ProcessFacts } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { ContentCache } from '../files/content.js';
import type { Root } from '../files/root.js';

export interface ExecutableFacts {
  readonly path: string;
  readonly setId: boolean;
  /** As getcap prints them: `cap_net_raw=ep`; empty: none. Null: getcap is not here or failed. */
  readonly capabilities: string | null;
  /** Null when it is no ELF file, or may not be read. */
  readonly elf: ElfFacts | null;
}

const getcapTimeoutMs = 5_000;

/** Each program that a process of the unit runs, once. */
export async function readExecutables(
  root: Root,
  runner: CommandRunner,
  contents: ContentCache,
  processes: readonly ProcessFacts[],
): Promise<readonly ExecutableFacts[]> {
  const paths = new Set(processes.map(({ executable }) => executable).filter((path) => path !== null));
  return Promise.all([...paths].map((path) => readExecutable(root, runner, contents, path)));
}

async function readExecutable(
  root: Root,
  runner: CommandRunner,
  contents: ContentCache,
  path: string,
): Promise<ExecutableFacts> {
  const [capabilities, elf] = await Promise.all([
    readCapabilities(runner, root.hostPath(path) ?? path),
    contents.of(root.hostPath(path) ?? path, path).then(
      (content) => (content?.elf.kind === 'elf' ? content.elf.facts : null),
      () => null,
    ),
  ]);
  return { path, setId: isSetId(root, path), capabilities, elf };
}

function isSetId(root: Root, path: string): boolean {
  try {
    return (Number(root.stat(path)?.mode ?? 0n) & 0o6000) !== 0;
  } catch {
    return false;
  }
}

/** `PATH cap_net_raw=ep`, or `PATH = cap_net_raw+ep` (libcap before 2.41). */
async function readCapabilities(runner: CommandRunner, path: string): Promise<string | null> {
  try {
    const ran = await runner.run('getcap', [path], { timeoutMs: getcapTimeoutMs });
    if (ran.code !== 0) return null;
    const line = ran.stdout.toString('utf8').trim();
    return line.startsWith(path) ? line.slice(path.length).replace(/^ =? ?/, '') : line;
  } catch {
    return null;
  }
}
