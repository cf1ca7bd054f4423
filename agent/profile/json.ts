/**
 * JSON with the place of every value. `JSON.parse` loses where a value stood, accepts a repeated key, and reports the
 * place of an error differently in each release of V8; a person who wrote a profile needs line and column.
 */
import { type JSONVisitor, printParseErrorCode, visit } from 'jsonc-parser';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

type JsonResult =
  | { readonly kind: 'ok'; readonly value: Json }
  /** `line 3, column 5: not JSON: comma expected`. */
  | { readonly kind: 'bad'; readonly problem: string };

/** One part of a JSON pointer, escaped (RFC 6901). */
export function pointerPart(part: string | number): string {
  return String(part).replaceAll('~', '~0').replaceAll('/', '~1');
}

/** Parses `text` strictly (RFC 8259): no comments, no trailing commas, no repeated keys. */
export function parseJson(text: string): JsonResult {
  const source = withoutMark(text);
  try {
    const value = readPlain(source);
    if (value !== undefined) return { kind: 'ok', value };
    const [first] = walk(source).mistakes;
    return first === undefined ? { kind: 'ok', value: JSON.parse(source) } : { kind: 'bad', problem: first };
  } catch (error) {
    // Both readers call themselves for each level of the value.
    if (!(error instanceof RangeError)) throw error;
    return { kind: 'bad', problem: 'not JSON: too many levels' };
  }
}

/** Line of every value in `text`, which parseJson has read, by JSON pointer (`/log/devices/0`); the root is ``. */
export function linesIn(text: string): ReadonlyMap<string, number> {
  return walk(withoutMark(text)).lines;
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
  const given = [...source.matchAll(/"(?:[^"\\]|\\.)*"(\s*:)?/g)].filter(([, colon]) => colon !== undefined);
  return given.length === keysIn(value) ? value : undefined;
}

function keysIn(value: Json): number {
  if (typeof value !== 'object' || value === null) return 0;
  const inner: readonly Json[] = Object.values(value);
  return inner.reduce<number>((sum, one) => sum + keysIn(one), Array.isArray(value) ? 0 : inner.length);
}

function walk(source: string) {
  const lines = new Map<string, number>();
  const keys = new Set<string>();
  const mistakes: string[] = [];
  const found = (message: string, line: number, character: number): void => {
    mistakes.push(`line ${line + 1}, column ${character + 1}: not JSON: ${message}`);
  };
  const value: JSONVisitor['onObjectBegin'] = (_, __, line, ___, pathOf) => {
    const pointer = pathOf().map((part) => `/${pointerPart(part)}`);
    lines.set(pointer.join(''), line + 1);
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
      // `CommaExpected`: comma expected.
      onError: (code, _, __, line, character) => {
        const words = printParseErrorCode(code).replace(/(?<=[a-z])[A-Z]/g, (letter) => ` ${letter}`);
        found(words.toLowerCase(), line, character);
      },
    },
    { disallowComments: true, allowEmptyContent: false, allowTrailingComma: false },
  );
  return { lines, mistakes };
}
