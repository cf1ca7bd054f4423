/**
 * Reads the .api files. Strict: anything it does not know is an error that names file, line and text.
 */
import type {
  Awaits,
  Carriage,
  EntryPoint,
  ErrorName,
  Parameter,
  ProcName,
  WireBody,
  WireField,
  WireType,
} from './model.js';

/** A description that cannot be read; the message names file and line. */
export class DescriptionError extends Error {
  constructor(file: string, line: number, message: string) {
    super(`${file}:${line}: ${message}`);
    this.name = 'DescriptionError';
  }
}

const WIRE_TYPES: readonly WireType[] = ['u64', 'i64', 'u32', 'i32', 'f32', 'f64'];

interface Logical {
  readonly line: number;
  readonly text: string;
}

/** Joins continuation lines (those that start with a space) and drops comments. */
function logicalLines(text: string): Logical[] {
  const out: { line: number; text: string }[] = [];
  for (const [index, raw] of text.split('\n').entries()) {
    if (raw.startsWith('#') || raw.trim() === '') continue;
    const last = out.at(-1);
    if (raw.startsWith(' ') && last !== undefined) last.text += ` ${raw.trim()}`;
    else out.push({ line: index + 1, text: raw.trimEnd() });
  }
  return out;
}

function parseParameters(text: string, fail: (message: string) => never): Parameter[] | undefined {
  if (text === 'unknown') return undefined;
  if (text.trim() === '') return [];
  return text.split(',').map((part) => {
    const match = /^\s*(\w+): (\**(?:const )?\w+)\s*$/.exec(part);
    if (match?.[1] === undefined || match[2] === undefined)
      return fail(`parameter "${part.trim()}" is not "name: type"`);
    return { name: match[1], type: match[2] };
  });
}

function parseFields(text: string, fail: (message: string) => never): WireField[] {
  if (text.trim() === '') return [];
  return text.split(',').map((part) => {
    const [name, type] = part.split(':').map((piece) => piece.trim());
    const wire = WIRE_TYPES.find((candidate) => candidate === type);
    if (name === undefined || !/^\w+$/.test(name) || wire === undefined) {
      return fail(`field "${part.trim()}" is not "name: ${WIRE_TYPES.join('|')}"`);
    }
    return { name, type: wire };
  });
}

function parseBody(word: string, text: string, fail: (message: string) => never): WireBody {
  const match = new RegExp(`\\b${word}\\(([^)]*)\\)(\\+bulk|\\+raw)?`).exec(text);
  if (match === null) return fail(`a carried call needs "${word}(...)"`);
  return {
    fields: parseFields(match[1] ?? '', fail),
    bulk: match[2] !== undefined,
    raw: match[2] === '+raw',
  };
}

function parseProc(text: string, fail: (message: string) => never): ProcName | undefined {
  if (text === '-') return undefined;
  const match = /^(\w+)@(\d+)(\+ptsz|\+ptds)?$/.exec(text);
  if (match?.[1] === undefined) return fail(`"${text}" is not NAME@VERSION or "-"`);
  return { base: match[1], version: Number(match[2]), perThread: match[3] !== undefined };
}

/** One handler at the host, whatever its device is. */
function isCommon(rest: string): boolean {
  return / common$/.test(rest);
}

/** NOT_READY asks the guest to ask again, so only a call with an answer can have it. */
function parseAwaits(rest: string): Awaits {
  const word = / awaits=(own|all)$/.exec(rest)?.[1];
  return word === 'own' || word === 'all' ? word : 'nothing';
}

/** Checks the words behind the fields of a carried call. */
function checkWords(rest: string, answered: boolean, fail: (message: string) => never): void {
  const words = rest
    .slice(rest.lastIndexOf(')') + 1)
    .replace(/^\+(?:bulk|raw)\b/, '')
    .trim();
  if (words === '' || words === 'common') return;
  if (!/^awaits=(?:own|all)$/.test(words)) fail(`"${words}" is not "common", "awaits=own" or "awaits=all"`);
  if (!answered) fail('a call without an answer cannot be told to ask again');
}

function parseCarriage(
  how: string,
  symbol: string,
  rest: string,
  fail: (message: string) => never,
): Carriage {
  switch (how) {
    case 'refused':
    case 'void':
    case 'local':
    case 'query':
    case 'none':
      return { kind: how };
    case 'data':
      if (!/^\d+$/.test(rest)) return fail('"data" needs a number of bytes');
      return { kind: 'data', bytes: Number(rest) };
    case 'forward': {
      const target = symbol.replace(/_pt(?:ds|sz)$/, '');
      if (target === symbol) return fail('only _ptds and _ptsz symbols can be forwarded');
      return { kind: 'forward', target };
    }
    case 'oneway':
    case 'posts':
      checkWords(rest, false, fail);
      return { kind: 'oneway', send: parseBody('send', rest, fail), common: isCommon(rest) };
    case 'waiting':
    case 'asks':
    case 'auto':
      checkWords(rest, true, fail);
      return {
        kind: 'waiting',
        send: parseBody('send', rest, fail),
        reply: parseBody('reply', rest, fail),
        auto: how === 'auto',
        common: isCommon(rest),
        awaits: parseAwaits(rest),
      };
    default:
      return fail(`"${how}" is not a way to carry a call`);
  }
}

/** Reads one .api file; throws DescriptionError. */
export function parseDescription(file: string, text: string): EntryPoint[] {
  const entries: EntryPoint[] = [];
  const numbers = new Map<number, string>();
  const symbols = new Set<string>();
  for (const { line, text: logical } of logicalLines(text)) {
    const fail = (message: string): never => {
      throw new DescriptionError(file, line, `${message} in "${logical}"`);
    };
    const match = /^(\d{4}) (\w+) (\S+) (\w+) (?:(\d+)|\(([^)]*)\)(.*))$/.exec(logical);
    if (match === null) return fail('not "NUMBER SYMBOL NAME@VERSION HOW (PARAMETERS)"');
    const [, digits = '', symbol = '', proc = '', how = '', bytes, parameters, rest = ''] = match;
    const number = Number(digits);
    const other = numbers.get(number);
    if (other !== undefined) fail(`number ${number} is already that of ${other}`);
    if (symbols.has(symbol)) fail(`${symbol} is given twice`);
    if (number === 0) fail('0 is not a number for an entry point');
    numbers.set(number, symbol);
    symbols.add(symbol);
    entries.push({
      number,
      symbol,
      proc: parseProc(proc, fail),
      ...(how === 'posts' || how === 'asks' ? { own: true as const } : {}),
      carriage: parseCarriage(how, symbol, bytes ?? rest.trim(), fail),
      parameters: bytes === undefined ? parseParameters(parameters ?? '', fail) : undefined,
    });
  }
  return entries;
}

/** Reads errors.list; throws DescriptionError. */
export function parseErrors(file: string, text: string): ErrorName[] {
  return logicalLines(text).map(({ line, text: logical }) => {
    const match = /^(\d+) (\w+) (.+)$/.exec(logical);
    if (match?.[2] === undefined || match[3] === undefined) {
      throw new DescriptionError(file, line, `not "NUMBER NAME TEXT" in "${logical}"`);
    }
    return { value: Number(match[1]), name: match[2], text: match[3] };
  });
}
