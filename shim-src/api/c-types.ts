/**
 * From our notation to C. Handles that the guest dereferences have a struct of their own, all others are
 * plain pointers.
 */
import type { Parameter, WireBody, WireType } from './model.js';

const SCALARS: Readonly<Record<string, string>> = {
  i8: 'int8_t',
  u8: 'uint8_t',
  i16: 'int16_t',
  u16: 'uint16_t',
  i32: 'int32_t',
  u32: 'uint32_t',
  u64: 'uint64_t',
  size: 'size_t',
  f32: 'float',
  f64: 'double',
  device: 'int32_t',
  devptr: 'uint64_t',
  char: 'char',
  void: 'void',
  ptr: 'void *',
  str: 'const char *',
  fn: 'void *',
  value8: 'struct vgpu_value8',
  value64: 'struct vgpu_value64',
  ctx: 'struct vgpu_context *',
  stream: 'struct vgpu_stream *',
  event: 'struct vgpu_event *',
  pool: 'struct vgpu_pool *',
};

const HANDLES = new Set(
  (
    'module function library kernel array mipmap texref surfref graphics extmem extsem graph node exec ' +
    'userobject link greenctx asynccallback eglstream resourcedesc logscallback devnode'
  ).split(' '),
);

const WIRE: Readonly<Record<WireType, { readonly c: string; readonly bytes: number }>> = {
  u64: { c: 'uint64_t', bytes: 8 },
  i64: { c: 'int64_t', bytes: 8 },
  f64: { c: 'double', bytes: 8 },
  u32: { c: 'uint32_t', bytes: 4 },
  i32: { c: 'int32_t', bytes: 4 },
  f32: { c: 'float', bytes: 4 },
};

/** C type of a type in our notation; a named structure behind a pointer becomes `void`. */
export function cType(type: string): string {
  const match = /^(\**)(const )?(\w+)$/.exec(type);
  const stars = match?.[1] ?? '';
  const base = match?.[3] ?? '';
  let c = SCALARS[base] ?? (HANDLES.has(base) ? 'void *' : undefined);
  if (c === undefined) {
    if (stars === '') throw new Error(`type "${type}" is not known to the description`);
    c = 'void';
  }
  const qualified = match?.[2] === undefined ? c : `const ${c}`;
  if (stars === '') return qualified;
  return `${qualified}${qualified.endsWith('*') ? '' : ' '}${stars}`;
}

/** "int32_t dev" */
export function cParameter({ name, type }: Parameter): string {
  const c = cType(type);
  return c.endsWith('*') ? `${c}${name}` : `${c} ${name}`;
}

export function cParameters(parameters: readonly Parameter[] | undefined): string {
  return parameters === undefined || parameters.length === 0 ? 'void' : parameters.map(cParameter).join(', ');
}

/** Members of a body's struct: no implicit padding, size a multiple of 8. Throws if a field is misaligned. */
export function cMembers(body: WireBody, where: string): string[] {
  let offset = 0;
  const members = body.fields.map(({ name, type }) => {
    const { c, bytes } = WIRE[type];
    if (offset % bytes !== 0)
      throw new Error(`${where}: field "${name}" is not aligned; put wide fields first`);
    offset += bytes;
    return `${c} ${name};`;
  });
  if (offset % 8 !== 0) members.push('uint32_t reserved;');
  return members;
}

export function bodyBytes(body: WireBody): number {
  const bytes = body.fields.reduce((sum, { type }) => sum + WIRE[type].bytes, 0);
  return (bytes + 7) & ~7;
}

/** Bytes before a field of a body; undefined: it has none of that name. */
export function fieldOffset(body: WireBody, field: string): number | undefined {
  let offset = 0;
  for (const { name, type } of body.fields) {
    if (name === field) return offset;
    offset += WIRE[type].bytes;
  }
  return undefined;
}
