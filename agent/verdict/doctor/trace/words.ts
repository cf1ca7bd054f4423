/** The words for what a trace shows: for evidence and for the list that a person reads. Pure. */
import path from 'node:path';
import type { Binding, TracedProcess } from './bindings.js';
import type { LiveProcess } from './traced.js';

/** The processes that did the same, at least one. */
export type Together = readonly [TracedProcess, ...TracedProcess[]];

/** `ollama (process 612)`, `llama-server (8 processes)`. */
export function processNames(processes: readonly Pick<TracedProcess, 'pid' | 'program'>[]): string {
  const program = processes[0]?.program ?? null;
  const numbers = processes.map(({ pid }) => pid).join(', ');
  // Few numbers say which; many only how many.
  const which =
    processes.length > 4
      ? `${processes.length} processes`
      : `process${processes.length === 1 ? '' : 'es'} ${numbers}`;
  return program === null ? `an unknown program (${which})` : `${path.basename(program)} (${which})`;
}

/** Processes of one program that are alike in `key`, in the order of the first of each. */
export function together(
  processes: readonly TracedProcess[],
  key: (one: TracedProcess) => string,
): readonly Together[] {
  const groups = new Map<string, [TracedProcess, ...TracedProcess[]]>();
  for (const one of processes) {
    const name = JSON.stringify([one.program, key(one)]);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [one]);
    else group.push(one);
  }
  return [...groups.values()];
}

/** `11 symbols of libggml-cuda.so -> vgpu-agent's libcuda.so.1`. */
export function bindingText(binding: Binding): string {
  const { symbols, example } = binding;
  const what = symbols === 1 ? `the symbol ${example}` : `${symbols} symbols`;
  return `${what} ${referrer(binding)} -> ${libraryText(binding)}`;
}

function referrer({ way, by }: Binding): string {
  const name = by === null ? 'an unknown object' : by === 'program' ? 'the program' : path.basename(by);
  switch (way) {
    case 'linked':
      return `of ${name}`;
    case 'dlsym':
      return `that ${name} looked up`;
    case 'driver':
      return 'by cuGetProcAddress';
  }
}

/** Ours in short: where it lies is known. */
export function libraryText({ library, vendor }: Pick<Binding, 'library' | 'vendor'>): string {
  switch (vendor) {
    case 'vgpu':
      return `vgpu-agent's ${path.basename(library)}`;
    case 'nvidia':
      return `${library}, NVIDIA's`;
    case 'foreign':
      return `${library}, neither of vgpu-agent nor of NVIDIA`;
    case null:
      return `${library}, which cannot be read`;
  }
}

/** For a process without bindings. Lookups that bypass the tracer are not known. */
export function silence({ asked }: TracedProcess, all: readonly TracedProcess[]): string {
  if (asked) return 'called no function of a driver';
  return all.some(({ bypassed }) => bypassed.length > 0)
    ? 'opened no driver in the trace'
    : 'never opened libcuda';
}

export function deafText({ pid, program, deaf }: LiveProcess): string {
  return `${processNames([{ pid, program }])} is not traced: ${deaf ?? 'the reason is not known'}`;
}
