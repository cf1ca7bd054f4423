/** Reads single assignments from unit files (systemd.syntax(7)): for what the bus does not tell. */

/** In the order in which systemd reads them. Empty assignments are kept: they clear earlier values. */
export function assignments(files: readonly string[], section: string, key: string): readonly string[] {
  return files.flatMap((file) =>
    sectionLines(file, section).flatMap((line) => {
      const at = line.indexOf('=');
      return at < 0 || line.slice(0, at).trim() !== key ? [] : [line.slice(at + 1).trim()];
    }),
  );
}

export function sectionLines(file: string, section: string): readonly string[] {
  const found: string[] = [];
  let current = '';
  for (const line of logicalLines(file)) {
    const header = /^\[(.+)\]$/.exec(line);
    if (header !== null) current = header[1] ?? '';
    else if (current === section) found.push(line);
  }
  return found;
}

/** The value that stands last; null when there is none or an empty assignment took it back. */
export function lastAssignment(files: readonly string[], section: string, key: string): string | null {
  return assignments(files, section, key).at(-1) || null;
}

/** Lines without comments and blanks; a backslash at the end joins the next line, comments in between skipped. */
function* logicalLines(file: string): Generator<string> {
  let pending = '';
  for (const raw of file.split('\n')) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#') || line.startsWith(';')) {
      if (line === '' && pending !== '') {
        yield pending.trim();
        pending = '';
      }
      continue;
    }
    if (line.endsWith('\\')) {
      pending += `${line.slice(0, -1)} `;
      continue;
    }
    yield (pending + line).trim();
    pending = '';
  }
  if (pending !== '') yield pending.trim();
}
