/**
 * Loads, stores and atomics of every type, in every memory, over operands at their edges (ptx/edges.ts) against an
 * evaluation that shares nothing with the machine (ptx/float.ts, BigInt).
 */
import { describe, it } from 'node:test';
import { bitsOf, checkAll, format, type Instruction, integer } from './edges.js';
import * as fp from './float.js';
import { greater, lesser } from './random_operations.js';

const SPACES = ['global', 'generic to global', 'shared', 'generic to shared', 'local'] as const;

/** Sixteen bytes of its own for each thread, in %place: its address, and how instructions name the memory. */
function place(space: (typeof SPACES)[number]): { readonly text: string; readonly dot: string } {
  if (space === 'local')
    return {
      text: `.local .align 16 .b8 own[64];\n  .reg .b64 %place;\n  mov.u64 %place, own;`,
      dot: '.local',
    };
  if (space === 'global' || space === 'generic to global')
    return {
      // the buffer of results: the element is written last
      text: `.reg .b64 %place;
  mad.wide.u32 %place, %index, RESULT, %out;
  sub.u64 %place, %place, 8;`,
      dot: space === 'global' ? '.global' : '',
    };
  const generic = space === 'generic to shared' ? '  cvta.shared.u64 %place, %place;' : '';
  return {
    text: `.shared .align 16 .b8 own[2048];
  .reg .b64 %place;
  .reg .b32 %thread;
  mov.u32 %thread, %tid.x;
  mov.u64 %place, own;
  mad.wide.u32 %place, %thread, 16, %place;
${generic}`,
    dot: generic === '' ? '.shared' : '',
  };
}

const mask = (bits: number): bigint => (1n << BigInt(bits)) - 1n;

describe('loads and stores', () => {
  it('extend what they load to the register, and store its lower part', () => {
    const list: Instruction[] = [];
    for (const space of ['shared', 'generic to shared', 'local'] as const) {
      const { text, dot } = place(space);
      for (const how of ['', '.volatile', ...(space === 'local' ? ['.cs'] : ['.relaxed.gpu'])]) {
        for (const t of ['u8', 's8', 'b8', 'u16', 's16', 'b16', 'u32', 's32', 'b32', 'u64', 'f32', 'f64']) {
          for (const to of ['b16', 'b32', 'b64']) {
            if (bitsOf(to) < bitsOf(t) || (t.startsWith('f') && bitsOf(to) !== bitsOf(t))) continue;
            const full =
              how === '.volatile' ? `${how}${dot}` : how === '.cs' ? `${dot}${how}` : `${how}${dot}`;
            list.push({
              name: `st${full}.${t}, ld${full}.${t} to ${to}, ${space}`,
              to,
              from: ['b64'],
              body: `${text}
  .reg .${to} from;
  cvt.u${bitsOf(to)}.u64 from, x0;
  st${dot}.b64 [%place], 0;
  st${full}.${t} [%place+8], from;
  ld${full}.${t} y, [%place+8];`,
              result: (a = 0n) => {
                const low = a & mask(Math.min(bitsOf(t), bitsOf(to)));
                return t.startsWith('s') ? BigInt.asUintN(bitsOf(to), BigInt.asIntN(bitsOf(t), low)) : low;
              },
            });
          }
        }
      }
    }
    checkAll(list);
  });

  it('take vectors of every type', () => {
    const list: Instruction[] = [];
    for (const space of ['shared', 'generic to shared', 'local'] as const) {
      const { text, dot } = place(space);
      for (const [t, n] of [
        ['u8', 2],
        ['s8', 4],
        ['u8', 4],
        ['s16', 2],
        ['u16', 4],
        ['b32', 2],
        ['s32', 4],
        ['f32', 4],
        ['b64', 2],
        ['f64', 2],
      ] as const) {
        const wide = bitsOf(t) === 8 ? 'b16' : `b${bitsOf(t)}`;
        for (let i = 0; i < n; i++) {
          const names = Array.from({ length: n }, (_, k) => `v${k}`);
          list.push({
            name: `ld${dot}.v${n}.${t}, element ${i}, ${space}`,
            to: wide,
            from: ['b64', 'b64'],
            body: `${text}
  .reg .${wide} v<4>; .reg .b64 low, high;
  st${dot}.v2.b64 [%place], {x0, x1};
  ld${dot}.v${n}.${t} {${names.join(', ')}}, [%place];
  st${dot}.v${n}.${t} [%place], {${names.join(', ')}};
  ld${dot}.v2.b64 {low, high}, [%place];
  .reg .pred differs;
  setp.ne.b64 differs, low, x0;
  mov.${wide} y, v${i};
  @differs mov.${wide} y, 77;`,
            result: (a = 0n, b = 0n) => {
              const all = (b << 64n) | a;
              const bits = (all >> BigInt(i * bitsOf(t))) & mask(bitsOf(t));
              return t.startsWith('s') ? BigInt.asUintN(bitsOf(wide), BigInt.asIntN(bitsOf(t), bits)) : bits;
            },
          });
        }
      }
    }
    checkAll(list);
  });
});

describe('atomics', () => {
  type Two = (a: bigint, b: bigint) => bigint;
  const ATOMIC = SPACES.filter((space) => space !== 'local');
  const simple: readonly (readonly [string, readonly string[], (t: string) => Two])[] = [
    ['and', ['b32', 'b64'], () => (a, b) => a & b],
    ['or', ['b32', 'b64'], () => (a, b) => a | b],
    ['xor', ['b32', 'b64'], () => (a, b) => a ^ b],
    ['exch', ['b32', 'b64', 'b16'], () => (_, b) => b],
    ['add', ['u32', 's32', 'u64', 's64'], () => (a, b) => a + b],
    ['inc', ['u32'], () => (a, b) => (a >= b ? 0n : a + 1n)],
    ['dec', ['u32'], () => (a, b) => (a === 0n || a > b ? b : a - 1n)],
    ['min', ['u32', 's32', 'u64', 's64'], (t) => (a, b) => lesser(integer(t, a), integer(t, b))],
    ['max', ['u32', 's32', 'u64', 's64'], (t) => (a, b) => greater(integer(t, a), integer(t, b))],
  ];
  const add =
    (t: string, flush = false): Two =>
    (a, b) =>
      fp.encode(
        format(t),
        fp.add(fp.decode(format(t), a, flush), fp.decode(format(t), b, flush)),
        'rn',
        flush,
      );
  const half = (x: bigint, i: number): bigint => (x >> BigInt(16 * i)) & 0xffffn;
  const pairs =
    (f: Two): Two =>
    (a, b) =>
      f(half(a, 0), half(b, 0)) | (f(half(a, 1), half(b, 1)) << 16n);
  const floats: readonly (readonly [string, string, Two])[] = [
    ['add', 'f32', add('f32')],
    ['add', 'f64', add('f64')],
    ['add.noftz', 'f16', add('f16')],
    ['add.noftz', 'bf16', add('bf16')],
    ['add.noftz', 'f16x2', pairs(add('f16'))],
    ['add.noftz', 'bf16x2', pairs(add('bf16'))],
  ];
  /** The memory's first value is x0, the operand x1. */
  const one = (
    space: (typeof SPACES)[number],
    name: string,
    t: string,
    f: Two,
    what: 'atom' | 'memory' | 'red',
  ): Instruction => {
    const { text, dot } = place(space);
    const plain = `b${bitsOf(t)}`;
    const kind = what === 'red' ? 'red' : 'atom';
    return {
      name: `${kind}${dot}.${name}.${t}, ${what}, ${space}`,
      to: plain,
      from: [t, t],
      ...(t === 'f64' ? { anyNan: fp.F64 } : {}),
      body: `${text.replace('RESULT', `${bitsOf(t) / 8}`)}
  .reg .${plain} old;
  st${dot}.${plain} [%place+8], x0;
  ${kind}${dot}.${name}.${t} ${kind === 'red' ? '' : 'old, '}[%place+8], x1;
  ${what === 'atom' ? `mov.${plain} y, old;` : `ld${dot}.${plain} y, [%place+8];`}`,
      result: (a = 0n, b = 0n) => BigInt.asUintN(bitsOf(t), what === 'atom' ? a : f(a, b)),
    };
  };

  it('of every type change the memory and return what was there', () => {
    const list: Instruction[] = [];
    for (const space of ATOMIC) {
      for (const [name, types, f] of simple)
        for (const t of types)
          for (const what of ['atom', 'memory', ...(name === 'exch' ? [] : ['red'])] as (
            | 'atom'
            | 'memory'
            | 'red'
          )[])
            list.push(one(space, name, t, f(t), what));
      for (const [name, t, f] of floats)
        for (const what of ['atom', 'memory', 'red'] as const) {
          // in global memory, sums of f32 flush subnormal numbers
          const flushes = t === 'f32' && space.endsWith('global');
          list.push(one(space, name, t, flushes ? add('f32', true) : f, what));
        }
    }
    checkAll(list);
  });

  it('exchange where the memory is what was expected', () => {
    const list: Instruction[] = [];
    for (const space of ATOMIC) {
      const { text, dot } = place(space);
      for (const t of ['b16', 'b32', 'b64']) {
        for (const what of ['atom', 'memory']) {
          list.push({
            name: `atom${dot}.cas.${t}, ${what}, ${space}`,
            to: t,
            from: [t, t, t],
            body: `${text.replace('RESULT', `${bitsOf(t) / 8}`)}
  .reg .${t} old;
  st${dot}.${t} [%place+8], x0;
  atom${dot}.cas.${t} old, [%place+8], x1, x2;
  ${what === 'atom' ? `mov.${t} y, old;` : `ld${dot}.${t} y, [%place+8];`}`,
            result: (a = 0n, b = 0n, c = 0n) => (what === 'atom' || a !== b ? a : c),
          });
        }
      }
    }
    checkAll(list);
  });
});
