/**
 * Random kernels in the C that CUDA and C have in common, so that nvcc's PTX on the machine and gcc's program on the
 * processor must leave the same. Nothing in them is undefined: shifts are masked, divisors are not 0, integers do not
 * overflow signed, an operation with a member mask is reached by exactly the lanes of its mask. `random_c/` has what the
 * two compilers are given around them.
 */
import { random } from '../ptx/machine.js';

export const THREADS = 64;
export const BLOCKS = 2;
/** Words that a thread leaves. */
export const LEFT = 12;
const WORDS = 5,
  FLOATS = 3;

interface Scope {
  /** The C expression of the lanes that are here; undefined: not known, nothing may be done together. */
  readonly mask: string | undefined;
  /** All threads of the block are here. */
  readonly whole: boolean;
  readonly depth: number;
  /** `break` and `continue` are allowed. */
  readonly loop: boolean;
  /** Variables of loops around, to be read. */
  readonly counters: readonly string[];
}

export interface Kernels {
  /** Functions k0, k1, ... (out, in, sums). */
  readonly text: string;
  readonly count: number;
}

export function randomKernels(seed: number, count: number): Kernels {
  return {
    count,
    text: Array.from({ length: count }, (_, i) => kernel(seed * 1000 + i, `k${i}`)).join('\n'),
  };
}

function kernel(seed: number, name: string): string {
  const next = random(seed * 2654435761 + 977);
  for (let i = 0; i < 8; i++) next();
  const below = (n: number): number => next() % n;
  const one = <T>(list: readonly [T, ...T[]]): T => list[below(list.length)] ?? list[0];
  let names = 0,
    left = 24 + below(30);
  const leaves = below(8) === 0;

  const word = (s: Scope): string =>
    one<() => string>([
      () => `a${below(WORDS)}`,
      () => `a${below(WORDS)}`,
      () => `a${below(WORDS)}`,
      () => `(u32)w${below(2)}`,
      () => `l[${index(s)}]`,
      () => one(['t', 'LANE', 'blockIdx.x', '0u', '1u', '31u', '0x7fffffffu', '0x80000000u', '0xffffffffu']),
      () => `${next()}u`,
      () => `${below(100)}u`,
      () => `in[(${simple()}) & 63u]`,
      () => s.counters[below(s.counters.length || 1)] ?? 't',
    ])();
  const simple = (): string => one<string>(['t', `a${below(WORDS)}`, `${below(64)}u`]);
  const index = (s: Scope): string =>
    below(3) === 0 ? `${below(8)}` : `(${s.counters[below(s.counters.length || 1)] ?? simple()}) & 7u`;
  const integer = (s: Scope, depth: number): string => {
    if (depth === 0) return word(s);
    const x = (): string => integer(s, depth - 1 - below(2) < 0 ? 0 : depth - 1);
    return one<() => string>([
      () => `(${x()} ${one(['+', '-', '*', '&', '|', '^'])} ${x()})`,
      () => `(${x()} ${one(['+', '-', '*', '&', '|', '^'])} ${x()})`,
      () => `(${x()} ${one(['<<', '>>'])} (${x()} & 31u))`,
      () => `(u32)((int)${x()} >> (${x()} & 31u))`,
      () => `(${x()} ${one(['/', '%'])} (${x()} | 1u))`,
      () => `(u32)((int)${x()} ${one(['/', '%'])} ((int)(${x()} & 255u) + 1))`,
      () => `(${condition(s, depth - 1)} ? ${x()} : ${x()})`,
      () => `(u32)(${one(['signed char', 'unsigned char', 'short', 'unsigned short'])})${x()}`,
      () => `(u32)${one(['__popc', '__clz', '__ffs', '__brev'])}(${x()})`,
      () => `__umulhi(${x()}, ${x()})`,
      () => `__funnelshift_l(${x()}, ${x()}, ${x()})`,
      () => `__byte_perm(${x()}, ${x()}, ${x()} & 0x7777u)`,
      () => `~${x()}`,
      () => `bits_of(${float(s, 1)})`,
      () => `(u32)int_of(${float(s, 1)})`,
      () => `(u32)(${long(s, 1)} >> (${x()} & 63u))`,
      () => `${name}_h(${x()}, ${x()}, l)`,
    ])();
  };
  const long = (s: Scope, depth: number): string => {
    const x = (): string => (depth === 0 || below(2) === 0 ? `w${below(2)}` : long(s, depth - 1));
    return one<() => string>([
      () => `((u64)${integer(s, 1)} ${one(['+', '*', '-', '^'])} ${x()})`,
      () => `(${x()} ${one(['+', '-', '*', '&', '|', '^'])} ${x()})`,
      () => `(${x()} ${one(['<<', '>>'])} (${integer(s, 0)} & 63u))`,
      () => `(u64)((long long)${x()} >> (${integer(s, 0)} & 63u))`,
      () => `(${x()} ${one(['/', '%'])} (${x()} | 1ull))`,
      () => `__brevll(${x()})`,
      () =>
        `bits_of_double((double)(int)${integer(s, 0)} * 0.37 ${one(['+', '-', '*', '/'])} (double)${float(s, 0)})`,
    ])();
  };
  const float = (s: Scope, depth: number): string => {
    if (depth === 0) return one<() => string>([() => `f${below(FLOATS)}`, () => `float_of(${word(s)})`])();
    const x = (): string => float(s, depth - 1);
    return one<() => string>([
      () => `(${x()} ${one(['+', '-', '*', '/'])} ${x()})`,
      () => `(${x()} ${one(['+', '-', '*', '/'])} ${x()})`,
      () => `fmaf(${x()}, ${x()}, ${x()})`,
      () => `sqrtf(fabsf(${x()}))`,
      () => `(${x()} ${one(['<', '>', '<=', '>=', '==', '!='])} ${x()} ? ${x()} : ${x()})`,
      () => `(float)((double)${x()} ${one(['+', '-', '*'])} 1.25)`,
      () => `truncf(${x()})`,
      () => `floorf(${x()})`,
    ])();
  };
  const condition = (s: Scope, depth: number): string =>
    one<() => string>([
      () => `(${integer(s, depth)} ${one(['<', '>', '<=', '>=', '==', '!='])} ${integer(s, depth)})`,
      () => `((int)${integer(s, depth)} ${one(['<', '>', '<=', '>='])} (int)${integer(s, depth)})`,
      () => `(${integer(s, depth)} & ${1 << below(5)}u)`,
      () => `(${float(s, depth)} ${one(['<', '>', '<=', '>=', '=='])} ${float(s, depth)})`,
      () =>
        `(${integer(s, depth)} % ${2 + below(5)}u == ${below(2)}u ${one(['&&', '||'])} LANE > ${below(32)}u)`,
    ])();

  const group = (mask: string): string =>
    one<() => string>([
      () => mask,
      () => mask,
      () => `(${mask} & (LANE < 16u ? 0xffffu : 0xffff0000u))`,
      () => `(${mask} & (0xffu << (LANE & 24u)))`,
      () => `(${mask} & (LANE & 1u ? 0xaaaaaaaau : 0x55555555u))`,
    ])();
  const together = (s: Scope, mask: string): string => {
    const m = group(mask),
      d = `a${below(WORDS)}`,
      v = (): string => integer(s, 1);
    return one<() => string>([
      () => `${d} ${one(['=', '^=', '+='])} from_xor(${m}, ${v()}, ${1 + below(31)}u);`,
      () => `${d} = from_up(${m}, ${v()}, ${below(32)}u);`,
      () => `${d} = from_down(${m}, ${v()}, ${below(32)}u);`,
      () => `${d} = from_lane(${m}, ${v()}, ${v()});`,
      () => `${d} = __ballot_sync(${m}, ${condition(s, 1)});`,
      () => `${d} += (u32)__any_sync(${m}, ${condition(s, 1)});`,
      () => `${d} += (u32)__all_sync(${m}, ${condition(s, 1)}) * 3u;`,
      () => `${d} = __match_any_sync(${m}, ${v()} & 3u);`,
      () => `${d} = __reduce_${one(['add', 'min', 'max', 'and', 'or', 'xor'])}_sync(${m}, ${v()});`,
      () => `${d} ^= exchange(s, ${m}, ${v()}, ${1 + below(31)}u);`,
    ])();
  };
  const block = (s: Scope): string[] => {
    const by = 1 + below(63);
    return one<() => string[]>([
      () => [
        `s[t] = ${integer(s, 1)};`,
        '__syncthreads();',
        `a${below(WORDS)} ${one(['=', '^=', '+='])} s[(t + ${by}u) & 63u];`,
        '__syncthreads();',
      ],
      () => [`a${below(WORDS)} += (u32)__syncthreads_count(${condition(s, 1)});`],
      () => [
        `if (${one(['__syncthreads_or', '__syncthreads_and'])}(${condition(s, 1)})) a${below(WORDS)} ^= 77u;`,
      ],
      () => [
        `if (t == 0u) { s[64] = ${one(['0u', '~0u'])}; s[65] = ${one(['0u', '~0u', '1000u'])}; }`,
        '__syncthreads();',
        `if (${condition(s, 1)}) ${one(['atomicAdd', 'atomicXor', 'atomicOr', 'atomicAnd'])}(&s[64], ${integer(s, 1)});`,
        one([
          `${one(['atomicMax', 'atomicMin'])}(&s[65], ${integer(s, 1)});`,
          `${one(['atomicMax', 'atomicMin'])}((int *)&s[65], (int)(${integer(s, 1)}));`,
        ]),
        '__syncthreads();',
        `a${below(WORDS)} ^= s[64] + s[65];`,
        '__syncthreads();',
      ],
    ])();
  };

  const plain = (s: Scope): string =>
    one<() => string>([
      () => `a${below(WORDS)} ${one(['=', '+=', '^=', '-=', '*='])} ${integer(s, 2)};`,
      () => `a${below(WORDS)} ${one(['=', '+=', '^=', '-='])} ${integer(s, 3)};`,
      () => `w${below(2)} ${one(['=', '+=', '^='])} ${long(s, 2)};`,
      () => `f${below(FLOATS)} = ${float(s, 2)};`,
      () => `l[${index(s)}] ${one(['=', '+=', '^='])} ${integer(s, 2)};`,
      () => `atomicXor(&sums[blockIdx.x * 4u + ${below(4)}u], ${integer(s, 1)});`,
      () => `atomicAdd(&sums[blockIdx.x * 4u + 8u + ${below(4)}u], ${integer(s, 1)});`,
    ])();

  const statement = (s: Scope): string[] => {
    left--;
    const what = below(20),
      deep = s.depth >= 4;
    const inner: Scope = { ...s, depth: s.depth + 1, whole: false };
    if (what < 3 && !deep) {
      // a branch; who takes it is known, or nothing is done together in it
      if (s.mask !== undefined && below(3) > 0) {
        const m = `m${names++}`;
        return [
          `{ u32 ${m}c = ${condition(s, 1)} ? 1u : 0u, ${m} = __ballot_sync(${s.mask}, ${m}c != 0u);`,
          `if (${m}c != 0u) {`,
          ...statements({ ...inner, mask: m }, 4),
          '} else {',
          ...(below(2) === 0 ? [] : statements({ ...inner, mask: `(${s.mask} & ~${m})` }, 4)),
          '} }',
        ];
      }
      return [
        `if (${condition(s, 2)}) {`,
        ...statements({ ...inner, mask: undefined }, 4),
        ...(below(2) === 0 ? [] : ['} else {', ...statements({ ...inner, mask: undefined }, 4)]),
        '}',
      ];
    }
    if (what < 6 && !deep) {
      const i = `i${names++}`,
        most = `(${integer(s, 1)} & ${one([1, 3, 7])}u)`;
      const within: Scope = { ...inner, counters: [...s.counters, i] };
      if (s.mask !== undefined && below(2) === 0) {
        // a loop that lanes leave at different times, those that are left known in each turn
        const m = `m${names++}`;
        return [
          `{ u32 ${m} = ${s.mask}, ${m}n = ${most};`,
          `for (u32 ${i} = 0;; ${i}++) {`,
          `${m} = __ballot_sync(${m}, ${i} < ${m}n);`,
          `if (!(${i} < ${m}n)) break;`,
          ...statements({ ...within, mask: m, loop: false }, 3),
          '} }',
        ];
      }
      const body = statements({ ...within, mask: undefined, loop: true }, 4);
      return one<() => string[]>([
        () => [`for (u32 ${i} = 0, ${i}n = ${most}; ${i} < ${i}n; ${i}++) {`, ...body, '}'],
        () => [`{ u32 ${i} = 0, ${i}n = ${most}; do {`, ...body, `} while (++${i} < ${i}n); }`],
        () => [`for (u32 ${i} = 0; ${i} < ${1 + below(6)}u; ${i}++) {`, ...body, '}'],
      ])();
    }
    if (what === 6 && !deep) {
      return [
        `switch (${integer(s, 1)} & 7u) {`,
        ...Array.from({ length: 2 + below(5) }, (_, k) => [
          `case ${k}: {`,
          ...statements({ ...inner, mask: undefined, loop: false }, 2),
          below(4) === 0 ? '} /* falls through */' : '} break;',
        ]).flat(),
        `default: a${below(WORDS)} += 3u;`,
        '}',
      ];
    }
    if (what < 9 && s.loop) return [`if (${condition(s, 1)}) ${one(['break', 'continue'])};`];
    if (what === 9 && leaves && s.whole) return [`if (${condition(s, 1)} && LANE % 3u == 1u) return;`];
    if (what < 13 && s.whole) return block(s);
    if (what < 16 && s.mask !== undefined && !leaves) return [together(s, s.mask)];
    return [plain(s)];
  };
  const statements = (s: Scope, most: number): string[] => {
    const list: string[] = [];
    for (let n = 1 + below(most); n > 0 && left > 0; n--) list.push(...statement(s));
    return list.length > 0 ? list : [plain(s)];
  };

  const top: Scope = {
    mask: leaves ? undefined : '0xffffffffu',
    whole: true,
    depth: 0,
    loop: false,
    counters: [],
  };
  const body: string[] = [];
  while (left > 0) body.push(...statements(top, 10));
  const helper = `FUNCTION u32 ${name}_h(u32 x, u32 y, u32 *l) {
  for (u32 i = 0; i < (y & 3u); i++) x = x * ${next() | 1}u + (l[i + (x & 3u)] ^ y);
  ${below(3) === 0 ? `if ((x & 7u) > 4u && y > 16u) return ${name}_h(x >> 3, y >> 2, l) + 1u;` : ''}
  return x ^ (y << 3);
}`;
  const at = `out[(blockIdx.x * ${THREADS}u + t) * ${LEFT}u`;
  return `${helper}
KERNEL void ${name}(u32 *out, const u32 *in, u32 *sums) {
  SHARED u32 s[66];
  u32 t = threadIdx.x, l[8];
  u32 ${Array.from({ length: WORDS }, (_, i) => `a${i} = in[(t + ${i * 7}u) & 63u] ${one(['+', '^', '*'])} ${next()}u`).join(', ')};
  u64 w0 = (u64)a0 * a1 + ${next()}u, w1 = w0 ^ (u64)a2 << 17;
  float ${Array.from({ length: FLOATS }, (_, i) => `f${i} = float_of(a${i})`).join(', ')};
  for (u32 i = 0; i < 8u; i++) l[i] = a3 + i * a4;
  (void)s;
${leaves ? `  for (u32 i = 0; i < ${LEFT}u; i++) ${at} + i] = i;\n` : ''}  ${body.join('\n  ')}
  ${Array.from({ length: WORDS }, (_, i) => `${at} + ${i}] = a${i};`).join(' ')}
  ${at} + 5] = (u32)w0; ${at} + 6] = (u32)(w0 >> 32); ${at} + 7] = (u32)w1 ^ (u32)(w1 >> 32);
  ${Array.from({ length: FLOATS }, (_, i) => `${at} + ${8 + i}] = bits_of(f${i});`).join(' ')}
  { u32 x = 0; for (u32 i = 0; i < 8u; i++) x = x * 31u + l[i]; ${at} + 11] = x; }
}`;
}
