/**
 * logfmt as Go's slog.TextHandler writes it: `key=value` pairs parted by a
 * space; keys and values quoted with strconv.Quote where they hold a space, a
 * quote, `=` or what cannot be printed.
 *
 * Strict on purpose. A verdict hangs on these lines, and a line that only looks
 * like a record (two lines run into one, a quoted prompt, a line cut short)
 * must not be taken for one: slog never writes a bare word, never leaves a
 * quote open, never lets text follow a closing quote.
 */

export type Logfmt =
  | {
      readonly kind: 'record';
      readonly fields: ReadonlyMap<string, string>;
      /** Keys that came more than once: their value is not to be trusted. */
      readonly repeated: ReadonlySet<string>;
    }
  /** Began like a record, but ended inside a quote or an escape: it was cut. */
  | { readonly kind: 'cut'; readonly fields: ReadonlyMap<string, string> }
  | { readonly kind: 'plain' };

const maxFields = 256;

type Piece = { readonly text: string; readonly next: number } | 'cut' | 'plain';

/** Reads one line (without its end). Time is linear in the line. */
export function parseLogfmt(line: string): Logfmt {
  const fields = new Map<string, string>();
  const repeated = new Set<string>();
  let at = skipSpaces(line, 0);
  if (at === line.length) return { kind: 'plain' };
  while (at < line.length) {
    const key = line[at] === '"' ? readQuoted(line, at) : readBare(line, at, true);
    if (key === 'cut') return { kind: 'cut', fields };
    if (key === 'plain' || key.text === '' || line[key.next] !== '=') return { kind: 'plain' };
    const start = key.next + 1;
    const value = line[start] === '"' ? readQuoted(line, start) : readBare(line, start, false);
    if (value === 'cut') return { kind: 'cut', fields };
    if (value === 'plain') return { kind: 'plain' };
    if (value.next < line.length && line[value.next] !== ' ') return { kind: 'plain' };
    if (fields.has(key.text)) repeated.add(key.text);
    else if (fields.size < maxFields) fields.set(key.text, value.text);
    else return { kind: 'plain' };
    at = skipSpaces(line, value.next);
  }
  return { kind: 'record', fields, repeated };
}

function skipSpaces(line: string, from: number): number {
  let at = from;
  while (line[at] === ' ') at += 1;
  return at;
}

/** A word without quotes; a key ends at `=` as well. */
function readBare(line: string, from: number, key: boolean): Piece {
  let at = from;
  for (; at < line.length; at += 1) {
    const character = line[at] ?? '';
    if (character === ' ' || (key && character === '=')) break;
    if (character === '"' || character < ' ') return 'plain';
  }
  return { text: line.slice(from, at), next: at };
}

const simpleEscapes: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  '\\': '\\',
  '"': '"',
  "'": "'",
};
const hexDigits: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

/** A quoted word: `from` is at its opening quote. Escapes as strconv.Quote writes them. */
function readQuoted(line: string, from: number): Piece {
  const parts: string[] = [];
  /** Bytes of `\xNN` and octal escapes: neighbours may form one UTF-8 character. */
  let bytes: number[] = [];
  const flush = (): void => {
    if (bytes.length > 0) parts.push(Buffer.from(bytes).toString('utf8'));
    bytes = [];
  };
  let at = from + 1;
  for (;;) {
    const character = line[at];
    if (character === undefined) return 'cut';
    if (character === '"') {
      flush();
      return { text: parts.join(''), next: at + 1 };
    }
    if (character !== '\\') {
      flush();
      const end = nextSpecial(line, at);
      parts.push(line.slice(at, end));
      at = end;
      continue;
    }
    const letter = line[at + 1];
    if (letter === undefined) return 'cut';
    const simple = simpleEscapes[letter];
    const digits = hexDigits[letter];
    if (simple !== undefined) {
      flush();
      parts.push(simple);
      at += 2;
    } else if (digits !== undefined) {
      const hex = line.slice(at + 2, at + 2 + digits);
      if (!/^[0-9a-fA-F]*$/.test(hex)) return 'plain';
      if (hex.length < digits) return 'cut';
      const code = Number.parseInt(hex, 16);
      if (code > 0x10ffff) return 'plain';
      if (letter === 'x') bytes.push(code);
      else {
        flush();
        parts.push(String.fromCodePoint(code));
      }
      at += 2 + digits;
    } else if (letter >= '0' && letter <= '7') {
      const octal = line.slice(at + 1, at + 4);
      if (!/^[0-7]+$/.test(octal)) return 'plain';
      bytes.push(Number.parseInt(octal, 8) & 0xff);
      at += 4;
    } else {
      return 'plain';
    }
  }
}

function nextSpecial(line: string, from: number): number {
  let at = from;
  while (at < line.length && line[at] !== '"' && line[at] !== '\\') at += 1;
  return at;
}
