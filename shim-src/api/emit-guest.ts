/** The generated parts of the guest libraries; the rest of them is hand-written. */
import { cParameters, fieldOffset } from './c-types.js';
import { NOTICE } from './emit-wire.js';
import { type EntryPoint, type ErrorName, exported, type Library } from './model.js';

/** The entry points with code behind them. */
function described(library: Library): EntryPoint[] {
  return exported(library).filter(({ carriage: { kind }, parameters }) => {
    return !['refused', 'void', 'data', 'query', 'none'].includes(kind) && parameters !== undefined;
  });
}

/** The name of the code behind an entry point, which the libraries' own calls use (guest/reentry.h). */
function inner(symbol: string): string {
  return `vgpu_inner_${symbol}`;
}

/** Prototypes of every entry point with code behind it, so that hand-written ones are held to the description. */
export function emitApi(library: Library): string {
  const upper = library.name.toUpperCase();
  const out = [NOTICE, `#ifndef VGPU_${upper}_API_H`, `#define VGPU_${upper}_API_H`, ''];
  out.push('#include <stddef.h>', '#include <stdint.h>', '');
  out.push('#define VGPU_EXPORT __attribute__((visibility("default")))', '');
  out.push(
    'struct vgpu_value8 {\n  uint64_t words[1];\n};',
    'struct vgpu_value64 {\n  uint64_t words[8];\n};',
  );
  out.push('struct vgpu_context;', 'struct vgpu_stream;', 'struct vgpu_event;', 'struct vgpu_pool;', '');
  const entries = described(library);
  out.push(`#ifdef VGPU_${upper}_EXPORTED_NAMES`);
  for (const { symbol, parameters } of entries)
    out.push(`VGPU_EXPORT int ${symbol}(${cParameters(parameters)});`);
  out.push('#else');
  for (const { symbol } of entries) out.push(`#define ${symbol} ${inner(symbol)}`);
  for (const { symbol, parameters } of entries) out.push(`int ${symbol}(${cParameters(parameters)});`);
  out.push('#endif', '', '#endif', '');
  return out.join('\n');
}

/** Calls that take no lock and send nothing. Exit handlers use them to report an error. */
const ALWAYS_ANSWERED: ReadonlySet<string> = new Set([
  'cuGetErrorName',
  'cuGetErrorString',
  'cuGetExportTable',
  'cuGetProcAddress',
  'cuGetProcAddress_v2',
]);

/** The entry points: each calls the code behind it, unless this thread is inside the library (guest/reentry.h). */
export function emitEntries(library: Library): string {
  const out = [NOTICE, `#define VGPU_${library.name.toUpperCase()}_EXPORTED_NAMES`];
  out.push(`#include "${library.name}_api.h"`, '#include "cuda_results.h"', '#include "guest/reentry.h"', '');
  for (const entry of described(library)) {
    const { symbol, parameters } = entry;
    const call = `${inner(symbol)}(${names(entry).join(', ')})`;
    out.push(`int ${inner(symbol)}(${cParameters(parameters)});`);
    out.push(`int ${symbol}(${cParameters(parameters)}) {`);
    if (ALWAYS_ANSWERED.has(symbol)) {
      out.push(`  return ${call};`, '}');
      continue;
    }
    out.push(
      '  if (!vgpu_enter()) return CUDA_ERROR_DEINITIALIZED;',
      `  int result = ${call};`,
      '  vgpu_leave();',
      '  return result;',
      '}',
    );
  }
  out.push('');
  return out.join('\n');
}

function names(entry: EntryPoint): string[] {
  return (entry.parameters ?? []).map(({ name }) => name);
}

function emitForward(entry: EntryPoint, target: string): string[] {
  // The per-thread variants differ from their targets only in what stream 0 means.
  const args = (entry.parameters ?? []).map(({ name, type }) =>
    type === 'stream' ? `${name} == NULL ? VGPU_STREAM_PER_THREAD : ${name}` : name,
  );
  return [
    `int ${entry.symbol}(${cParameters(entry.parameters)}) {`,
    `  return ${target}(${args.join(', ')});`,
    '}',
  ];
}

function emitAuto(entry: EntryPoint): string[] {
  if (entry.carriage.kind !== 'waiting') return [];
  const { send, reply } = entry.carriage;
  const parameters = entry.parameters ?? [];
  if (send.bulk || reply.bulk) throw new Error(`${entry.symbol}: bulk data needs a hand-written guest part`);
  const out = [`int ${entry.symbol}(${cParameters(entry.parameters)}) {`];
  for (const { name } of reply.fields) {
    if (!parameters.some((parameter) => parameter.name === name && parameter.type.startsWith('*'))) {
      throw new Error(`${entry.symbol}: no pointer parameter for reply field "${name}"`);
    }
  }
  const values = send.fields.map(({ name }) => {
    if (name === 'context') return '.context = context_';
    if (!parameters.some((parameter) => parameter.name === name)) {
      throw new Error(`${entry.symbol}: no parameter for send field "${name}"`);
    }
    return `.${name} = ${name}`;
  });
  if (send.fields.some(({ name }) => name === 'context')) {
    out.push('  uint64_t context_ = 0;');
    out.push('  int result_ = vgpu_cuda_context_number(&context_);');
  } else {
    out.push('  int result_ = vgpu_cuda_ready();');
  }
  out.push('  if (result_ != 0) return result_;');
  if (send.fields.length > 0) out.push(`  struct vgpu_send_${entry.symbol} send_ = {${values.join(', ')}};`);
  if (reply.fields.length > 0) out.push(`  struct vgpu_reply_${entry.symbol} reply_;`);
  const sent = send.fields.length > 0 ? '&send_, sizeof send_' : 'NULL, 0';
  const got = reply.fields.length > 0 ? '&reply_, sizeof reply_' : 'NULL, 0';
  out.push(`  result_ = vgpu_cuda_call(VGPU_OP_${entry.symbol}, ${sent}, ${got});`);
  if (reply.fields.length > 0) {
    out.push('  if (result_ != 0) return result_;');
    for (const { name } of reply.fields) out.push(`  if (${name} != NULL) *${name} = reply_.${name};`);
    out.push('  return 0;');
  } else {
    out.push('  return result_;');
  }
  out.push('}');
  return out;
}

/** Bodies of everything that is not written by hand. */
export function emitStubs(library: Library): string {
  const out = [NOTICE, `#include "${library.name}_api.h"`, '#include "guest/refused.h"'];
  if (library.name === 'cuda') out.push('#include "cuda_calls.h"', '#include "guest/cuda/internal.h"');
  out.push('');
  for (const entry of library.entries) {
    const { carriage, symbol } = entry;
    switch (carriage.kind) {
      case 'refused':
        // No parameters: the stub reads none, and the caller's registers are the caller's business.
        out.push(
          `VGPU_EXPORT int ${symbol}(void);`,
          `int ${symbol}(void) {`,
          `  vgpu_refused("${symbol}");`,
          `  return ${library.refusal};`,
          '}',
        );
        break;
      case 'void':
        out.push(
          `VGPU_EXPORT void *${symbol}(void);`,
          `void *${symbol}(void) {`,
          `  vgpu_refused("${symbol}");`,
          '  return NULL;',
          '}',
        );
        break;
      case 'data':
        out.push(`VGPU_EXPORT extern uint32_t ${symbol}[];`, `uint32_t ${symbol}[${carriage.bytes / 4}];`);
        break;
      case 'forward':
        out.push(...emitForward(entry, carriage.target));
        break;
      case 'waiting':
        if (carriage.auto) out.push(...emitAuto(entry));
        break;
      case 'local':
      case 'query':
      case 'none':
      case 'oneway':
        break;
    }
  }
  out.push('');
  return out.join('\n');
}

/** The linker's version script: exactly the described names, no versions (the real library has none). */
export function emitVersionScript(library: Library): string {
  const symbols = exported(library).map(({ symbol }) => `    ${symbol};`);
  return [
    '/* Generated from shim-src/api; do not edit. */',
    '{',
    '  global:',
    ...symbols,
    '  local:',
    '    *;',
    '};',
    '',
  ].join('\n');
}

/** (base name, version, variant) -> symbol, sorted for a binary search. */
export function emitProcTable(library: Library): string {
  const rows = library.entries.flatMap(({ symbol, proc }) => (proc === undefined ? [] : [{ symbol, proc }]));
  rows.sort((a, b) =>
    a.proc.base !== b.proc.base
      ? a.proc.base < b.proc.base
        ? -1
        : 1
      : Number(a.proc.perThread) - Number(b.proc.perThread) || a.proc.version - b.proc.version,
  );
  const out = [NOTICE, '#define VGPU_CUDA_EXPORTED_NAMES', '#include "cuda_api.h"'];
  out.push('#include "guest/cuda/procaddress.h"', '');
  for (const entry of library.entries) {
    if (entry.proc !== undefined && entry.carriage.kind === 'refused')
      out.push(`VGPU_EXPORT int ${entry.symbol}(void);`);
  }
  out.push('', 'const struct vgpu_proc_row vgpu_proc_rows[] = {');
  for (const { symbol, proc } of rows) {
    out.push(`  {"${proc.base}", ${proc.version}, ${proc.perThread ? 1 : 0}, (void (*)(void))${symbol}},`);
  }
  out.push('};', `const unsigned vgpu_proc_row_count = ${rows.length};`, '');
  return out.join('\n');
}

/**
 * Where the bodies of carried calls have the number of the stream they work on: by it the guest knows which
 * streams have nothing outstanding. One more than the offset, so that 0 says that there is none.
 */
export function emitStreamFields(library: Library): string {
  const rows = library.entries.flatMap(({ number, symbol, carriage }) => {
    if (carriage.kind !== 'oneway' && carriage.kind !== 'waiting') return [];
    const offset = fieldOffset(carriage.send, 'stream');
    return offset === undefined ? [] : [`  [${number}] = ${offset + 1}, /* ${symbol} */`];
  });
  return [
    NOTICE,
    '#include "guest/cuda/stream/outstanding.h"',
    '',
    'const uint16_t vgpu_stream_fields[VGPU_STREAM_FIELDS] = {',
    ...rows,
    '};',
    '',
  ].join('\n');
}

/** CUresult values by their names, for both ends. */
export function emitResults(errors: readonly ErrorName[]): string {
  const out = [NOTICE, '#ifndef VGPU_CUDA_RESULTS_H', '#define VGPU_CUDA_RESULTS_H', '', 'enum {'];
  for (const { value, name } of errors) out.push(`  ${name} = ${value},`);
  out.push('};', '', '#endif', '');
  return out.join('\n');
}

export function emitErrors(errors: readonly ErrorName[]): string {
  const out = [
    NOTICE,
    '#include "guest/cuda/errors.h"',
    '',
    'const struct vgpu_error_row vgpu_error_rows[] = {',
  ];
  const sorted = [...errors].sort((a, b) => a.value - b.value);
  for (const { value, name, text } of sorted) out.push(`  {${value}, "${name}", ${JSON.stringify(text)}},`);
  out.push('};', `const unsigned vgpu_error_row_count = ${sorted.length};`, '');
  return out.join('\n');
}

export function findEntry(library: Library, symbol: string): EntryPoint | undefined {
  return library.entries.find((entry) => entry.symbol === symbol);
}

/** Problems that only show across entries: a forward to something refused, parameters that differ. */
export function checkLibrary(library: Library): string[] {
  return library.entries.flatMap((entry) => {
    if (entry.carriage.kind !== 'forward') return [];
    const target = findEntry(library, entry.carriage.target);
    if (target === undefined || target.carriage.kind === 'refused') {
      return [`${entry.symbol} forwards to ${entry.carriage.target}, which does nothing`];
    }
    return names(entry).length === names(target).length
      ? []
      : [`${entry.symbol} and ${target.symbol} differ in parameters`];
  });
}
