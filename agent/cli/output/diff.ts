/** A line diff of small files, as a person reads it: ` ` kept, `-` gone, `+` new. */

export interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

/** Lines of unchanged text shown on either side of a change. */
const context = 2;
/** Above this the table of the comparison would be too large; such a file is shown as replaced as a whole. */
const comparable = 2_000_000;

/** The shortest edit from `before` to `after`; unchanged stretches far from any change left out. */
export function diffLines(before: string, after: string): readonly DiffLine[] {
  return nearChanges(editScript(before, after));
}

/** As `diffLines` with every unchanged line: without `+` it is `before`, without `-` it is `after`. */
export function editScript(before: string, after: string): readonly DiffLine[] {
  return edits(linesOf(before), linesOf(after));
}

function linesOf(text: string): readonly string[] {
  if (text === '') return [];
  const lines = text.split('\n');
  // A file that does not end in a newline is marked, since its bytes differ.
  if (lines.at(-1) === '') lines.pop();
  else lines.push('\\ no newline at end of file');
  return lines;
}

function edits(before: readonly string[], after: readonly string[]): readonly DiffLine[] {
  if (before.length * after.length > comparable) {
    return [
      ...before.map((text): DiffLine => ({ sign: '-', text })),
      ...after.map((text): DiffLine => ({ sign: '+', text })),
    ];
  }
  // common[i][j]: length of the longest common subsequence of before[i..] and after[j..]
  const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  const at = (i: number, j: number): number => common[i]?.[j] ?? 0;
  for (let i = before.length - 1; i >= 0; i -= 1) {
    const row = common[i];
    if (row === undefined) continue;
    for (let j = after.length - 1; j >= 0; j -= 1) {
      row[j] = before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const result: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    const old = before[i];
    const fresh = after[j];
    if (old !== undefined && old === fresh) {
      result.push({ sign: ' ', text: old });
      i += 1;
      j += 1;
    } else if (old !== undefined && (fresh === undefined || at(i + 1, j) >= at(i, j + 1))) {
      result.push({ sign: '-', text: old });
      i += 1;
    } else if (fresh !== undefined) {
      result.push({ sign: '+', text: fresh });
      j += 1;
    }
  }
  return result;
}

function nearChanges(lines: readonly DiffLine[]): readonly DiffLine[] {
  const near = lines.map((_, index) =>
    lines.slice(Math.max(0, index - context), index + context + 1).some((line) => line.sign !== ' '),
  );
  return lines.filter((_, index) => near[index]);
}
