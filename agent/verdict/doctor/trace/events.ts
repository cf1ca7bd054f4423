/** Lines of libvgpu-trace.so (docs/reference/trace.md). Any process of the service may write what it likes there. */
import { parseLogfmt } from '../../log/logfmt.js';

export type TraceEvent = { readonly pid: number } & (
  | { readonly kind: 'process'; readonly program: string | null }
  | { readonly kind: 'object' }
  | { readonly kind: 'dlopen'; readonly file: string }
  /** `library`: where it was found; null: nowhere, or not known. */
  | {
      readonly kind: 'dlsym';
      readonly caller: string | null;
      readonly symbol: string;
      readonly library: string | null;
    }
  | { readonly kind: 'cuGetProcAddress'; readonly symbol: string; readonly library: string | null }
  /** `library` is null while it is not bound. */
  | {
      readonly kind: 'binds';
      readonly object: string;
      readonly symbol: string;
      readonly library: string | null;
    }
  | { readonly kind: 'bypassed'; readonly object: string }
);

export interface ReadTrace {
  readonly events: readonly TraceEvent[];
  /** Lines that the tracer did not write in this form: truncated by a full disk, or written by another program. */
  readonly strange: number;
}

/** The tracer's lines are shorter (VGPU_TRACE_LINE). */
const longestLine = 2048;
const mostEvents = 300_000;

/** Time and memory are linear in the text; a line that is not whole is counted and passed over. */
export function readTrace(text: string): ReadTrace {
  const events: TraceEvent[] = [];
  let strange = 0;
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n', at);
    const stop = end === -1 ? text.length : end;
    const event = end === -1 || stop - at > longestLine ? null : eventOf(text.slice(at, stop));
    if (event === null || events.length >= mostEvents) strange += 1;
    else events.push(event);
    at = stop + 1;
  }
  return { events, strange };
}

function eventOf(line: string): TraceEvent | null {
  const read = parseLogfmt(line);
  if (read.kind !== 'record' || read.repeated.size > 0) return null;
  const { fields } = read;
  const word = (name: string): string | null => {
    const value = fields.get(name);
    return value === undefined || value === '-' ? null : value;
  };
  const number = word('pid') ?? '';
  if (!/^[1-9]\d{0,8}$/.test(number) || !/^\d+\.\d{6}$/.test(word('time') ?? '')) return null;
  const pid = Number(number);
  const symbol = word('symbol');
  const object = word('object');
  const file = word('file');
  const library = word('library');
  switch (word('event')) {
    case 'process':
      return { pid, kind: 'process', program: word('program') };
    case 'object':
      return { pid, kind: 'object' };
    case 'dlopen':
      return file === null ? null : { pid, kind: 'dlopen', file };
    case 'dlsym':
      return symbol === null ? null : { pid, kind: 'dlsym', caller: word('caller'), symbol, library };
    case 'cuGetProcAddress':
      return symbol === null ? null : { pid, kind: 'cuGetProcAddress', symbol, library };
    case 'binds':
      return object === null || symbol === null ? null : { pid, kind: 'binds', object, symbol, library };
    case 'bypassed':
      return object === null ? null : { pid, kind: 'bypassed', object };
    default:
      return null;
  }
}
