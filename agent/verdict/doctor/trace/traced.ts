/** A traced start of a service, read from its trace: events, processes, and the owner of each library. */
import fs from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, ProcessFacts } from '../../../contracts/facts.js';
import type { ContentCache } from '../../../guest/files/content.js';
import { openRegular, Root } from '../../../guest/files/root.js';
import { parseMaps } from '../../../guest/unit/processes.js';
import { traceFile, tracerName } from '../../../lib/paths.js';

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
    const size = Math.min(fs.fstatSync(descriptor).size, limit);
    const buffer = Buffer.alloc(size);
    let length = 0;
    while (length < size) {
      const read = fs.readSync(descriptor, buffer, length, size - length, length);
      if (read === 0) break;
      length += read;
    }
    return { text: buffer.toString('utf8', 0, length), cut: size === limit };
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
    try {
      const resolution = root.resolve(file);
      if (resolution.kind !== 'file') continue;
      const content = await contents.of(resolution.realPath, file);
      if (content !== null) found.set(file, content.vendor);
    } catch {}
  }
  return found;
}
