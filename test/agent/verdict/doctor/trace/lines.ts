/** Lines as the tracer writes them, and traced starts made of them. */
import type { LibraryVendor } from '../../../../../agent/contracts/facts.js';
import {
  type LiveProcess,
  readTrace,
  type TracedProcess,
  type TracedStart,
  tracedProcesses,
} from '../../../../../agent/verdict/doctor/trace.js';

export const ours = '/opt/vgpu/current/libcuda.so.1';
export const theirs = '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01';
export const strangers = '/srv/libcuda.so.1';
const vendors = new Map<string, LibraryVendor>([
  [ours, 'vgpu'],
  [theirs, 'nvidia'],
  [strangers, 'foreign'],
]);

export function line(pid: number, rest: string): string {
  return `time=12.345678 pid=${pid} ${rest}\n`;
}

export function gathered(
  text: string,
  live: readonly LiveProcess[] = [],
): { readonly processes: readonly TracedProcess[]; readonly more: number } {
  const read = readTrace(text);
  return { processes: tracedProcesses(read, vendors, live), more: read.more };
}

export function traced(text: string, changes: Partial<TracedStart> = {}): TracedStart {
  const live = changes.live ?? [];
  return {
    kind: 'traced',
    ...gathered(text, live),
    live,
    lines: readTrace(text).lines,
    strange: 0,
    cut: false,
    complete: true,
    ...changes,
  };
}

export const program = line(7, 'event=process program=/usr/local/lib/ollama/llama-server');
export const toOurs = line(
  7,
  `event=binds object=/l/libggml-cuda.so symbol=cuInit how=direct library=${ours}`,
);
