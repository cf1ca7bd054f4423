/** JSON as it goes to standard output. */

/** One document, for eyes too. 64-bit integers become decimal strings: JSON numbers would lose digits. */
export function jsonDocument(value: unknown): string {
  return JSON.stringify(value, decimal, 2);
}

/** One line of a stream of documents. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value, decimal);
}

function decimal(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}
