/** The grammar that the host's fuzzers (test/shim/fuzz) make calls by: each call's fields, and which go together. */
import { bodyBytes, fieldOffset } from './c-types.js';
import { carriedEntries, NOTICE } from './emit-wire.js';
import type { Library, WireBody, WireField } from './model.js';

/** Names of fields whose values are of one kind: what one call answers, another can be asked about. */
const SAME: Readonly<Record<string, string>> = {
  destination: 'address',
  source: 'address',
  start: 'address',
  size: 'bytes',
  width: 'bytes',
  pitch: 'bytes',
  offset: 'bytes',
  end: 'event',
  kernel: 'function',
  number: 'stream',
};

/** The kind of a field: what it is called, unless others are called otherwise and mean the same. */
export function kindOf(body: WireBody, { name, type }: WireField): string {
  const image = body.fields.some((field) => field.name === 'hash_0');
  if (image && name === 'bytes') return 'image_bytes';
  if (name === 'start' && body.fields.some((field) => field.name === 'end')) return 'event';
  if (type !== 'u64' && SAME[name] !== undefined) return 'scalar';
  return SAME[name] ?? name;
}

function bodiesOf(library: Library): readonly WireBody[] {
  return carriedEntries(library).flatMap(({ carriage }) =>
    carriage.kind === 'waiting' ? [carriage.send, carriage.reply] : [carriage.send],
  );
}

function kindsOf(library: Library): readonly string[] {
  return [
    ...new Set(bodiesOf(library).flatMap((body) => body.fields.map((field) => kindOf(body, field)))),
  ].sort();
}

/** Header with the kinds' numbers and the types of the table. */
export function emitFuzzHeader(library: Library): string {
  const kinds = kindsOf(library);
  return [
    NOTICE,
    `#ifndef VGPU_${library.name.toUpperCase()}_FUZZ_H`,
    `#define VGPU_${library.name.toUpperCase()}_FUZZ_H`,
    '',
    '#include <stdbool.h>',
    '#include <stdint.h>',
    '',
    ...kinds.map((kind, index) => `#define FUZZ_KIND_${kind} ${index}u`),
    `#define FUZZ_KINDS ${kinds.length}u`,
    '',
    'struct fuzz_field {',
    '  uint16_t offset;',
    '  uint8_t bytes;',
    '  uint8_t kind;',
    '};',
    '',
    'struct fuzz_call {',
    '  uint32_t opcode;',
    '  uint16_t send_size;',
    '  uint8_t send_count, reply_count;',
    '  const struct fuzz_field *send, *reply;',
    '  bool oneway, bulk_in, raw_in, raw_out;',
    '};',
    '',
    'extern const struct fuzz_call fuzz_calls[];',
    'extern const uint32_t fuzz_call_count;',
    '',
    '#endif',
    '',
  ].join('\n');
}

/** The table itself, in the order of the opcodes. */
export function emitFuzzTable(library: Library): string {
  const out = [NOTICE, `#include "${library.name}_fuzz.h"`, '', `#include "${library.name}_calls.h"`, ''];
  const rows: string[] = [];
  for (const { entry, carriage } of carriedEntries(library)) {
    const reply = carriage.kind === 'waiting' ? carriage.reply : undefined;
    const names = [carriage.send, reply].map((body, index) => {
      if (body === undefined || body.fields.length === 0) return '0';
      const name = `${index === 0 ? 'send' : 'reply'}_${entry.symbol}`;
      const fields = body.fields.map(
        (field) =>
          `{${fieldOffset(body, field.name)}, ${field.type.endsWith('64') ? 8 : 4}, FUZZ_KIND_${kindOf(body, field)}}`,
      );
      out.push(`static const struct fuzz_field ${name}[] = {${fields.join(', ')}};`);
      return name;
    });
    rows.push(
      `  {VGPU_OP_${entry.symbol}, ${bodyBytes(carriage.send)}, ${carriage.send.fields.length}, ` +
        `${reply?.fields.length ?? 0}, ${names.join(', ')}, ${carriage.kind === 'oneway'}, ` +
        `${carriage.send.bulk}, ${carriage.send.raw}, ${reply?.raw ?? false}},`,
    );
  }
  out.push('', 'const struct fuzz_call fuzz_calls[] = {', ...rows, '};', '');
  out.push('const uint32_t fuzz_call_count = sizeof fuzz_calls / sizeof *fuzz_calls;', '');
  return out.join('\n');
}
