/**
 * Random PTX programs and what they compute, worked out a second time: a program is a tree, written down as PTX for
 * the machine and walked through here thread by thread, in BigInt and exact floats. Nothing of the machine is used.
 */
import { add, decode, encode, F16, F32, finite, multiply, negate } from './float.js';
import { random } from './machine.js';
import { inGroups } from './random_groups.js';
import { ELEMENT_COUNT, inMemory, MEMORY_SETUP, MEMORY_VARIABLE } from './random_memory.js';
import {
  at,
  COMPARISONS,
  INTEGER,
  lesser,
  lop3,
  M32,
  M64,
  ROUNDINGS,
  s32,
  s64,
  WIDE,
} from './random_operations.js';
import { shadowed } from './random_scopes.js';
import {
  COUNTS,
  kernelText,
  LEFT,
  type Program,
  type Statement,
  type Step,
  type Thread,
} from './random_text.js';

/** A program of its own for each seed. */
export function randomProgram(seed: number, size = 60): Program {
  const next = random(seed * 2654435761 + 12345);
  for (let i = 0; i < 8; i++) next();
  const below = (n: number): number => next() % n;
  const pick = <T>(list: readonly T[]): T => at(list, below(list.length));
  let left = size,
    loops = 0;

  const integerOperand = (): { text: string; of: (t: Thread) => bigint } => {
    if (below(4) > 0) {
      const i = below(COUNTS.r);
      return { text: `%r${i}`, of: (t) => at(t.r, i) };
    }
    const value = pick([
      0n,
      1n,
      31n,
      32n,
      33n,
      0x7fffffffn,
      0x80000000n,
      M32,
      BigInt(next()),
      BigInt(below(64)),
    ]);
    return { text: `${value}`, of: () => value };
  };
  const step = (text: string, apply: (t: Thread) => void): Step => {
    const guard = below(5) === 0 ? { p: below(COUNTS.p), not: below(2) === 0 } : undefined;
    return guard === undefined ? { kind: 'step', text, apply } : { kind: 'step', text, apply, guard };
  };

  const integer = (): Step => {
    const [name, operands, apply] = pick(INTEGER);
    const d = below(COUNTS.r);
    const given = [integerOperand(), integerOperand(), integerOperand()].slice(0, operands);
    return step(`${name} %r${d}, ${given.map((o) => o.text).join(', ')};`, (t) => {
      const [x = 0n, y = 0n, z = 0n] = given.map((o) => o.of(t));
      t.r[d] = apply(x, y, z) & M32;
    });
  };
  const table = (): Step => {
    const d = below(COUNTS.r),
      [a, b, c] = [integerOperand(), integerOperand(), integerOperand()];
    const which = BigInt(below(256));
    return step(`lop3.b32 %r${d}, ${a.text}, ${b.text}, ${c.text}, ${which};`, (t) => {
      t.r[d] = lop3(a.of(t), b.of(t), c.of(t), which);
    });
  };
  const wide = (): Step => {
    const [name, apply] = pick(WIDE);
    const d = below(COUNTS.d),
      a = below(COUNTS.d),
      b = below(COUNTS.d);
    return step(`${name} %d${d}, %d${a}, %d${b};`, (t) => {
      t.d[d] = apply(at(t.d, a), at(t.d, b)) & M64;
    });
  };
  const between = (): Step => {
    const r = below(COUNTS.r),
      d = below(COUNTS.d),
      s = below(COUNTS.r);
    const z = below(COUNTS.d);
    return pick([
      step(`cvt.u64.u32 %d${d}, %r${r};`, (t) => {
        t.d[d] = at(t.r, r);
      }),
      step(`cvt.s64.s32 %d${d}, %r${r};`, (t) => {
        t.d[d] = s32(at(t.r, r)) & M64;
      }),
      step(`cvt.u32.u64 %r${r}, %d${d};`, (t) => {
        t.r[r] = at(t.d, d) & M32;
      }),
      step(`cvt.s32.s8 %r${r}, %r${s};`, (t) => {
        t.r[r] = BigInt.asIntN(8, at(t.r, s)) & M32;
      }),
      step(`cvt.u32.u16 %r${r}, %r${s};`, (t) => {
        t.r[r] = at(t.r, s) & 0xffffn;
      }),
      step(`mul.wide.s32 %d${d}, %r${r}, %r${s};`, (t) => {
        t.d[d] = (s32(at(t.r, r)) * s32(at(t.r, s))) & M64;
      }),
      step(`mad.wide.u32 %d${d}, %r${r}, %r${s}, %d${z};`, (t) => {
        t.d[d] = (at(t.r, r) * at(t.r, s) + at(t.d, z)) & M64;
      }),
      step(`shl.b64 %d${d}, %d${z}, %r${r};`, (t) => {
        const by = at(t.r, r);
        t.d[d] = by > 63n ? 0n : (at(t.d, z) << by) & M64;
      }),
      step(`shr.s64 %d${d}, %d${z}, %r${r};`, (t) => {
        t.d[d] = (s64(at(t.d, z)) >> lesser(at(t.r, r), 63n)) & M64;
      }),
      step(`mov.b32 %f${r % COUNTS.f}, %r${s};`, (t) => {
        t.f[r % COUNTS.f] = at(t.r, s);
      }),
      step(`mov.b32 %r${r}, %f${s % COUNTS.f};`, (t) => {
        t.r[r] = at(t.f, s % COUNTS.f);
      }),
    ]);
  };
  const float = (): Step => {
    const d = below(COUNTS.f),
      a = below(COUNTS.f),
      b = below(COUNTS.f),
      c = below(COUNTS.f);
    const how = pick(ROUNDINGS),
      flush = below(3) === 0,
      ftz = flush ? '.ftz' : '';
    const of = (t: Thread, i: number) => decode(F32, at(t.f, i), flush);
    const r = below(COUNTS.r),
      wide = below(2) === 0,
      h = below(0x10000);
    return pick<Step>([
      step(`cvt.${how}.f32.${wide ? 'u32' : 's32'} %f${d}, %r${r};`, (t) => {
        const x = wide ? at(t.r, r) : s32(at(t.r, r));
        t.f[d] = encode(F32, finite(x < 0n, x < 0n ? -x : x, 0), how);
      }),
      {
        kind: 'step',
        text: `{ .reg .b16 h; mov.b16 h, ${h}; cvt.f32.f16 %f${d}, h; }`, // lines in a scope have no guard
        apply: (t) => {
          t.f[d] = encode(F32, decode(F16, BigInt(h)));
        },
      },
      step(`add.${how}${ftz}.f32 %f${d}, %f${a}, %f${b};`, (t) => {
        t.f[d] = encode(F32, add(of(t, a), of(t, b), how), how, flush);
      }),
      step(`sub.${how}${ftz}.f32 %f${d}, %f${a}, %f${b};`, (t) => {
        t.f[d] = encode(F32, add(of(t, a), negate(of(t, b)), how), how, flush);
      }),
      step(`mul.${how}${ftz}.f32 %f${d}, %f${a}, %f${b};`, (t) => {
        t.f[d] = encode(F32, multiply(of(t, a), of(t, b)), how, flush);
      }),
      step(`fma.${how}${ftz}.f32 %f${d}, %f${a}, %f${b}, %f${c};`, (t) => {
        t.f[d] = encode(F32, add(multiply(of(t, a), of(t, b)), of(t, c), how), how, flush);
      }),
    ]);
  };
  const predicate = (): Step => {
    const d = below(COUNTS.p),
      a = below(COUNTS.p),
      b = below(COUNTS.p);
    const [name, apply] = pick(COMPARISONS),
      x = integerOperand(),
      y = integerOperand(),
      r = below(COUNTS.r);
    return pick([
      step(`setp.${name} %p${d}, ${x.text}, ${y.text};`, (t) => {
        t.p[d] = apply(x.of(t), y.of(t));
      }),
      step(`setp.${name.replace('.', '.and.')} %p${d}, ${x.text}, ${y.text}, !%p${a};`, (t) => {
        t.p[d] = apply(x.of(t), y.of(t)) && !at(t.p, a);
      }),
      step(`xor.pred %p${d}, %p${a}, %p${b};`, (t) => {
        t.p[d] = at(t.p, a) !== at(t.p, b);
      }),
      step(`selp.b32 %r${r}, ${x.text}, ${y.text}, %p${a};`, (t) => {
        t.r[r] = at(t.p, a) ? x.of(t) : y.of(t);
      }),
    ]);
  };

  const shadow = (): Statement => shadowed(below);
  const grouped = (): Statement => inGroups(below);

  /** Shared memory, shuffles and votes: where no lanes are apart. */
  const together = (): Statement => {
    const r = below(COUNTS.r),
      d = below(COUNTS.r),
      p = below(COUNTS.p),
      by = 1 + below(63);
    const snapshot = (threads: readonly Thread[], i: number): bigint[] => threads.map((t) => at(t.r, i));
    return pick<Statement>([
      {
        kind: 'together',
        text: [
          `st.shared.u32 [%mine], %r${r};`,
          'bar.sync 0;',
          `add.u32 %t0, %tid, ${by};`,
          'rem.u32 %t0, %t0, %ntid;',
          'mad.lo.u32 %t0, %t0, 4, %base;',
          `ld.shared.u32 %r${d}, [%t0];`,
          'bar.sync 0;',
        ],
        apply: (threads) => {
          const words = snapshot(threads, r);
          for (const [i, t] of threads.entries()) t.r[d] = at(words, (i + by) % words.length);
        },
      },
      {
        kind: 'together',
        text: [
          '@%first st.shared.u32 [%base], 0;',
          'bar.sync 0;',
          `red.shared.add.u32 [%base], %r${r};`,
          'bar.sync 0;',
          `ld.shared.u32 %r${d}, [%base];`,
          'bar.sync 0;',
        ],
        apply: (threads) => {
          const sum = snapshot(threads, r).reduce((total, word) => total + word, 0n) & M32;
          for (const t of threads) t.r[d] = sum;
        },
      },
      {
        kind: 'together',
        text: [`shfl.sync.bfly.b32 %r${d}, %r${r}, ${by & 31}, 31, 0xffffffff;`],
        apply: (threads) => {
          const words = snapshot(threads, r);
          for (const [i, t] of threads.entries()) t.r[d] = at(words, i ^ (by & 31));
        },
      },
      {
        kind: 'together',
        text: [`vote.sync.ballot.b32 %r${d}, %p${p}, 0xffffffff;`],
        apply: (threads) => {
          for (let warp = 0; warp < threads.length; warp += 32) {
            const lanes = threads.slice(warp, warp + 32);
            const ballot = lanes.reduce((word, t, i) => word | (at(t.p, p) ? 1n << BigInt(i) : 0n), 0n);
            for (const t of lanes) t.r[d] = ballot;
          }
        },
      },
    ]);
  };

  const statements = (depth: number, most: number): Statement[] => {
    const list: Statement[] = [];
    for (let n = 1 + below(most); n > 0 && left > 0; n--) {
      left--;
      const what = below(20);
      if (depth < 3 && what === 0) {
        const p = below(COUNTS.p);
        list.push({
          kind: 'if',
          p,
          yes: statements(depth + 1, 6),
          no: below(2) === 0 ? [] : statements(depth + 1, 6),
        });
      } else if (depth < 3 && what === 1) {
        const id = loops++,
          r = below(COUNTS.r),
          parted = below(2) === 0,
          times = 1 + below(5);
        const body = statements(depth + 1, 6);
        const loop = {
          kind: 'loop' as const,
          id,
          times: (t: Thread) => (parted ? Number(at(t.r, r) & 3n) + 1 : times),
          text: parted
            ? [`and.b32 %n${id}, %r${r}, 3;`, `add.u32 %n${id}, %n${id}, 1;`]
            : [`mov.u32 %n${id}, ${times};`],
          body,
        };
        list.push(below(3) === 0 ? { ...loop, out: below(COUNTS.p) } : loop);
      } else if (depth === 0 && what < 5) list.push(below(2) === 0 ? together() : grouped());
      else if (what === 5) list.push(shadow());
      else if (what < 8) list.push(...inMemory(below));
      else if (what < 12) list.push(integer());
      else list.push(pick([table, wide, between, float, float, predicate, predicate])());
    }
    return list;
  };
  const body: Statement[] = [];
  while (left > 0) body.push(...statements(0, 12));

  const walk = (list: readonly Statement[], t: Thread): void => {
    for (const s of list) {
      if (s.kind === 'block') {
        s.apply(t);
      } else if (s.kind === 'step') {
        if (s.guard === undefined || at(t.p, s.guard.p) !== s.guard.not) s.apply(t);
      } else if (s.kind === 'if') {
        walk(at(t.p, s.p) ? s.yes : s.no, t);
      } else if (s.kind === 'loop') {
        for (let n = s.times(t); n > 0; n--) {
          walk(s.body, t);
          if (s.out !== undefined && at(t.p, s.out)) break;
        }
      }
    }
  };

  const first = Array.from({ length: COUNTS.r + COUNTS.d + COUNTS.f }, () => next());
  return {
    text: kernelText(body, first, loops, { variable: MEMORY_VARIABLE, setup: MEMORY_SETUP }),
    run: (threads, block) => {
      const all = Array.from({ length: threads }, (_, i): Thread => {
        const number = BigInt(block * threads + i);
        const r = first
          .slice(0, COUNTS.r)
          .map((value, k) => (number * BigInt(value) + BigInt((value ^ k) >>> 0)) & M32);
        return {
          r,
          d: Array.from({ length: COUNTS.d }, (_d, k) => at(r, k) * BigInt(at(first, COUNTS.r + k))),
          f: Array.from({ length: COUNTS.f }, (_f, k) => at(r, k + 2)),
          p: Array.from({ length: COUNTS.p }, (_p, k) => at(r, k) < at(r, k + 1)),
          m: Array.from({ length: ELEMENT_COUNT }, () => 0n),
        };
      });
      for (const s of body) {
        if (s.kind === 'together') s.apply(all);
        else for (const t of all) walk([s], t);
      }
      return all;
    },
  };
}

/** The bytes that the threads leave, as the kernel writes them. */
export function bytesLeft(threads: readonly Thread[]): Buffer {
  const out = Buffer.alloc(threads.length * LEFT);
  for (const [i, t] of threads.entries()) {
    const start = i * LEFT,
      wide = start + COUNTS.r * 4,
      floats = wide + COUNTS.d * 8;
    for (const [k, value] of t.r.entries()) out.writeUInt32LE(Number(value), start + k * 4);
    for (const [k, value] of t.d.entries()) out.writeBigUInt64LE(value, wide + k * 8);
    for (const [k, value] of t.f.entries()) out.writeUInt32LE(Number(value), floats + k * 4);
  }
  return out;
}
