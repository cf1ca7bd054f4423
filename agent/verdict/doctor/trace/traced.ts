/** A traced start of a service, read from its trace: events, processes, and the owner of each library. */
import fs from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, ProcessFacts } from '../../../contracts/facts.js';
import { type ContentCache, contentAt } from '../../../guest/files/content.js';
import { openRegular, Root } from '../../../guest/files/root.js';
import { parseMaps } from '../../../guest/unit/processes.js';
import { traceFile, tracerName } from '../../../lib/paths.js';
import { readUpTo } from '../../../lib/trust/files.js';

export interface LiveProcess {
  readonly pid: number;
  readonly program: string;
  readonly traced: boolean | null;
}

export function liveProcess({ pid, executable, name }: ProcessFacts): LiveProcess {
  return { pid, program: executable ?? name, traced: hasTracer(pid) };
}

function hasTracer(pid: number): boolean | null {
  try {
    const maps = fs.readFileSync(`/proc/${pid}/maps`, 'utf8');
    return parseMaps(maps).some((one) => path.basename(one.path) === tracerName);
  } catch {
    return null;
  }
}

/** The output of the processes, at most `limit` bytes; empty when there is none. No link is followed. */
export function readTraceFile(limit: number, file = traceFile): { text: string; cut: boolean } {
  const descriptor = openRegular(file, file);
  if (descriptor === null) return { text: '', cut: false };
  try {
    const { bytes } = readUpTo(descriptor, limit);
    return { text: bytes.toString('utf8'), cut: bytes.length === limit };
  } finally {
    fs.closeSync(descriptor);
  }
}

/** More than a service loads; the names come from its processes, which may name what they like. */
const mostLibraries = 40;

/** The vendor of each library, by content; a file that cannot be read, or no longer exists, is left out. */
export async function whoseLibraries(
  files: Iterable<string>,
  contents: ContentCache,
): Promise<ReadonlyMap<string, LibraryVendor>> {
  const root = new Root('/');
  const found = new Map<string, LibraryVendor>();
  for (const file of [...files].filter((one) => path.isAbsolute(one)).slice(0, mostLibraries)) {
    const content = await contentAt(root, file, contents).catch(() => null);
    if (content !== null) found.set(file, content.vendor);
  }
  return found;
}
