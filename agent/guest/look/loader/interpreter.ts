/** Which loader a program names (PT_INTERP). */
import { closeSync } from 'node:fs';
import { descriptorSource } from '../../elf/elf-bytes.js';
import { readProgram, segmentInterpreter } from '../../elf/elf-dynamic.js';
import type { Root } from '../../files/root.js';

const maxInterpreter = 4096;

/** `/lib64/ld-linux-x86-64.so.2`; null for a static program, a script, and what may not be read. */
export function interpreterOf(root: Root, executable: string): string | null {
  const descriptor = root.open(executable);
  if (descriptor === null) return null;
  try {
    const source = descriptorSource(descriptor);
    const program = readProgram(source);
    if (typeof program === 'string') return null;
    const segment = program.segments.find((one) => one.type === segmentInterpreter);
    if (segment === undefined || segment.fileSize > maxInterpreter) return null;
    const text = source.read(segment.offset, segment.fileSize);
    const end = text?.indexOf(0) ?? -1;
    return text === null || end === -1 ? null : text.toString('utf8', 0, end);
  } finally {
    closeSync(descriptor);
  }
}
