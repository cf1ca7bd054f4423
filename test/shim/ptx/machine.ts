/**
 * The PTX machine by itself: build/shim/programs/ptx_run, driven by lines, with buffers as files between.
 */
import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { builtFile } from '../shim_host.js';

export interface Launch {
  readonly kernel: string;
  readonly grid?: readonly number[];
  readonly block: readonly number[];
  readonly shared?: number;
  /** `b1` is the first buffer; `u32:5`, `f32:0.5`, ... see ptx_run.c. */
  readonly args: readonly string[];
}

export interface Job {
  /** PTX text, or the path of a file. */
  readonly ptx: { readonly text: string } | { readonly file: string };
  /** The device, 61 is 6.1. Default: 90. */
  readonly device?: number;
  /** Kernels are decoded when they are first launched. */
  readonly lazy?: boolean;
  /** Bits of PTX_ANALYSE_*: 0 is the plain way. Default: all. */
  readonly analyses?: number;
  /** Whether kernels are compiled; only where they can be (compiled.ts). Default: PTX_COMPILE of the environment. */
  readonly compile?: 'never' | 'auto' | 'always' | 'check';
  /** Bytes of each buffer, or its size (zeros); `fresh`: of so many bytes that were never written. */
  readonly buffers?: readonly (Buffer | number | { readonly fresh: number })[];
  /** Lines before the launches: `helpers 1`, `heap 65536`, ... */
  readonly before?: readonly string[];
  readonly launches?: readonly Launch[];
}

export interface Outcome {
  /** The line that answers the load. */
  readonly load: string;
  /** One line for each launch: "ok ..." or "error ...". */
  readonly launches: readonly string[];
  readonly printed: string;
  readonly kernels: readonly string[];
  readonly buffers: readonly Buffer[];
  /** Why kernels cannot run: "line 7: ...", a line each. */
  readonly refused: readonly string[];
  /** The findings of checks, a line each. */
  readonly findings: readonly string[];
  /**
   * Functions: compiled, refused, sent to the compiler. Regions: compared by `check`. Instructions: stepped, for which
   * compiled code called the interpreter. Registers: saved for lanes that waited elsewhere.
   */
  readonly compiled: {
    readonly functions: number;
    readonly refused: number;
    readonly asked: number;
    readonly compared: number;
    readonly stepped: number;
    readonly saved: number;
  };
}

/** `VGPU_PTX_CHECK=race,init`: every job runs under these checks, and a finding is an error. */
const CHECK = process.env['VGPU_PTX_CHECK'];

/** LLVM takes seconds for a function on a busy machine, and a job can have dozens of functions. */
const patience = (job: Job): number =>
  (job.compile ?? process.env['PTX_COMPILE'] ?? 'never') === 'never' ? 120_000 : 900_000;

/** `VGPU_PTX_COUNTS=FILE`: appends a line of counts for each job that can compile kernels. */
const COUNTS = process.env['VGPU_PTX_COUNTS'];

function compiledOf(stderr: string): Outcome['compiled'] {
  const [line, functions = 0, refused = 0, asked = 0, compared = 0, stepped = 0, saved = 0] =
    /^compiled (\d+) refused (\d+) asked (\d+) compared (\d+) stepped (\d+) saved (\d+).*/m.exec(stderr) ??
    [];
  if (COUNTS !== undefined && line !== undefined) appendFileSync(COUNTS, `${line}\n`);
  return {
    functions: Number(functions),
    refused: Number(refused),
    asked: Number(asked),
    compared: Number(compared),
    stepped: Number(stepped),
    saved: Number(saved),
  };
}

/** Runs all of a job in one process. Throws when the process does not end by itself, whatever kernels do. */
export function runPtx(job: Job): Outcome {
  const scratch = mkdtempSync(path.join(os.tmpdir(), 'ptx-'));
  try {
    const file = (name: string): string => path.join(scratch, name);
    if ('text' in job.ptx) writeFileSync(file('module.ptx'), job.ptx.text);
    const module = 'file' in job.ptx ? job.ptx.file : file('module.ptx');
    const lines = [`module ${module} ${job.device ?? 90}${job.lazy === true ? ' lazy' : ''}`];
    (job.buffers ?? []).forEach((buffer, i) => {
      if (typeof buffer === 'number') {
        lines.push(`buffer ${buffer}`);
      } else if ('fresh' in buffer) {
        lines.push(`fresh ${buffer.fresh}`);
      } else {
        writeFileSync(file(`in${i}`), buffer);
        lines.push(`buffer ${buffer.length} ${file(`in${i}`)}`);
      }
    });
    const before = [...(job.before ?? []), ...(CHECK === undefined ? [] : [`check ${CHECK}`])];
    lines.push(...before);
    for (const launch of job.launches ?? []) {
      const [gx = 1, gy = 1, gz = 1] = launch.grid ?? [];
      const [bx = 1, by = 1, bz = 1] = launch.block;
      lines.push(
        `launch ${launch.kernel} ${gx} ${gy} ${gz} ${bx} ${by} ${bz} ${launch.shared ?? 0} : ${launch.args.join(' ')}`,
      );
    }
    const count = job.buffers?.length ?? 0;
    for (let i = 0; i < count; i++) lines.push(`write ${i + 1} ${file(`out${i}`)}`);
    const run = spawnSync(builtFile('programs/ptx_run'), [], {
      input: `${lines.join('\n')}\n`,
      encoding: 'utf8',
      env: {
        ...process.env,
        ...(job.analyses === undefined ? {} : { PTX_ANALYSES: `${job.analyses}` }),
        ...(job.compile === undefined ? {} : { PTX_COMPILE: job.compile }),
      },
      timeout: patience(job),
      maxBuffer: 1 << 28,
    });
    if (run.status !== 0) {
      throw new Error(
        `ptx_run ended with ${run.status ?? run.signal}: ${run.stderr}${run.stdout.slice(-500)}`,
      );
    }
    const out = run.stdout.split('\n').filter((line) => line !== '');
    const findings = out.filter((line) => line.startsWith('finding ')).map((line) => line.slice(8));
    if (CHECK !== undefined && findings.length > 0) throw new Error(findings.join('\n'));
    const answers = out.filter((line) => !/^(kernel|print|finding|refused) /.test(line));
    const first = 1 + count + before.length;
    return {
      load: answers[0] ?? '',
      launches: answers.slice(first, first + (job.launches?.length ?? 0)),
      printed: out
        .filter((line) => line.startsWith('print '))
        .map((line) => line.slice(6).replaceAll('\\n', '\n'))
        .join(''),
      kernels: out.filter((line) => line.startsWith('kernel ')).map((line) => line.slice(7)),
      refused: out.filter((line) => line.startsWith('refused ')).map((line) => line.slice(8)),
      buffers: Array.from({ length: count }, (_, i) => readFileSync(file(`out${i}`))),
      findings,
      compiled: compiledOf(run.stderr),
    };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Typed views of a buffer's bytes, and back. */
export const bytes = (array: ArrayBufferView): Buffer =>
  Buffer.from(array.buffer.slice(array.byteOffset, array.byteOffset + array.byteLength) as ArrayBuffer);
const whole = (buffer: Buffer): ArrayBuffer =>
  buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength) as ArrayBuffer;
export const f32 = (buffer: Buffer): Float32Array => new Float32Array(whole(buffer));
export const f64 = (buffer: Buffer): Float64Array => new Float64Array(whole(buffer));
export const i32 = (buffer: Buffer): Int32Array => new Int32Array(whole(buffer));
export const u32 = (buffer: Buffer): Uint32Array => new Uint32Array(whole(buffer));
export const i64 = (buffer: Buffer): BigInt64Array => new BigInt64Array(whole(buffer));
export const u64 = (buffer: Buffer): BigUint64Array => new BigUint64Array(whole(buffer));

/** A generator of numbers that are the same in every run. */
export function random(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}
