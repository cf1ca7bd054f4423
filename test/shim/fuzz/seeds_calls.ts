/** Records of test/shim/fuzz/grammar.h, made from the API description: a correct call of each function. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { kindOf } from '../../../shim-src/api/emit-fuzz.js';
import { carriedEntries } from '../../../shim-src/api/emit-wire.js';
import { parseDescription } from '../../../shim-src/api/parse.js';
import { ROOT } from '../cuda/private_programs.js';

const FILE = path.join(ROOT, 'shim-src/api/cuda.api');

const CALLS = carriedEntries({
  name: 'cuda',
  soname: '',
  refusal: 801,
  entries: parseDescription(FILE, readFileSync(FILE, 'utf8')),
});

/** An earlier answer for a field of the same kind, or the first image of the tree. */
const ANSWERED = 0x90;
/** Bulk: the first image of the tree; fuzz.test.ts names them. */
const IMAGE = 0xe0;
const SHARED_REGION_FLAG = 4;
const ONEWAY_FLAG = 2;

/** Values that make sense together: the handles that the prelude makes, sizes that fit. */
const SENSE: Readonly<Record<string, number>> = {
  context: 5,
  stream: 6,
  event: 7,
  module: 9,
  library: 11,
  function: 10,
  address: ANSWERED,
  handle: ANSWERED,
  pool: ANSWERED,
  bytes: 64,
  image_bytes: ANSWERED,
  hash_0: ANSWERED,
  hash_1: ANSWERED,
  hash_2: ANSWERED,
  hash_3: ANSWERED,
  rows: 2,
  height: 2,
  count: 1,
  exec: 12,
  ticket: 13,
  array: 14,
  object: ANSWERED,
  format: 32,
  channels: 1,
  depth: 1,
};

export interface Asked {
  /** Instead of what makes sense, by the field's name. */
  readonly fields?: Readonly<Record<string, number>>;
  readonly other?: number;
  readonly bulk?: Buffer;
  readonly flags?: number;
}

function plainBulk(bulk: Buffer): Buffer {
  const padded = Buffer.concat([bulk, Buffer.alloc(-bulk.length & 3)]);
  return Buffer.concat([Buffer.from([padded.length / 4]), padded]);
}

/** One call as a record: fields that make sense, all others `other`. */
export function call(symbol: string, { fields = {}, other = 0, bulk, flags }: Asked = {}): Buffer {
  const found = CALLS.find(({ entry }) => entry.symbol === symbol);
  if (found === undefined) throw new Error(`no ${symbol} in the description`);
  const { send } = found.carriage;
  const values = send.fields.map((field) => fields[field.name] ?? SENSE[kindOf(send, field)] ?? other);
  const number = found.entry.number | (flags === undefined ? 0 : 0x4000);
  const head = [number & 0xff, number >> 8, ...(flags === undefined ? [] : [flags])];
  const takes = send.bulk || flags !== undefined;
  return Buffer.concat([
    Buffer.from([...head, ...values]),
    takes ? (bulk ?? plainBulk(Buffer.alloc(8, 1))) : Buffer.alloc(0),
  ]);
}

function control(opcode: number, words: readonly number[]): Buffer {
  return Buffer.from([opcode, 0x80, ...words, 0]);
}

const text = (name: string): Buffer => plainBulk(Buffer.from(`${name}\0`));

/** A context, memory, a stream, an event and a module with a kernel. */
function prelude(): Buffer[] {
  return [
    call('cuCtxCreate_v2'),
    call('cuMemAlloc_v2', { fields: { bytes: 0x84 } }),
    call('cuStreamCreate'),
    call('cuEventCreate'),
    call('image_piece', { fields: { offset: 0 }, bulk: Buffer.from([IMAGE]) }),
    call('cuModuleLoadDataEx'),
    call('cuModuleGetFunction', { bulk: text('add') }),
  ];
}

function every(): Buffer[] {
  return CALLS.flatMap(({ entry, carriage }) =>
    [0, 1, 0xa0].map((other) =>
      call(entry.symbol, {
        other,
        ...(carriage.send.bulk ? { bulk: plainBulk(Buffer.alloc(24, other)) } : {}),
      }),
    ),
  );
}

/** A green context of the first of four groups, with work on its stream. */
function greens(): Buffer[] {
  const [primary, resources, green, stream] = [20, 21, 22, 23];
  const group = Buffer.alloc(56);
  group.writeBigUInt64LE(2n, 0); // the device's resource is 1
  group.writeInt32LE(1, 8);
  const sizes = Buffer.alloc(128);
  sizes.writeUInt32LE(16, 0);
  return [
    Buffer.concat([
      ...prelude(),
      call('cuDevicePrimaryCtxRetain', { fields: { context: primary } }),
      call('cuDeviceGetDevResource', { fields: { type: 1 } }),
      call('cuDevSmResourceSplitByCount', { fields: { input: 1, least: 8, groups: 4 } }),
      call('cuDevSmResourceSplit', { fields: { input: 1, groups: 2 }, bulk: plainBulk(sizes) }),
      call('cuDevResourceGenerateDesc', { fields: { resources }, bulk: plainBulk(group) }),
      call('cuGreenCtxCreate', { fields: { context: green, primary, resources, flags: 1 } }),
      call('cuCtxGetDevResource', { fields: { context: green, type: 1 } }),
      call('cuStreamCreate', { fields: { context: green, number: stream } }),
      call('cuLaunchKernelEx', { fields: { context: green, stream } }),
      call('cuCtxWaitEvent', { fields: { context: green } }),
      call('cuCtxRecordEvent', { fields: { context: green } }),
      call('cuCtxSynchronize', { fields: { context: primary } }),
      call('cuCtxDestroy_v2', { fields: { context: green } }),
      call('cuCtxDestroy_v2', { fields: { context: primary } }),
    ]),
  ];
}

/** Graphs: calls inside of a call. */
function graphs(): Buffer[] {
  const inside = ['cuMemsetD8Async', 'cuLaunchKernelEx', 'cuMemcpyDtoDAsync_v2', 'cuEventRecord'].flatMap(
    (symbol) => {
      const found = CALLS.find(({ entry }) => entry.symbol === symbol);
      if (found === undefined) return [];
      const { send } = found.carriage;
      const values = send.fields.map((field) => SENSE[kindOf(send, field)] ?? 1);
      return [
        Buffer.from([found.entry.number & 0xff, found.entry.number >> 8, ...values, 4]),
        Buffer.alloc(16, 1),
      ];
    },
  );
  return [
    Buffer.concat([
      ...prelude(),
      call('graph_nodes', { bulk: Buffer.concat([Buffer.from([0xf3]), ...inside]) }),
      call('graph_node_set', { bulk: Buffer.concat([Buffer.from([0xf0]), ...inside.slice(0, 2)]) }),
      call('cuGraphLaunch'),
      call('cuStreamSynchronize', { bulk: plainBulk(Buffer.alloc(0)) }),
    ]),
  ];
}

/** A graph whose condition is true at first: each kind, with a body that fills. */
function conditions(): Buffer[] {
  const inner = (symbol: string, fields: Readonly<Record<string, number>>): Buffer => {
    const found = CALLS.find(({ entry }) => entry.symbol === symbol);
    if (found === undefined) throw new Error(`no ${symbol} in the description`);
    const { send } = found.carriage;
    const values = send.fields.map((field) => fields[field.name] ?? SENSE[kindOf(send, field)] ?? 0);
    // none of them brings bytes along
    return Buffer.from([found.entry.number & 0xff, found.entry.number >> 8, ...values, 0]);
  };
  return [0, 1, 2].map((kind) => {
    const inside = [
      inner('graph_values', { graph: 9, assign: 1, whole: 1 }),
      inner('graph_condition', { kind, bodies: 1 }),
      inner('graph_body', { nodes: 1 }),
      inner('cuMemsetD8Async', {}),
    ];
    return Buffer.concat([
      ...prelude(),
      call('cuGraphConditionalHandleCreate', { fields: { graph: 9, value: 1, flags: 1 } }),
      call('graph_nodes', { bulk: Buffer.concat([Buffer.from([0xf3]), ...inside]) }),
      call('cuGraphInstantiateWithFlags', { fields: { nodes: 4 } }),
      call('cuGraphLaunch'),
      call('graph_conditions_drop', { fields: { graph: 9 } }),
      call('cuGraphLaunch'),
    ]);
  });
}

/** An array of 16 by 8 floats, objects of it, and copies from and to it. */
function textures(): Buffer[] {
  const request = Buffer.alloc(168);
  request.writeUInt8(14, 0);
  request.writeUInt32LE(2, 96); // normalized coordinates
  const size = { width: 16, height: 8, depth: 0, flags: 2 };
  const box = { array: 14, x: 4, y: 1, z: 0, width: 32, height: 2, depth: 1 };
  const inside = (end: string): Record<string, number> => ({
    [end]: 14,
    [`${end}_row`]: 64,
    [`${end}_slice`]: 0,
    [`${end}_level`]: 0,
  });
  const memory = (end: string): Record<string, number> => ({ [`${end}_row`]: 64, [`${end}_slice`]: 0 });
  const reference = Buffer.concat([request, Buffer.from('table')]);
  return [0, 4].map((levels) =>
    Buffer.concat([
      ...prelude(),
      call('cuArray3DCreate_v2', { fields: { ...size, levels } }),
      call('cuTexObjectCreate', { bulk: plainBulk(request) }),
      call('cuSurfObjectCreate'),
      call('array_write', { fields: box, bulk: plainBulk(Buffer.alloc(64, 3)) }),
      call('array_read', { fields: box }),
      call('array_box', { fields: { ...inside('destination'), ...inside('source'), width: 32, height: 2 } }),
      call('array_box', { fields: { ...inside('destination'), ...memory('source'), width: 32, height: 2 } }),
      call('texture_reference', { bulk: plainBulk(reference) }),
      call('cuArrayDestroy'),
      call('array_read', { fields: box }),
      call('cuTexObjectDestroy'),
      call('cuSurfObjectDestroy'),
      call('cuCtxDestroy_v2'),
    ]),
  );
}

/** A module with managed variables, of the tree's second image, and the memory that they move to and from. */
function managed(): Buffer[] {
  const second = { hash_0: 0x91, hash_1: 0x91, hash_2: 0x91, hash_3: 0x91, bytes: 0x91, offset: 0 };
  const lent = { address: 0x8a, bytes: 0x83, shared_region: 1 };
  const asked = call('managed_variables', {
    fields: { code: 9 },
    bulk: plainBulk(Buffer.from('shared_word ')),
  });
  const place = call('managed_place', { fields: { code: 9, address: 0x8a } });
  return [
    call('cuCtxCreate_v2'),
    call('image_piece', { fields: second, bulk: Buffer.from([IMAGE + 1]) }),
    call('cuModuleLoadDataEx', { fields: second }),
    call('cuModuleGetFunction', { bulk: text('go ') }),
    control(6, [0x83]),
    call('shared_region_map', { fields: lent }),
    asked,
    place,
    asked,
    place,
    call('cuLaunchKernelEx', { other: 1 }),
    call('shared_region_unmap', { fields: lent }),
    call('cuMemFree_v2', { fields: lent }),
    call('cuModuleUnload'),
    call('shared_region_unmap', { fields: lent }),
    call('cuCtxDestroy_v2'),
  ];
}

export function hostSeeds(): Buffer[] {
  const begin = Buffer.from([0]);
  return [
    Buffer.concat([Buffer.from([2]), control(3, [0]), control(4, [0]), control(5, [0])]),
    ...every().map((record) => Buffer.concat([begin, ...prelude(), record])),
    ...[...graphs(), ...conditions(), ...greens()].map((records) => Buffer.concat([begin, records])),
    ...textures().map((records) => Buffer.concat([begin, records])),
    Buffer.concat([begin, ...managed()]),
  ];
}

/** A step of test/shim/fuzz/moments.h. */
function step(when: number, what: number, rest: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from([when, what]), rest]);
}

export function ringHostSeeds(): Buffer[] {
  const begin = prelude().map((record) => step(0, 0, record));
  const read = step(0, 6);
  const region = step(0, 0, control(6, [0x83]));
  const span = plainBulk(Buffer.from([1, ...Array<number>(15).fill(0), 64, ...Array<number>(7).fill(0)]));
  const poke = (when: number, at: number, bytes: readonly number[]): Buffer =>
    step(when, 4, Buffer.from([at, bytes.length - 1, ...bytes]));
  const copy = call('cuMemcpyHtoD_v2', { bulk: plainBulk(Buffer.alloc(64, 7)) });
  const sound = [
    Buffer.concat([...begin, read, step(0, 0, copy), step(0, 0, call('cuMemcpyDtoH_v2')), read]),
    Buffer.concat([
      ...begin,
      region,
      read,
      step(0, 0, call('cuMemcpyHtoD_v2', { flags: SHARED_REGION_FLAG | ONEWAY_FLAG, bulk: span })),
      step(1, 5, Buffer.from([0, 7, 1, 2, 3, 4, 5, 6, 7, 8])),
      step(0, 0, call('cuMemcpyDtoH_v2', { flags: SHARED_REGION_FLAG, bulk: span })),
      read,
    ]),
  ];
  // Header words and bulk that change one, two, ... reads after they were published: to what sums up to little, and
  // to what is more than there is room for.
  const looked = call('cuModuleGetGlobal_v2', { bulk: text('table') });
  const changed = [copy, looked].flatMap((frame) =>
    [1, 2, 3, 4, 5, 6].flatMap((when) =>
      [0, 4, 8, 16, 20, 24, 40].flatMap((at) =>
        [
          [0xf8, 0xff, 0xff, 0xff],
          [0, 0, 0x20, 0],
        ].map((value) => Buffer.concat([...begin, read, step(0, 0, frame), poke(when, at, value), read])),
      ),
    ),
  );
  const indexes = [0, 1, 2, 3, 8, 9, 16, 17, 24, 25].flatMap((which) =>
    [0, 2].map((when) =>
      Buffer.concat([
        ...begin,
        step(0, 0, copy),
        step(when, 3, Buffer.from([which, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
        step(0, 0, call('cuMemcpyDtoH_v2')),
        read,
      ]),
    ),
  );
  const partly = [0, 1, 5, 40].map((words) =>
    Buffer.concat([...begin, step(0, 2, Buffer.concat([copy, Buffer.from([words])])), read]),
  );
  const lent = Buffer.concat(managed().flatMap((record) => [step(0, 0, record), read]));
  return [...sound, ...changed, ...indexes, ...partly, lent];
}

export function ringGuestSeeds(): Buffer[] {
  const answer = (body: number, bulk: number, bytes: readonly number[] = []): Buffer =>
    step(0, 0, Buffer.concat([Buffer.from([body, bulk, 0, ...bytes]), Buffer.alloc(bulk * 16 + 64)]));
  const facts = [1, 0, 0, 0, 0xc8, 3, 0, 0];
  const calls = [0, 1, 2, 3, 4, 5, 6];
  const greetings = [
    Buffer.from([1, 1, 6, 0, 0, 0x40, 0]),
    Buffer.from([2, 1, 6, 0x40]),
    Buffer.from([4, 1, 6]),
    Buffer.from([8, 1, 6]),
  ];
  const plain = calls.map((which) =>
    Buffer.concat([
      Buffer.from([0, 2, which, 6]),
      ...(which === 4 ? [step(0, 6, Buffer.from([0]))] : []),
      answer(0, which === 0 ? 61 : which === 5 ? 255 : 4, which === 0 || which === 2 ? facts : []),
      answer(0, 4),
      answer(0, 4),
    ]),
  );
  const changed = [1, 2, 3, 4, 5].flatMap((when) =>
    [0, 4, 8, 16, 20, 24, 32, 40].map((at) =>
      Buffer.concat([
        Buffer.from([0, 1, 6]),
        answer(0, 4),
        step(when, 4, Buffer.from([at, 3, 0xf8, 0xff, 0xff, 0xff])),
      ]),
    ),
  );
  const indexes = [0, 1, 2, 3, 8, 9, 16, 17, 24, 25].map((which) =>
    Buffer.concat([
      Buffer.from([0, 2, 3, 6]),
      step(0, 3, Buffer.from([which, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
      answer(0, 4),
    ]),
  );
  return [...greetings, ...plain, ...changed, ...indexes];
}
