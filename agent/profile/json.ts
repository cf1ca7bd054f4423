/**
 * JSON with the place of every value. `JSON.parse` loses where a value stood, accepts a repeated key, and reports the
 * place of an error differently in each release of V8; a person who wrote a profile needs line and column.
 */
import { createScanner, type JSONVisitor, printParseErrorCode, visit } from 'jsonc-parser';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** One-based. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

type JsonResult =
  | { readonly kind: 'ok'; readonly value: Json }
  | { readonly kind: 'bad'; readonly message: string; readonly place: Place };

/** One part of a JSON pointer, escaped (RFC 6901). */
export function pointerPart(part: string | number): string {
  return String(part).replaceAll('~', '~0').replaceAll('/', '~1');
}

/** The tokens that the parser expected, by the name of its error. */
const expected: ReadonlyMap<string, string> = new Map([
  ['ValueExpected', 'a value'],
  ['InvalidSymbol', 'a value'],
  ['ColonExpected', '":"'],
  ['CommaExpected', '"," or a closing bracket'],
  ['PropertyNameExpected', 'a key in double quotes'],
  ['CloseBraceExpected', '"}"'],
  ['CloseBracketExpected', '"]"'],
  ['EndOfFileExpected', 'the end of the file'],
]);
/** Errors inside of a string, a number or a comment; the place is where that begins. */
const malformed: ReadonlyMap<string, string> = new Map([
  ['InvalidNumberFormat', 'this is not a number of JSON'],
  ['UnexpectedEndOfNumber', 'this number lacks a digit'],
  ['InvalidCommentToken', 'JSON has no comments'],
  ['UnexpectedEndOfComment', 'JSON has no comments'],
  ['UnexpectedEndOfString', 'this string has no closing double quote'],
  ['InvalidUnicode', 'this string has a \\u without four hexadecimal digits'],
  ['InvalidEscapeCharacter', 'this string has an escape that JSON does not have'],
  ['InvalidCharacter', 'this string has a control character'],
]);
const maxDepth = 64;

/** Parses `text` strictly (RFC 8259): no comments, no trailing commas, no repeated keys, 64 levels at most. */
export function parseJson(text: string): JsonResult {
  const source = withoutMark(text);
  const value = readPlain(source);
  if (value !== undefined) return { kind: 'ok', value };
  const tooDeep = placeBeyondDepth(source);
  if (tooDeep !== null) return { kind: 'bad', message: `more than ${maxDepth} levels`, place: tooDeep };
  const [first] = walk(source).mistakes;
  return first === undefined ? { kind: 'ok', value: JSON.parse(source) } : { kind: 'bad', ...first };
}

/** Place of every value in `text`, which parseJson has read, by JSON pointer (`/log/devices/0`); the root is ``. */
export function placesIn(text: string): ReadonlyMap<string, Place> {
  return walk(withoutMark(text)).places;
}

const withoutMark = (text: string): string => (text.startsWith('\uFEFF') ? text.slice(1) : text);

/** By JSON.parse, which takes a tenth of the visitor's time; undefined where the visitor has to find a mistake. */
function readPlain(source: string): Json | undefined {
  let value: Json;
  try {
    value = JSON.parse(source);
  } catch {
    return undefined;
  }
  let given = 0;
  for (const [, colon] of source.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)) if (colon !== undefined) given += 1;
  return given === keysIn(value, 0) ? value : undefined;
}

/** How many keys all objects in `value` have; NaN where it has too many levels. */
function keysIn(value: Json, depth: number): number {
  if (typeof value !== 'object' || value === null) return 0;
  if (depth === maxDepth) return Number.NaN;
  const inner: readonly Json[] = Object.values(value);
  const own = Array.isArray(value) ? 0 : inner.length;
  return inner.reduce<number>((sum, one) => sum + keysIn(one, depth + 1), own);
}

interface Walked {
  readonly places: ReadonlyMap<string, Place>;
  readonly mistakes: readonly { readonly message: string; readonly place: Place }[];
}

function walk(source: string): Walked {
  const places = new Map<string, Place>();
  const keys = new Set<string>();
  const mistakes: { readonly message: string; readonly place: Place }[] = [];
  const found = (message: string, line: number, character: number): void => {
    mistakes.push({ message, place: { line: line + 1, column: character + 1 } });
  };
  const value: JSONVisitor['onObjectBegin'] = (_, __, line, character, pathOf) => {
    places.set(
      pathOf()
        .map((part) => `/${pointerPart(part)}`)
        .join(''),
      { line: line + 1, column: character + 1 },
    );
  };
  visit(
    source,
    {
      onObjectBegin: value,
      onArrayBegin: value,
      onLiteralValue: (_, offset, length, line, character, pathOf) =>
        value(offset, length, line, character, pathOf),
      onObjectProperty: (key, _, __, line, character, pathOf) => {
        const pointer = JSON.stringify([...pathOf(), key]);
        if (keys.has(pointer)) found(`the key ${JSON.stringify(key)} is given twice`, line, character);
        keys.add(pointer);
      },
      onError: (code, offset, _, line, character) => {
        const name = printParseErrorCode(code);
        const wanted = expected.get(name);
        const there =
          source[offset] === undefined ? 'the file ends' : `there is ${JSON.stringify(source[offset])}`;
        found(
          wanted === undefined ? (malformed.get(name) ?? name) : `${wanted} was expected, but ${there}`,
          line,
          character,
        );
      },
    },
    { disallowComments: true, allowEmptyContent: false, allowTrailingComma: false },
  );
  return { places, mistakes };
}

/** The parser calls itself for each level; the scanner does not. Null where no level is too deep. */
function placeBeyondDepth(source: string): Place | null {
  const scanner = createScanner(source, true);
  let depth = 0;
  for (scanner.scan(); scanner.getTokenOffset() < source.length; scanner.scan()) {
    // A token that begins with a bracket is one: a string begins with its quote.
    const first = source[scanner.getTokenOffset()];
    if (first === '{' || first === '[') depth += 1;
    if (first === '}' || first === ']') depth -= 1;
    if (depth > maxDepth) {
      return { line: scanner.getTokenStartLine() + 1, column: scanner.getTokenStartCharacter() + 1 };
    }
  }
  return null;
}
