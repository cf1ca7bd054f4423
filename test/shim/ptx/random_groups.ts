/**
 * Operations of random programs that lanes of a warp do in groups, each group with a member mask of its own: where no
 * lanes are apart, on both sides of a branch, and in a loop that the groups leave at different times.
 */
import { at, greater, M32 } from './random_operations.js';
import { COUNTS, type Statement, type Thread } from './random_text.js';

/** Lanes of the same number are a group. */
const DIVISIONS = [
  { text: ['shr.u32 %t0, %lane, 4;'], of: (lane: number) => lane >> 4 },
  { text: ['shr.u32 %t0, %lane, 2;'], of: (lane: number) => lane >> 2 },
  { text: ['and.b32 %t0, %lane, 1;'], of: (lane: number) => lane & 1 },
  { text: ['rem.u32 %t0, %lane, 5;'], of: (lane: number) => lane % 5 },
] as const;

interface Operation {
  readonly text: string;
  /** The value of the lane, from those of its group. */
  of(words: ReadonlyMap<number, bigint>, lane: number): bigint;
}
const total = (words: ReadonlyMap<number, bigint>): bigint =>
  [...words.values()].reduce((a, b) => a + b, 0n) & M32;
const bit = (lane: number): bigint => 1n << BigInt(lane);
const lanesWhere = (words: ReadonlyMap<number, bigint>, good: (word: bigint) => boolean): bigint =>
  [...words].reduce((mask, [lane, word]) => (good(word) ? mask | bit(lane) : mask), 0n);

/** `d = operation(s)` among the lanes of %m0. */
function operation(below: (n: number) => number, d: number, s: number): Operation {
  const by = 1 + below(31);
  const list: readonly Operation[] = [
    { text: `redux.sync.add.u32 %r${d}, %r${s}, %m0;`, of: total },
    {
      text: `redux.sync.max.u32 %r${d}, %r${s}, %m0;`,
      of: (words) => [...words.values()].reduce(greater),
    },
    {
      text: `shfl.sync.bfly.b32 %r${d}, %r${s}, ${by}, 31, %m0;`,
      of: (words, lane) => words.get(lane ^ by) ?? 0n,
    },
    {
      text: `shfl.sync.up.b32 %r${d}, %r${s}, ${by}, 0, %m0;`,
      of: (words, lane) => (lane < by ? (words.get(lane) ?? 0n) : (words.get(lane - by) ?? 0n)),
    },
    {
      text: `setp.lt.s32 %q, %r${s}, 0;\nvote.sync.ballot.b32 %r${d}, %q, %m0;`,
      of: (words) => lanesWhere(words, (word) => word >= 1n << 31n),
    },
    {
      text: `setp.lt.s32 %q, %r${s}, 0;\nvote.sync.all.pred %q, !%q, %m0;\nselp.u32 %r${d}, 1, 0, %q;`,
      of: (words) => (lanesWhere(words, (word) => word >= 1n << 31n) === 0n ? 1n : 0n),
    },
    {
      text: `setp.lt.s32 %q, %r${s}, 0;\nvote.sync.any.pred %q, %q, %m0;\nselp.u32 %r${d}, 1, 0, %q;`,
      of: (words) => (lanesWhere(words, (word) => word >= 1n << 31n) === 0n ? 0n : 1n),
    },
    {
      text: `and.b32 %t0, %r${s}, 3;\nmatch.any.sync.b32 %r${d}, %t0, %m0;`,
      of: (words, lane) => lanesWhere(words, (word) => (word & 3n) === ((words.get(lane) ?? 0n) & 3n)),
    },
    {
      text: `and.b32 %t0, %r${s}, 1;\nmatch.all.sync.b32 %r${d}|%q, %t0, %m0;\n@%q add.u32 %r${d}, %r${d}, 1;`,
      of: (words) => {
        const odd = lanesWhere(words, (word) => (word & 1n) === 1n);
        const all = lanesWhere(words, () => true);
        return odd === 0n || odd === all ? (all + 1n) & M32 : 0n;
      },
    },
    // beyond the lanes that take part there is nothing: 0
    {
      text: `shfl.sync.down.b32 %r${d}, %r${s}, ${by}, 31, %m0;`,
      of: (words, lane) => words.get(lane + by > 31 ? lane : lane + by) ?? 0n,
    },
  ];
  return at(list, below(list.length));
}

/** Every warp's threads, by the group that `of` says. */
function groupsOf(
  threads: readonly Thread[],
  of: (lane: number, t: Thread) => number,
): Map<number, Thread>[] {
  const groups: Map<number, Thread>[] = [];
  for (let first = 0; first < threads.length; first += 32) {
    const warp = new Map<number, Map<number, Thread>>();
    for (const [lane, t] of threads.slice(first, first + 32).entries()) {
      const group = of(lane, t);
      const members = warp.get(group) ?? new Map<number, Thread>();
      warp.set(group, members.set(lane, t));
    }
    groups.push(...warp.values());
  }
  return groups;
}

function apply(groups: readonly ReadonlyMap<number, Thread>[], what: Operation, d: number, s: number): void {
  for (const group of groups) {
    const words = new Map([...group].map(([lane, t]) => [lane, at(t.r, s)] as const));
    for (const [lane, t] of group) t.r[d] = what.of(words, lane);
  }
}

export function inGroups(below: (n: number) => number): Statement {
  const d = below(COUNTS.r),
    s = below(COUNTS.r),
    p = below(COUNTS.p);
  const { text, of } = at(DIVISIONS, below(DIVISIONS.length));
  const masks = [...text, 'match.any.sync.b32 %m0, %t0, 0xffffffff;'];
  switch (below(4)) {
    case 0: {
      const what = operation(below, d, s);
      return {
        kind: 'together',
        text: [...masks, ...what.text.split('\n')],
        apply: (threads) => apply(groupsOf(threads, of), what, d, s),
      };
    }
    case 1: {
      // both sides of a branch, each with the mask of those that take it
      const yes = operation(below, d, s),
        no = operation(below, d, s),
        label = `G${below(1 << 30)}_${below(1 << 30)}`;
      return {
        kind: 'together',
        text: [
          `vote.sync.ballot.b32 %m0, %p${p}, 0xffffffff;`,
          `@%p${p} bra ${label};`,
          'not.b32 %m0, %m0;',
          ...no.text.split('\n'),
          `bra ${label}e;`,
          `${label}:`,
          ...yes.text.split('\n'),
          `${label}e:`,
        ],
        apply: (threads) => {
          const sides = groupsOf(threads, (_, t) => (at(t.p, p) ? 1 : 0));
          for (const side of sides) {
            const [first] = side.values();
            apply([side], first !== undefined && at(first.p, p) ? yes : no, d, s);
          }
        },
      };
    }
    case 2: {
      // a loop that the groups leave at different times, behind which nothing is labelled
      const what = operation(below, d, d),
        label = `G${below(1 << 30)}_${below(1 << 30)}`;
      return {
        kind: 'together',
        text: [
          ...masks,
          'and.b32 %m1, %t0, 3;',
          `${label}:`,
          ...what.text.split('\n'),
          'sub.u32 %m1, %m1, 1;',
          'setp.lt.u32 %q, %m1, 8;',
          `@%q bra ${label};`,
          `shfl.sync.bfly.b32 %r${s}, %r${d}, 1, 31, 0xffffffff;`,
        ],
        apply: (threads) => {
          for (const group of groupsOf(threads, of)) {
            const [lane = 0] = group.keys();
            for (let n = of(lane) & 3; n >= 0; n--) apply([group], what, d, d);
          }
          const words = threads.map((t) => at(t.r, d));
          for (const [i, t] of threads.entries()) t.r[s] = at(words, i ^ 1);
        },
      };
    }
    default: {
      // lanes that the guard holds back take no part
      const by = 1 + below(31);
      const plain = {
        text: `@%p${p} shfl.sync.bfly.b32 %r${d}, %r${s}, ${by}, 31, %m0;`,
        of: (words: ReadonlyMap<number, bigint>, lane: number) => words.get(lane ^ by) ?? 0n,
      };
      return {
        kind: 'together',
        text: [`vote.sync.ballot.b32 %m0, %p${p}, 0xffffffff;`, plain.text],
        apply: (threads) =>
          apply(
            groupsOf(threads, (_, t) => (at(t.p, p) ? 1 : 0)).filter((group) =>
              [...group.values()].every((t) => at(t.p, p)),
            ),
            plain,
            d,
            s,
          ),
      };
    }
  }
}
