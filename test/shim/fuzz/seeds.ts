/** The inputs from which the fuzzers begin: correct ones, made from the API description and the tree's own examples. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fatBinary } from '../cuda/fat_binary.js';
import { ROOT } from '../cuda/private_programs.js';
import { frame, hello } from '../wire/wire_client.js';
import { committed } from './corpus.js';
import { hostSeeds, ringGuestSeeds, ringHostSeeds } from './seeds_calls.js';

export const FUZZERS = [
  'greeting',
  'host',
  'guest',
  'ring_host',
  'ring_guest',
  'image',
  'conf',
  'profile',
  'ptx',
] as const;
export type Fuzzer = (typeof FUZZERS)[number];

const fixture = (name: string): Buffer => readFileSync(path.join(ROOT, 'test/fixtures/code', name));

function guestSeeds(): Buffer[] {
  // Status, bytes of body, bytes of bulk; then body and bulk.
  const facts = Buffer.alloc(8 + 968);
  facts.writeUInt32LE(1, 0);
  facts.writeUInt32LE(968, 4);
  const answer = (body: number, bulk: number, bytes: Buffer): Buffer =>
    Buffer.concat([
      Buffer.from([0, body, bulk >> 8, bulk & 0xff]),
      bytes,
      Buffer.alloc(-(40 + body + bulk) & 7),
    ]);
  const usage = answer(40, 0, Buffer.alloc(40));
  return [
    Buffer.concat([
      Buffer.from([0, 0, 0, 0, 0]),
      answer(8, 968, facts),
      usage,
      answer(8, 0, Buffer.alloc(8)),
      usage,
    ]),
    Buffer.from([0, 20, 0, 0, 0]),
    Buffer.concat([Buffer.from([1]), Buffer.alloc(400)]),
  ];
}

/** Every kind of declaration, in few bytes. */
const DECLARED = `.version 8.4
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 pool[];
.shared .u32 s, t[2][3];
.const .align 8 .f32 table[] = {1, 0.5, 0f3F800000, {-2}};
.global .v2 .u16 rows[][2] = {{1, 2}, {3, 4}}, one;
.global .u64 at[2] = {generic(rows)+4, 0xFF00(rows)};
.global.attribute(.unified(1, 2)).samplerref r = {addr_mode_0 = wrap};
.visible .entry k(.param .u32 n, .param .u64 .ptr .global .align 1 p, .param .align 16 .b8 a[4][2]) .maxntid 8, 4
{ .shared .u32 u, v[2]; .local .align 8 .b8 d[20]; .loc 1 2 3
L: .reg .b32 %r<3>; st.shared.u32 [u], %r1; .pragma "nounroll"; ret; }
`;

function imageSeeds(): Buffer[] {
  const [ptx, cubin] = [fixture('kernels.ptx'), fixture('kernels.sm_90.cubin')];
  return [
    ptx,
    Buffer.from(DECLARED),
    cubin,
    fatBinary([
      { kind: 'ptx', architecture: 80, payload: ptx },
      { kind: 'elf', architecture: 90, payload: cubin },
    ]),
    fatBinary([{ kind: 'ptx', architecture: 61, payload: ptx.subarray(0, 2000), packed: 'lz4' }]),
    fatBinary([{ kind: 'elf', architecture: 90, payload: cubin, packed: 'zstd', flags: 0x100000 }]),
  ];
}

const CONF = [
  '# all\nlimits sessions=3 memory=8G connects=50 calls=1000 outstanding=64M\nallow any\n',
  'deny vsock cid=7\nallow vsock cid=3-9,12 memory=none\nallow unix uid=0,2000-2999 gid=root pid=7\ndeny tcp\n',
  'workers user=nobody\nlimits devices=1,GPU-5a0d1c6e weight=7\nallow vsock cid=3 devices=all\nallow any devices=MIG-12\n',
];

function below(directory: string, extension: string): Buffer[] {
  return readdirSync(path.join(ROOT, directory))
    .filter((name) => name.endsWith(extension))
    .map((name) => readFileSync(path.join(ROOT, directory, name)));
}

const HEAD = '.version 7.0\n.target sm_50\n.address_size 64\n';
const BODY = `${HEAD}.entry k() {`;
/** Each ends at its mistake, so that a message that quotes the text after the mistake reads behind the end. */
const CUT = [
  `${HEAD}.// G`,
  `${HEAD}.global x`,
  `${HEAD}.global .u32 x = 99999999999999999999999`,
  `${HEAD}.global .u32 x[y`,
  `${HEAD}.align -`,
  `${BODY} ;x`,
  `${BODY} @`,
  `${BODY} .reg .u32 r; add.u32 r x`,
  `${BODY} ${'a.'.repeat(40)}b`,
  `${BODY} mov.u32 %r, 0x`,
];

/** A greeting that is right, and an answer with two sessions (see fuzz/greeting.c). */
function greetingSeeds(): Buffer[] {
  const facts = Buffer.alloc(2 * 128);
  facts.write('llama-server', 64, 'latin1');
  facts.write('ollama', 128 + 64, 'latin1');
  const reply = Buffer.alloc(184);
  reply.write('VGPUWIRE', 0, 'latin1');
  reply.writeUInt16LE(1, 8);
  reply.writeUInt32LE(2, 160);
  reply.writeUInt32LE(128, 164);
  const answer = frame({ opcode: 1, flags: 1, sequence: 0n, body: reply, bulk: facts });
  return [Buffer.concat([Buffer.from([0]), hello(1)]), Buffer.concat([Buffer.from([1]), answer])];
}

const MAKE: Readonly<Record<Fuzzer, () => Buffer[]>> = {
  greeting: greetingSeeds,
  host: hostSeeds,
  guest: guestSeeds,
  ring_host: ringHostSeeds,
  ring_guest: ringGuestSeeds,
  image: imageSeeds,
  conf: () => CONF.map((text) => Buffer.from(text)),
  profile: () => below('profiles/devices', '.json'),
  ptx: () => [
    ...[...CUT, DECLARED].map((text) => Buffer.from(text)),
    fixture('kernels.ptx'),
    ...below('test/shim/kernels/ptx', '80.ptx'),
    readFileSync(path.join(ROOT, 'test/shim/kernels/seed.ptx')),
    readFileSync(path.join(ROOT, 'test/shim/kernels/seed_texture.ptx')),
  ],
};

/** Words that a fuzzer puts in: those of the grammars. */
const WORDS: Readonly<Partial<Record<Fuzzer, readonly string[]>>> = {
  conf: [
    'allow',
    'deny',
    'limits',
    'unix',
    'vsock',
    'tcp',
    'any',
    'uid=',
    'gid=',
    'pid=',
    'cid=',
    'sessions=',
  ].concat(['connects=', 'memory=', 'outstanding=', 'calls=', 'none', '4294967295', '1-2', ',', '\\x0a']),
  profile: [
    '\\"devices\\"',
    '\\"attributes\\"',
    '\\"memory\\"',
    '\\"uuid\\"',
    '\\"pci\\"',
    '\\"compute\\"',
    '-1',
    '1e400',
    'null',
  ],
  image: [
    '\\x7fELF',
    '\\x50\\xed\\x55\\xba',
    '.nv.info',
    '.param',
    '.entry',
    '\\x28\\xb5\\x2f\\xfd',
    '.symtab',
  ],
  ptx: [
    'tex.level.a2d.v4.f32.f32',
    'sust.b.3d.v4.b32.clamp',
    '.texref',
    '.reg',
    '.param',
    '.u64',
    '.f32',
    'ld.global',
    'st.shared',
    'bra',
    'bar.sync',
    '@%p1',
    '%tid.x',
    '.v4',
    '.entry',
  ],
};

/** Writes the seeds and the committed corpus of one fuzzer into its directory, and its dictionary beside; gives both. */
export function writeSeeds(
  fuzzer: Fuzzer,
  directory: string,
): { readonly corpus: string; readonly options: string[] } {
  const corpus = path.join(directory, fuzzer);
  mkdirSync(corpus, { recursive: true });
  MAKE[fuzzer]().forEach((bytes, index) => {
    writeFileSync(path.join(corpus, `seed-${String(index).padStart(4, '0')}`), bytes);
  });
  committed(fuzzer).forEach((bytes, index) => {
    writeFileSync(path.join(corpus, `kept-${String(index).padStart(4, '0')}`), bytes);
  });
  const words = WORDS[fuzzer];
  if (words === undefined) return { corpus, options: [] };
  const dictionary = path.join(directory, `${fuzzer}.dict`);
  writeFileSync(dictionary, words.map((word) => `"${word}"\n`).join(''));
  return { corpus, options: [`-dict=${dictionary}`] };
}
