/** Opcodes, bodies and the host's dispatch table. */
import { bodyBytes, cMembers, fieldOffset } from './c-types.js';
import type { EntryPoint, Library } from './model.js';

export const NOTICE = '/* Generated from shim-src/api; do not edit. */\n';

type Carried = Extract<EntryPoint['carriage'], { kind: 'oneway' } | { kind: 'waiting' }>;

interface CarriedEntry {
  readonly entry: EntryPoint;
  readonly carriage: Carried;
}

export function carriedEntries(library: Library): CarriedEntry[] {
  const carried = library.entries.flatMap((entry) =>
    entry.carriage.kind === 'oneway' || entry.carriage.kind === 'waiting'
      ? [{ entry, carriage: entry.carriage }]
      : [],
  );
  // The dispatch table is searched by number; the description is sorted by name.
  return carried.sort((first, second) => first.entry.number - second.entry.number);
}

function hex(number: number): string {
  return `0x${number.toString(16).padStart(4, '0')}u`;
}

/** Which calls have to find ended what was given back before: for the guest, which asks again, and for the host. */
function emitAwaits(library: Library): string[] {
  const of = (awaits: 'own' | 'all') =>
    carriedEntries(library).flatMap(({ entry, carriage }) =>
      carriage.kind === 'waiting' && carriage.awaits === awaits ? [`    case VGPU_OP_${entry.symbol}:`] : [],
    );
  const [own, all] = [of('own'), of('all')];
  if (own.length === 0 && all.length === 0) return [];
  return [
    'enum vgpu_awaits { VGPU_AWAITS_NOTHING, VGPU_AWAITS_OWN, VGPU_AWAITS_ALL };',
    '',
    `static inline enum vgpu_awaits vgpu_${library.name}_awaits(uint32_t opcode) {`,
    '  switch (opcode) {',
    ...(own.length === 0 ? [] : [...own, '      return VGPU_AWAITS_OWN;']),
    ...(all.length === 0 ? [] : [...all, '      return VGPU_AWAITS_ALL;']),
    '    default:',
    '      return VGPU_AWAITS_NOTHING;',
    '  }',
    '}',
    '',
  ];
}

/** Header with an opcode and the body structures of each carried call. */
export function emitCalls(library: Library): string {
  const upper = library.name.toUpperCase();
  const out = [
    NOTICE,
    `#ifndef VGPU_${upper}_CALLS_H`,
    `#define VGPU_${upper}_CALLS_H`,
    '',
    '#include "wire/frame.h"',
    '',
  ];
  for (const { entry, carriage } of carriedEntries(library)) {
    out.push(`#define VGPU_OP_${entry.symbol} (VGPU_OP_${upper} | ${hex(entry.number)})`);
    const bodies =
      carriage.kind === 'oneway'
        ? [['send', carriage.send] as const]
        : [['send', carriage.send] as const, ['reply', carriage.reply] as const];
    for (const [word, body] of bodies) {
      if (body.fields.length === 0) continue;
      out.push(`struct vgpu_${word}_${entry.symbol} {`);
      out.push(...cMembers(body, `${entry.symbol} ${word}`).map((member) => `  ${member}`));
      out.push('};');
      out.push(`_Static_assert(sizeof(struct vgpu_${word}_${entry.symbol}) == ${bodyBytes(body)}, "body");`);
    }
    out.push('');
  }
  out.push(...emitAwaits(library), '#endif', '');
  return out.join('\n');
}

/** The handlers that carry out the call: one for each backend, or one for all. */
function handlersOf({ carriage }: CarriedEntry): readonly ('software' | 'cuda' | 'common')[] {
  return carriage.common ? ['common'] : ['software', 'cuda'];
}

function handlerParameters({ entry, carriage }: CarriedEntry): string {
  const parameters = ['struct vgpu_worker *worker'];
  if (carriage.send.fields.length > 0) parameters.push(`const struct vgpu_send_${entry.symbol} *send`);
  if (carriage.kind === 'waiting' && carriage.reply.fields.length > 0) {
    parameters.push(`struct vgpu_reply_${entry.symbol} *reply`);
  }
  if (carriage.send.bulk || (carriage.kind === 'waiting' && carriage.reply.bulk)) {
    parameters.push('struct vgpu_bulk *bulk');
  }
  return parameters.join(', ');
}

/**
 * Prototypes of the host's handlers: for each carried call `vgpu_software_NAME` (the software device) and
 * `vgpu_cuda_NAME` (the host's GPU), or one `vgpu_common_NAME` for both. The one of the host's GPU is weak: if it is
 * not written the call is refused.
 */
export function emitHandlers(library: Library): string {
  const upper = library.name.toUpperCase();
  const out = [NOTICE, `#ifndef VGPU_${upper}_HANDLERS_H`, `#define VGPU_${upper}_HANDLERS_H`, ''];
  out.push('#include "host/backend/dispatch.h"', `#include "${library.name}_calls.h"`, '');
  for (const carried of carriedEntries(library)) {
    const parameters = handlerParameters(carried);
    for (const backend of handlersOf(carried)) {
      const weak = backend === 'cuda' ? '__attribute__((weak)) ' : '';
      out.push(`${weak}int32_t vgpu_${backend}_${carried.entry.symbol}(${parameters});`);
    }
  }
  out.push('', '#endif', '');
  return out.join('\n');
}

/** The host's table: sizes to check before a handler sees anything, and the handler for each backend. */
export function emitDispatch(library: Library): string {
  const carried = carriedEntries(library);
  const out = [NOTICE, `#include "${library.name}_handlers.h"`, ''];
  for (const item of carried) {
    const { entry, carriage } = item;
    const replies = carriage.kind === 'waiting' && carriage.reply.fields.length > 0;
    const bulk = carriage.send.bulk || (carriage.kind === 'waiting' && carriage.reply.bulk);
    const args = [
      'worker',
      ...(carriage.send.fields.length > 0 ? ['send'] : []),
      ...(replies ? ['reply'] : []),
      ...(bulk ? ['bulk'] : []),
    ];
    for (const backend of handlersOf(item)) {
      out.push(
        `static int32_t ${backend}_${entry.symbol}(struct vgpu_worker *worker, const void *send, void *reply, struct vgpu_bulk *bulk) {`,
      );
      for (const unused of ['send', 'reply', 'bulk'])
        if (!args.includes(unused)) out.push(`  (void)${unused};`);
      const call = `vgpu_${backend}_${entry.symbol}`;
      if (backend === 'cuda') out.push(`  if (${call} == NULL) return ${library.refusal};`);
      out.push(`  return ${call}(${args.join(', ')});`, '}');
    }
  }
  out.push('', `static const struct vgpu_dispatch_row rows[] = {`);
  for (const item of carried) {
    const { entry, carriage } = item;
    const [first = 'common', second = first] = handlersOf(item);
    const reply = carriage.kind === 'waiting' ? carriage.reply : undefined;
    out.push(
      `  {VGPU_OP_${entry.symbol}, ${bodyBytes(carriage.send)}, ${reply === undefined ? 0 : bodyBytes(reply)}, ` +
        `${carriage.kind === 'oneway'}, ${carriage.send.bulk}, ${reply?.bulk ?? false}, ` +
        `${carriage.send.raw}, ${reply?.raw ?? false}, ` +
        `${fieldOffset(carriage.send, 'stream') ?? -1}, "${entry.symbol}", {${first}_${entry.symbol}, ${second}_${entry.symbol}}},`,
    );
  }
  // A table may be empty (NVML carries by control opcodes so far) and C wants an element.
  if (carried.length === 0) out.push('  {0, 0, 0, false, false, false, false, false, -1, "", {0, 0}},');
  out.push('};', '');
  out.push(`const struct vgpu_dispatch_row *vgpu_dispatch_${library.name}(uint32_t opcode) {`);
  out.push('  for (size_t low = 0, high = sizeof rows / sizeof *rows; low < high;) {');
  out.push('    size_t middle = low + (high - low) / 2;');
  out.push(
    '    if (rows[middle].opcode == opcode) return rows[middle].run[0] == NULL ? NULL : &rows[middle];',
  );
  out.push('    if (rows[middle].opcode < opcode) low = middle + 1;');
  out.push('    else high = middle;', '  }', '  return NULL;', '}', '');
  return out.join('\n');
}
