/** NVML's getters that the host answers (`query`) and those with the same answer for every guest (`none`). */
import { NOTICE } from './emit-wire.js';
import type { EntryPoint, Library, Parameter } from './model.js';

interface Shape {
  /** A member of enum vgpu_query_kind. */
  readonly kind: string;
  readonly c: string;
  readonly bytes: number;
  /** NVML_STRUCT_VERSION of each version that is carried. */
  readonly versions?: readonly number[];
}

const PLAIN: Readonly<Record<string, Shape>> = {
  u32: { kind: 'VALUE', c: 'uint32_t', bytes: 0 },
  i32: { kind: 'VALUE', c: 'int32_t', bytes: 0 },
  u64: { kind: 'VALUE', c: 'uint64_t', bytes: 0 },
  dev: { kind: 'DEVICE', c: 'void *', bytes: 0 },
  '*u32': { kind: 'OUT', c: 'uint32_t *', bytes: 4 },
  '*i32': { kind: 'OUT', c: 'int32_t *', bytes: 4 },
  '*u64': { kind: 'OUT', c: 'uint64_t *', bytes: 8 },
  text: { kind: 'TEXT', c: 'char *', bytes: 1 },
  count: { kind: 'COUNT', c: 'uint32_t *', bytes: 4 },
  ptr: { kind: 'UNUSED', c: 'void *', bytes: 0 },
};

/** Those whose guest's side is written by hand, because they have an answer without a host that knows them. */
const BY_HAND: ReadonlySet<string> = new Set(['nvmlDeviceGetP2PStatus']);

function shapeOf({ symbol }: EntryPoint, { name, type }: Parameter): Shape {
  const plain = PLAIN[type];
  if (plain !== undefined) return plain;
  const [, word = '', bytes = ''] = /^\*?(bytes|items|fields)(\d+)$/.exec(type) ?? [];
  const kinds = new Map([
    ['bytes', 'OUT'],
    ['items', 'ITEMS'],
    ['fields', 'FIELDS'],
  ]);
  const kind = kinds.get(word);
  if (kind !== undefined) return { kind, c: 'void *', bytes: Number(bytes) };
  if (!/^versions(?:_\d+x\d+)+$/.test(type)) throw new Error(`${symbol}: no shape for "${name}: ${type}"`);
  const versions = [...type.matchAll(/_(\d+)x(\d+)/g)].map(
    (match) => (Number(match[1]) << 24) | Number(match[2]),
  );
  return { kind: 'STRUCTURE', c: 'void *', bytes: 0, versions };
}

/** All parameters, or those behind the device. */
function shapes(entry: EntryPoint, from = 0): Shape[] {
  return (entry.parameters ?? []).slice(from).map((parameter) => shapeOf(entry, parameter));
}

/** Nothing but a getter may be carried to the host's NVML. */
export function queriesOf(library: Library): readonly EntryPoint[] {
  const queries = library.entries.filter(({ carriage }) => carriage.kind === 'query');
  for (const entry of queries) {
    const [device] = entry.parameters ?? [];
    if (!/^nvmlDevice(?:Get|OnSame)[A-Z]/.test(entry.symbol) || device?.type !== 'dev')
      throw new Error(`${entry.symbol} is not a getter of a device`);
    if (shapes(entry, 1).length > 6) throw new Error(`${entry.symbol} has too many parameters`);
  }
  return queries;
}

function alwaysNone(library: Library): readonly EntryPoint[] {
  return library.entries.filter(({ carriage }) => carriage.kind === 'none');
}

function signature(entry: EntryPoint): string {
  const list = (entry.parameters ?? []).map((parameter) => {
    const { c } = shapeOf(entry, parameter);
    return c.endsWith('*') ? `${c}${parameter.name}` : `${c} ${parameter.name}`;
  });
  return `int ${entry.symbol}(${list.join(', ')})`;
}

function definition(entry: EntryPoint, body: readonly string[]): string[] {
  return [`${signature(entry)} {`, ...body.map((line) => `  ${line}`), '}'];
}

/** VGPU_QUERY_NAME: the number of each query, which never changes. And what the guest's library exports. */
export function emitQueryHeader(library: Library): string {
  const out = [
    NOTICE,
    '#ifndef VGPU_NVML_QUERIES_H',
    '#define VGPU_NVML_QUERIES_H',
    '',
    '#include <stdint.h>',
    '',
  ];
  const queries = queriesOf(library);
  for (const { symbol, number } of queries) out.push(`#define VGPU_QUERY_${symbol} ${number}u`);
  out.push('');
  for (const entry of [...queries, ...alwaysNone(library)])
    out.push(`__attribute__((visibility("default"))) ${signature(entry)};`);
  out.push('', '#endif', '');
  return out.join('\n');
}

/** The shapes of all queries, for both ends. */
export function emitQueryTable(library: Library): string {
  const out = [NOTICE, '#include "wire/query.h"', ''];
  const queries = [...queriesOf(library)].sort((a, b) => a.number - b.number);
  out.push('const struct vgpu_query vgpu_queries[] = {');
  for (const entry of queries) {
    const list = shapes(entry, 1).map(({ kind, bytes, versions = [] }) => {
      return `{VGPU_QUERY_${kind}, ${bytes}, {${versions.length === 0 ? 0 : versions.join(', ')}}}`;
    });
    out.push(`  {${entry.number}, "${entry.symbol}", ${list.length}, {${list.join(', ')}}},`);
  }
  out.push('};', `const uint32_t vgpu_query_count = ${queries.length};`, '');
  return out.join('\n');
}

/** The guest's side. */
export function emitQueryStubs(library: Library): string {
  const out = [NOTICE, '#include "guest/nvml/query.h"', '#include "nvml_queries.h"', ''];
  for (const entry of queriesOf(library)) {
    if (BY_HAND.has(entry.symbol)) continue;
    const [device, ...rest] = entry.parameters ?? [];
    const values = rest.map((parameter) => {
      return shapeOf(entry, parameter).c.endsWith('*')
        ? `(uintptr_t)${parameter.name}`
        : `(uint64_t)${parameter.name}`;
    });
    out.push(
      ...definition(entry, [
        `const uint64_t values_[] = {${values.join(', ')}};`,
        `return vgpu_nvml_query(${device?.name}, VGPU_QUERY_${entry.symbol}, values_);`,
      ]),
    );
  }
  for (const entry of alwaysNone(library)) {
    const parameters = entry.parameters ?? [];
    const all = shapes(entry);
    const device = all[0]?.kind === 'DEVICE' ? parameters[0]?.name : undefined;
    const written = parameters.flatMap(({ name }, i) => {
      const shape = all[i];
      return shape?.kind === 'OUT' || shape?.kind === 'STRUCTURE' ? [{ name, ...shape }] : [];
    });
    const pointers = written.map(({ name }) => `${name} == NULL`).join(' || ');
    const unused = parameters.filter((_, i) => all[i]?.kind === 'UNUSED').map(({ name }) => `(void)${name};`);
    out.push(
      ...definition(entry, [
        ...unused,
        `int result_ = ${device === undefined ? 'vgpu_nvml_ready()' : `vgpu_nvml_ready_device(${device})`};`,
        'if (result_ != NVML_SUCCESS) return result_;',
        `if (${pointers}) return NVML_INVALID_ARGUMENT;`,
        ...written.flatMap(({ name, bytes, versions }) =>
          versions === undefined
            ? [`memset(${name}, 0, ${bytes});`]
            : [
                `if (!vgpu_nvml_clear(${name}, (const uint32_t[]){${versions.join(', ')}, 0})) return NVML_VERSION_MISMATCH;`,
              ],
        ),
        'return NVML_SUCCESS;',
      ]),
    );
  }
  out.push('');
  return out.join('\n');
}

/** The host's side: calls a function of its NVML by its own type. */
export function emitQueryCalls(library: Library): string {
  const out = [NOTICE, '#include "wire/query.h"', '', '#include <stddef.h>', ''];
  const queries = [...queriesOf(library)].sort((a, b) => a.number - b.number);
  for (const entry of queries) {
    const all = shapes(entry, 1);
    const types = ['void *', ...all.map(({ c }) => c)].join(', ');
    const given = all.map(({ c }, i) =>
      c.endsWith('*') ? `(${c})(uintptr_t)values[${i}]` : `(${c})values[${i}]`,
    );
    out.push(
      `static int call_${entry.symbol}(void (*function)(void), void *device, const uint64_t *values) {`,
      `  return ((int (*)(${types}))function)(${['device', ...given].join(', ')});`,
      '}',
    );
  }
  out.push('', '/* In the order of vgpu_queries. */', 'const vgpu_query_call vgpu_query_calls[] = {');
  for (const { symbol } of queries) out.push(`  call_${symbol},`);
  out.push('};', '');
  return out.join('\n');
}
