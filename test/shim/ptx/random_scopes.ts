/** Names of random programs that hide others: a register declared in braces, alone or in a range. */
import { at, M32 } from './random_operations.js';
import { COUNTS, type Statement } from './random_text.js';

/**
 * Registers of an inner scope, with names that the outer scope's ranges have: what is done to them leaves the outer
 * ones alone, and names beyond an inner range are still those of the outer one.
 */
export function shadowed(below: (n: number) => number): Statement {
  const hidden = below(COUNTS.r),
    from = below(COUNTS.r),
    add = BigInt(below(1 << 30));
  const rest = Array.from({ length: COUNTS.r }, (_, i) => i);
  const outer = (used: (i: number) => boolean): number => {
    const free = rest.filter((i) => !used(i));
    return at(free, below(free.length));
  };
  switch (below(4)) {
    case 0: {
      // one name, hidden
      const to = outer((i) => i === hidden);
      return {
        kind: 'block',
        text: [
          `add.u32 %t0, %r${from}, ${add};`,
          `{ .reg .b32 %r${hidden};`,
          `mov.u32 %r${hidden}, %t0;`,
          `xor.b32 %r${hidden}, %r${hidden}, 85;`,
          `mov.u32 %r${to}, %r${hidden}; }`,
        ],
        apply: (t) => {
          t.r[to] = ((at(t.r, from) + add) & M32) ^ 85n;
        },
      };
    }
    case 1: {
      // an inner range that hides the first few
      const count = 1 + below(COUNTS.r - 2);
      const to = count + below(COUNTS.r - count);
      const within = below(count);
      return {
        kind: 'block',
        text: [
          `{ .reg .b32 %r<${count}>;`,
          `mad.lo.u32 %r${within}, %r${to}, 3, ${add};`,
          `sub.u32 %r${to}, %r${within}, 7; }`,
        ],
        apply: (t) => {
          t.r[to] = (at(t.r, to) * 3n + add - 7n) & M32;
        },
      };
    }
    case 2: {
      // a predicate, as nvcc writes __syncthreads_count: hidden, used as a guard, and the outer one used again
      const p = below(COUNTS.p);
      return {
        kind: 'block',
        text: [
          `{ .reg .pred %p${p};`,
          `setp.lt.u32 %p${p}, %r${from}, ${add};`,
          `@%p${p} add.u32 %r${hidden}, %r${hidden}, 1; }`,
          `@%p${p} xor.b32 %r${hidden}, %r${hidden}, 4096;`,
        ],
        apply: (t) => {
          if (at(t.r, from) < add) t.r[hidden] = (at(t.r, hidden) + 1n) & M32;
          if (at(t.p, p)) t.r[hidden] = at(t.r, hidden) ^ 4096n;
        },
      };
    }
    default: {
      // hidden twice: the innermost is meant
      const to = outer((i) => i === hidden);
      return {
        kind: 'block',
        text: [
          `{ .reg .b32 %r<${hidden + 1}>; mov.u32 %r${hidden}, 11;`,
          `{ .reg .b32 %r${hidden}; mov.u32 %r${hidden}, ${add}; mov.u32 %t0, %r${hidden}; }`,
          `add.u32 %t0, %t0, %r${hidden}; }`,
          `mov.u32 %r${to}, %t0;`,
        ],
        apply: (t) => {
          t.r[to] = (add + 11n) & M32;
        },
      };
    }
  }
}
