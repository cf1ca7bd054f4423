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

const hex = '[\\da-fA-F]';
const byte = `x${hex}{2}|[0-7]{3}`;
/** Escapes as strconv.Quote writes them. */
const escaped = `\\\\(?:[abfnrtv\\\\"']|${byte}|u${hex}{4}|U00(?:0${hex}|10)${hex}{4})`;
const quoted = `[^"\\\\]*(?:${escaped}[^"\\\\]*)*`;
const bareKey = '[!#-<>-\\uffff]';
const pair = new RegExp(
  `(?:"(?!")(${quoted})"|(${bareKey}+))=(?:"(${quoted})"|([!#-\\uffff]*))(?: +|$)`,
  'y',
);
const half = `\\\\(?:x${hex}?|u${hex}{0,3}|U${hex}{0,7}|[0-7]{1,2})?`;
const cutPair = new RegExp(`(?:(?:"(?!")${quoted}"|${bareKey}+)=)?"${quoted}(?:${half})?$`, 'y');

/** Reads one line (without its end). Time is linear in the line. */
export function parseLogfmt(line: string): Logfmt {
  const fields = new Map<string, string>();
  const repeated = new Set<string>();
  let at = line.search(/[^ ]/);
  if (at === -1) return { kind: 'plain' };
  while (at < line.length) {
    pair.lastIndex = at;
    cutPair.lastIndex = at;
    const match = pair.exec(line);
    if (match === null) return cutPair.test(line) ? { kind: 'cut', fields } : { kind: 'plain' };
    const key = unquoted(match[1]) ?? match[2] ?? '';
    if (fields.has(key)) repeated.add(key);
    else if (fields.size < maxFields) fields.set(key, unquoted(match[3]) ?? match[4] ?? '');
    else return { kind: 'plain' };
    at = pair.lastIndex;
  }
  return { kind: 'record', fields, repeated };
}

const letters: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};
/** A run of bytes together: neighbours may form one UTF-8 character. */
const escapes = new RegExp(`((?:\\\\(?:${byte}))+)|\\\\(?:u(${hex}{4})|U(${hex}{8})|(.))`, 'g');

function unquoted(text: string | undefined): string | undefined {
  return text?.replace(escapes, (_, run?: string, short?: string, long?: string, letter = '') => {
    const code = short ?? long;
    if (code !== undefined) return String.fromCodePoint(Number.parseInt(code, 16));
    if (run === undefined) return letters[letter] ?? letter;
    const bytes = run.split('\\').slice(1);
    return Buffer.from(
      bytes.map((one) => (one.startsWith('x') ? Number.parseInt(one.slice(1), 16) : Number.parseInt(one, 8))),
    ).toString('utf8');
  });
}
