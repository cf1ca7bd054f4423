/** A stream of bytes, line by line, in bounded memory. */

export interface Line {
  readonly bytes: Buffer;
  readonly truncated: boolean;
}

/** Splits at `\n`. Holds one line of at most `maxBytes` at a time. */
export async function* splitLines(
  stream: AsyncIterable<Buffer | string>,
  maxBytes: number,
): AsyncIterable<Line> {
  let parts: Buffer[] = [];
  let held = 0;
  let truncated = false;
  const keep = (piece: Buffer): void => {
    const kept = piece.subarray(0, maxBytes - held);
    if (kept.length < piece.length) truncated = true;
    // After the limit the rest of the line is dropped, including empty pieces.
    if (kept.length === 0) return;
    // A copy: a slice would keep its whole chunk alive.
    parts.push(Buffer.from(kept));
    held += kept.length;
  };
  const take = (): Line => {
    const line = { bytes: Buffer.concat(parts, held), truncated };
    parts = [];
    held = 0;
    truncated = false;
    return line;
  };
  for await (const chunk of stream) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(0x0a, from);
      if (end === -1) break;
      keep(bytes.subarray(from, end));
      yield take();
      from = end + 1;
    }
    keep(bytes.subarray(from));
  }
  if (held > 0) yield take();
}
