/** Random programs as trees, and as PTX. */
import { at } from './random_operations.js';

/** Registers of a thread: %r0.. (32 bits), %d0.. (64 bits), %f0.. (bits of floats), %p0... */
export const COUNTS = { r: 8, d: 4, f: 4, p: 4 } as const;
/** Bytes that a thread leaves: all of its registers but predicates. */
export const LEFT = COUNTS.r * 4 + COUNTS.d * 8 + COUNTS.f * 4;

export interface Thread {
  readonly r: bigint[];
  readonly d: bigint[];
  readonly f: bigint[];
  readonly p: boolean[];
  /** Elements of memory that only this thread accesses. */
  readonly m: bigint[];
}

/** One instruction: its text, and what it does to the registers of a thread. */
export interface Step {
  readonly kind: 'step';
  readonly text: string;
  readonly guard?: { readonly p: number; readonly not: boolean };
  apply(t: Thread): void;
}
export type Statement =
  | Step
  /** Several lines that do something to the registers of a thread, without a guard. */
  | { readonly kind: 'block'; readonly text: string[]; apply(t: Thread): void }
  | { readonly kind: 'if'; readonly p: number; readonly yes: Statement[]; readonly no: Statement[] }
  | {
      readonly kind: 'loop';
      readonly id: number;
      readonly times: (t: Thread) => number;
      readonly text: string[];
      readonly body: Statement[];
      readonly out?: number;
    }
  /** All threads of a block together, which are not parted here. */
  | { readonly kind: 'together'; readonly text: string[]; apply(threads: readonly Thread[]): void };

export interface Program {
  readonly text: string;
  /** The registers of all threads of a block afterwards. */
  run(threads: number, block: number): readonly Thread[];
}

/** A kernel k(out) that begins with registers of its own for each thread and leaves all of them. */
export function kernelText(
  body: readonly Statement[],
  first: readonly number[],
  loops: number,
  memory: { readonly variable: string; readonly setup: readonly string[] },
): string {
  let labels = 0;
  const write = (list: readonly Statement[]): string[] => list.flatMap(lines);
  const lines = (s: Statement): string[] => {
    switch (s.kind) {
      case 'step':
        return [s.guard === undefined ? s.text : `@${s.guard.not ? '!' : ''}%p${s.guard.p} ${s.text}`];
      case 'block':
        return s.text;
      case 'together':
        return s.text;
      case 'if': {
        const label = labels++;
        return [
          `@!%p${s.p} bra E${label};`,
          ...write(s.yes),
          ...(s.no.length > 0 ? [`bra F${label};`] : []),
          `E${label}:`,
          ...write(s.no),
          ...(s.no.length > 0 ? [`F${label}:`] : []),
        ];
      }
      case 'loop':
        return [
          ...s.text,
          `L${s.id}:`,
          ...write(s.body),
          ...(s.out === undefined ? [] : [`@%p${s.out} bra X${s.id};`]),
          `sub.u32 %n${s.id}, %n${s.id}, 1;`,
          `setp.ne.u32 %q, %n${s.id}, 0;`,
          `@%q bra L${s.id};`,
          // what follows a loop has a label only where it needs one
          ...(s.out === undefined ? [] : [`X${s.id}:`]),
        ];
    }
  };

  return `.version 7.0
.target sm_80
.address_size 64
${memory.variable}
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<${COUNTS.r}>, %n<${loops + 1}>, %t0, %tid, %ntid, %mine, %base, %all, %lane, %m0, %m1;
  .reg .b64 %d<${COUNTS.d}>, %to, %skip;
  .reg .f32 %f<${COUNTS.f}>;
  .reg .pred %p<${COUNTS.p}>, %q, %first;
  .shared .align 4 .b8 s[4096];
  mov.u32 %tid, %tid.x;
  mov.u32 %ntid, %ntid.x;
  mov.u32 %lane, %laneid;
  mov.u32 %base, s;
  mad.lo.u32 %mine, %tid, 4, %base;
  setp.eq.u32 %first, %tid, 0;
  mov.u32 %all, %ctaid.x;
  mad.lo.u32 %all, %all, %ntid, %tid;
${memory.setup.map((line) => `  ${line}`).join('\n')}
${first
  .map((value, i) => (i < COUNTS.r ? `  mad.lo.u32 %r${i}, %all, ${value}, ${value ^ i};` : ''))
  .filter((line) => line !== '')
  .join('\n')}
${Array.from({ length: COUNTS.d }, (_, i) => `  mul.wide.u32 %d${i}, %r${i}, ${at(first, COUNTS.r + i)};`).join('\n')}
${Array.from({ length: COUNTS.f }, (_, i) => `  mov.b32 %f${i}, %r${i + 2};`).join('\n')}
${Array.from({ length: COUNTS.p }, (_, i) => `  setp.lt.u32 %p${i}, %r${i}, %r${i + 1};`).join('\n')}
${write(body)
  .map((line) => `  ${line}`)
  .join('\n')}
  ld.param.u64 %to, [out];
  mul.wide.u32 %skip, %all, ${LEFT};
  add.u64 %to, %to, %skip;
${Array.from({ length: COUNTS.r }, (_, i) => `  st.global.u32 [%to+${i * 4}], %r${i};`).join('\n')}
${Array.from({ length: COUNTS.d }, (_, i) => `  st.global.u64 [%to+${COUNTS.r * 4 + i * 8}], %d${i};`).join('\n')}
${Array.from({ length: COUNTS.f }, (_, i) => `  st.global.f32 [%to+${COUNTS.r * 4 + COUNTS.d * 8 + i * 4}], %f${i};`).join('\n')}
  ret;
}
`;
}
