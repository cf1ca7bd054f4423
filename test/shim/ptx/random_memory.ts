/**
 * Accesses of random programs to memory of each thread's own, in shared and in global memory: words side by side and
 * 36 bytes apart, halves, vectors, atomics. A guard, a branch or a loop around them names the lanes.
 */
import { at, M32 } from './random_operations.js';
import { COUNTS, type Step, type Thread } from './random_text.js';

/** Address registers: bytes between two threads, and the places of a thread's elements from there. */
const SHAPES = [
  { register: 'a', stride: 4, bytes: 4, places: [0, 1024, 2048, 3072] },
  { register: 'b', stride: 36, bytes: 4, places: [4096, 4100, 4104, 4108] },
  { register: 'c', stride: 2, bytes: 2, places: [11264, 11776] },
  { register: 'e', stride: 16, bytes: 4, places: [12288, 12292, 12296, 12300] },
] as const;
const BYTES = 16384;
const SPACES = ['shared', 'global'] as const;
type Space = (typeof SPACES)[number];

interface Element {
  readonly space: Space;
  readonly shape: (typeof SHAPES)[number];
  readonly place: number;
}
const ELEMENTS: readonly Element[] = SPACES.flatMap((space) =>
  SHAPES.flatMap((shape) => shape.places.map((place) => ({ space, shape, place }))),
);
/** Elements of a thread, all zero at first. */
export const ELEMENT_COUNT = ELEMENTS.length;

const register = ({ space, shape }: Element): string => `%${space === 'shared' ? 's' : 'g'}${shape.register}`;
const address = (element: Element): string => `[${register(element)}+${element.place}]`;

export const MEMORY_VARIABLE = `.global .align 16 .b8 far[${BYTES}];`;
/** Sets the address registers and elements. %tid and %all are the thread's number in its block and in the grid. */
export const MEMORY_SETUP = [
  `.shared .align 16 .b8 near[${BYTES}];`,
  ...SHAPES.flatMap(({ register: r, stride }) => [
    `.reg .b32 %s${r}; .reg .b64 %g${r};`,
    `mov.u32 %t0, near; mad.lo.u32 %s${r}, %tid, ${stride}, %t0;`,
    `mov.u64 %g${r}, far; mad.wide.u32 %g${r}, %all, ${stride}, %g${r};`,
  ]),
  ...ELEMENTS.map((element) => `st.${element.space}.u${element.shape.bytes * 8} ${address(element)}, 0;`),
];

/** One access, or stores that follow each other. */
export function inMemory(below: (n: number) => number): Step[] {
  const guard = below(2) === 0 ? { p: below(COUNTS.p), not: below(2) === 0 } : undefined;
  const step = (text: string, apply: (t: Thread) => void): Step =>
    guard === undefined ? { kind: 'step', text, apply } : { kind: 'step', text, apply, guard };
  const space = at(SPACES, below(SPACES.length)),
    shape = at(SHAPES, below(SHAPES.length));
  const first = ELEMENTS.findIndex((one) => one.space === space && one.shape === shape);
  const r = (): number => below(COUNTS.r);
  const number = (): number => first + below(shape.places.length);
  const word = shape.bytes === 4 ? M32 : 0xffffn;
  const bits = shape.bytes * 8;

  const store = (n: number, from: number): Step =>
    step(`st.${space}.u${bits} ${address(at(ELEMENTS, n))}, %r${from};`, (t) => {
      t.m[n] = at(t.r, from) & word;
    });
  switch (below(5)) {
    case 0:
      return Array.from({ length: 1 + below(4) }, () => store(number(), r()));
    case 1: {
      const n = number(),
        d = r(),
        extends_ = below(2) === 0 ? 's' : 'u';
      return [
        step(`ld.${space}.${extends_}${bits} %r${d}, ${address(at(ELEMENTS, n))};`, (t) => {
          t.r[d] = extends_ === 's' ? BigInt.asIntN(bits, at(t.m, n)) & M32 : at(t.m, n);
        }),
      ];
    }
    case 2: {
      const n = ELEMENTS.findIndex((one) => one.space === space && one.shape.stride === 16);
      const from = Array.from({ length: 4 }, r);
      const list = `{${from.map((k) => `%r${k}`).join(', ')}}`;
      return [
        step(`st.${space}.v4.u32 ${address(at(ELEMENTS, n))}, ${list};`, (t) => {
          for (const [k, x] of from.entries()) t.m[n + k] = at(t.r, x);
        }),
      ];
    }
    case 3: {
      const n = ELEMENTS.findIndex((one) => one.space === space && one.shape.stride === 16);
      const d = r();
      const to = Array.from({ length: 4 }, (_, k) => (d + k) % COUNTS.r);
      const list = `{${to.map((k) => `%r${k}`).join(', ')}}`;
      return [
        step(`ld.${space}.v4.u32 ${list}, ${address(at(ELEMENTS, n))};`, (t) => {
          for (const [k, x] of to.entries()) t.r[x] = at(t.m, n + k);
        }),
      ];
    }
    default: {
      const n = ELEMENTS.findIndex((one) => one.space === space && one.shape.bytes === 4) + below(8),
        d = r(),
        b = r(),
        adds = below(2) === 0;
      return [
        step(
          `atom.${space}.${adds ? 'add.u32' : 'exch.b32'} %r${d}, ${address(at(ELEMENTS, n))}, %r${b};`,
          (t) => {
            const old = at(t.m, n),
              by = at(t.r, b);
            t.m[n] = adds ? (old + by) & M32 : by;
            t.r[d] = old;
          },
        ),
      ];
    }
  }
}
