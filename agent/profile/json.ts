/**
 * JSON with places. `JSON.parse` loses where a value stood, says nothing of a
 * repeated key, and names the place of a mistake differently in every release
 * of V8; a person who wrote a profile needs line and column.
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** One-based. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

export type JsonResult =
  | {
      readonly kind: 'ok';
      readonly value: Json;
      /** Place of every value by JSON pointer (`/log/devices/0`), the root is ``. */
      readonly places: ReadonlyMap<string, Place>;
    }
  | { readonly kind: 'bad'; readonly message: string; readonly place: Place };

class Mistake extends Error {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

/** One part of a JSON pointer, escaped (RFC 6901). */
export function pointerPart(part: string | number): string {
  return String(part).replaceAll('~', '~0').replaceAll('/', '~1');
}

/** Parses `text` strictly (RFC 8259): no comments, no trailing commas, no repeated keys, 64 levels at most. */
export function parseJson(text: string): JsonResult {
  const offsets = new Map<string, number>();
  const source = text.startsWith('\uFEFF') ? text.slice(1) : text;
  try {
    const value = new Reader(source, offsets).document();
    const places = new Map<string, Place>();
    for (const [pointer, offset] of offsets) places.set(pointer, placeOf(source, offset));
    return { kind: 'ok', value, places };
  } catch (error) {
    if (error instanceof Mistake) {
      return { kind: 'bad', message: error.message, place: placeOf(source, error.offset) };
    }
    throw error;
  }
}

function placeOf(text: string, offset: number): Place {
  const before = text.slice(0, offset);
  const newline = before.lastIndexOf('\n');
  return { line: before.split('\n').length, column: offset - newline };
}

const escapes: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};
const maxDepth = 64;

class Reader {
  readonly #text: string;
  readonly #offsets: Map<string, number>;
  #at = 0;

  constructor(text: string, offsets: Map<string, number>) {
    this.#text = text;
    this.#offsets = offsets;
  }

  document(): Json {
    const value = this.#value('', 0);
    this.#space();
    if (this.#at < this.#text.length) throw this.#unexpected('the end of the file');
    return value;
  }

  #unexpected(wanted: string): Mistake {
    const found = this.#text[this.#at];
    const said = found === undefined ? 'the file ends' : `there is ${JSON.stringify(found)}`;
    return new Mistake(`${wanted} was expected, but ${said}`, this.#at);
  }

  #space(): void {
    while (/[ \t\r\n]/.test(this.#text[this.#at] ?? '')) this.#at += 1;
  }

  #value(pointer: string, depth: number): Json {
    this.#space();
    if (depth > maxDepth) throw new Mistake(`more than ${maxDepth} levels`, this.#at);
    this.#offsets.set(pointer, this.#at);
    const character = this.#text[this.#at];
    if (character === '{') return this.#object(pointer, depth);
    if (character === '[') return this.#array(pointer, depth);
    if (character === '"') return this.#string();
    const word = /^(?:true|false|null)\b/.exec(this.#text.slice(this.#at, this.#at + 6))?.[0];
    if (word !== undefined) {
      this.#at += word.length;
      return word === 'null' ? null : word === 'true';
    }
    const number = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/.exec(
      this.#text.slice(this.#at, this.#at + 64),
    )?.[0];
    if (number === undefined) throw this.#unexpected('a value');
    this.#at += number.length;
    return Number(number);
  }

  #object(pointer: string, depth: number): Json {
    const entries: [string, Json][] = [];
    const seen = new Set<string>();
    this.#at += 1;
    this.#space();
    if (this.#text[this.#at] === '}') {
      this.#at += 1;
      return {};
    }
    for (;;) {
      this.#space();
      if (this.#text[this.#at] !== '"') throw this.#unexpected('a key in double quotes');
      const keyOffset = this.#at;
      const key = this.#string();
      if (seen.has(key)) throw new Mistake(`the key ${JSON.stringify(key)} is given twice`, keyOffset);
      seen.add(key);
      this.#space();
      if (this.#text[this.#at] !== ':') throw this.#unexpected('":"');
      this.#at += 1;
      entries.push([key, this.#value(`${pointer}/${pointerPart(key)}`, depth + 1)]);
      this.#space();
      const next = this.#text[this.#at];
      if (next !== ',' && next !== '}') throw this.#unexpected('"," or "}"');
      this.#at += 1;
      // fromEntries defines properties: a key named __proto__ stays a plain key.
      if (next === '}') return Object.fromEntries(entries);
    }
  }

  #array(pointer: string, depth: number): Json {
    const items: Json[] = [];
    this.#at += 1;
    this.#space();
    if (this.#text[this.#at] === ']') {
      this.#at += 1;
      return items;
    }
    for (;;) {
      items.push(this.#value(`${pointer}/${items.length}`, depth + 1));
      this.#space();
      const next = this.#text[this.#at];
      if (next !== ',' && next !== ']') throw this.#unexpected('"," or "]"');
      this.#at += 1;
      if (next === ']') return items;
    }
  }

  #string(): string {
    let result = '';
    this.#at += 1;
    for (;;) {
      const character = this.#text[this.#at];
      if (character === undefined) throw this.#unexpected('the end of the string (a double quote)');
      if (character === '"') {
        this.#at += 1;
        return result;
      }
      if (character < ' ') {
        throw new Mistake(`a string has a control character: ${JSON.stringify(character)}`, this.#at);
      }
      if (character !== '\\') {
        result += character;
        this.#at += 1;
        continue;
      }
      const letter = this.#text[this.#at + 1] ?? '';
      const hex = /^u([0-9a-fA-F]{4})/.exec(this.#text.slice(this.#at + 1, this.#at + 6))?.[1];
      const plain = escapes[letter];
      if (hex !== undefined) {
        result += String.fromCharCode(Number.parseInt(hex, 16));
        this.#at += 6;
      } else if (plain !== undefined) {
        result += plain;
        this.#at += 2;
      } else {
        throw new Mistake(`${JSON.stringify(`\\${letter}`)} is not an escape of JSON`, this.#at);
      }
    }
  }
}
