/** The provenance note: it identifies vgpu-agent's libraries whatever their name. */

import type { ElfFacts } from '../../contracts/facts.js';
import type { ByteSource, Layout } from './elf-bytes.js';

/** A stretch of the file. */
export interface Area {
  readonly offset: number;
  readonly fileSize: number;
}

const maxSectionHeaders = 4096;
const maxNoteBytes = 64 * 1024;
const maxDescriptorBytes = 4096;
const sectionNote = 7;

/** Our note from the note segments, else from the note sections (a note that is not loaded has no segment). */
export function readProvenance(
  source: ByteSource,
  layout: Layout,
  header: Buffer,
  noteSegments: readonly Area[],
): ElfFacts['provenance'] {
  for (const area of [...noteSegments, ...noteSections(source, layout, header)]) {
    if (!(area.fileSize <= maxNoteBytes)) continue;
    const bytes = source.read(area.offset, area.fileSize);
    const found = bytes === null ? null : findNote(layout, bytes);
    if (found !== null) return found;
  }
  return null;
}

function noteSections(source: ByteSource, layout: Layout, header: Buffer): Area[] {
  const offset = layout.word(header, layout.is64 ? 40 : 32);
  const entrySize = layout.u16(header, layout.is64 ? 58 : 46);
  const count = layout.u16(header, layout.is64 ? 60 : 48);
  if (entrySize !== (layout.is64 ? 64 : 40) || count > maxSectionHeaders) return [];
  const table = source.read(offset, count * entrySize);
  if (table === null) return [];
  const sections: Area[] = [];
  for (let at = 0; at < table.length; at += entrySize) {
    if (layout.u32(table, at + 4) !== sectionNote) continue;
    sections.push({
      offset: layout.word(table, at + (layout.is64 ? 24 : 16)),
      fileSize: layout.word(table, at + (layout.is64 ? 32 : 20)),
    });
  }
  return sections;
}

function findNote(layout: Layout, bytes: Buffer): ElfFacts['provenance'] {
  for (let at = 0; at + 12 <= bytes.length; ) {
    const nameSize = layout.u32(bytes, at);
    const descriptorSize = layout.u32(bytes, at + 4);
    const type = layout.u32(bytes, at + 8);
    const nameAt = at + 12;
    const descriptorAt = nameAt + align4(nameSize);
    const next = descriptorAt + align4(descriptorSize);
    // The last descriptor may lack its padding.
    if (descriptorAt + descriptorSize > bytes.length) return null;
    const name = bytes.toString('latin1', nameAt, nameAt + nameSize);
    if (type === 1 && (name === 'VGPU\0' || name === 'VGPU') && descriptorSize <= maxDescriptorBytes) {
      const found = parseProvenance(bytes.toString('utf8', descriptorAt, descriptorAt + descriptorSize));
      if (found !== null) return found;
    }
    at = next;
  }
  return null;
}

function align4(size: number): number {
  return Math.ceil(size / 4) * 4;
}

/** `{"component":"libcuda","version":"0.1.0","wire":1}`; anything else is not our note. */
function parseProvenance(text: string): ElfFacts['provenance'] {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/\0+$/, ''));
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { component, version, wire } = value as Record<string, unknown>;
  if (typeof component !== 'string' || typeof version !== 'string' || typeof wire !== 'number') return null;
  return { component, version, wire };
}
