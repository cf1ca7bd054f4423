/**
 * The record's own entry of that name. `record[name]` answers `constructor` or `__proto__` with what every object inherits:
 * use this wherever the name comes from outside of the program.
 */
export function own<T>(record: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return record !== undefined && Object.hasOwn(record, name) ? record[name] : undefined;
}

export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

/** One document, for eyes too. 64-bit integers become decimal strings: JSON numbers would lose digits. */
export function jsonDocument(value: unknown): string {
  return JSON.stringify(value, decimal, 2);
}

export function jsonLine(value: unknown): string {
  return JSON.stringify(value, decimal);
}

function decimal(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}
