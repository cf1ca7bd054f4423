/** Environment= as systemd.exec(5) reads and writes it. Pure. */
import type { DropIn, LoadedUnit } from '../machine/types.js';
import { assignments } from '../systemd/unit-file.js';

/**
 * `VAR=VALUE` words of the Environment= lines in these files, in the order in which systemd reads them; the last one
 * of a name counts, an empty assignment takes all back. Specifiers (`%h`) stay as they are written.
 */
export function assignedVariables(files: readonly string[]): ReadonlyMap<string, string> {
  const variables = new Map<string, string>();
  for (const value of assignments(files, 'Service', 'Environment')) {
    if (value === '') variables.clear();
    for (const word of splitWords(value)) {
      const at = word.indexOf('=');
      if (at > 0) variables.set(word.slice(0, at), word.slice(at + 1));
    }
  }
  return variables;
}

/** Names that UnsetEnvironment= takes away in the end, whatever sets them. */
export function unsetVariables(files: readonly string[]): ReadonlySet<string> {
  const names = new Set<string>();
  for (const value of assignments(files, 'Service', 'UnsetEnvironment')) {
    if (value === '') names.clear();
    for (const word of splitWords(value)) names.add(word);
  }
  return names;
}

/** An EnvironmentFile= (systemd.exec(5)): `VAR=VALUE` lines, `#` and `;` begin comments, quotes around a value. */
export function environmentFileVariables(content: string): ReadonlyMap<string, string> {
  const variables = new Map<string, string>();
  for (const raw of content.replaceAll('\\\n', '').split('\n')) {
    const line = raw.trim();
    const at = line.indexOf('=');
    if (at <= 0 || line.startsWith('#') || line.startsWith(';')) continue;
    const value = line.slice(at + 1).trim();
    const quoted = /^(["'])(.*)\1$/s.exec(value);
    variables.set(line.slice(0, at).trim(), quoted?.[2] ?? value);
  }
  return variables;
}

/** One `Environment="NAME=VALUE"` line. `value` is unit file text: specifiers are doubled already if meant literally. */
export function environmentLine(name: string, value: string): string {
  return `Environment="${`${name}=${value}`.replaceAll(/["\\]/g, '\\$&')}"`;
}

/** A literal value as unit file text. */
export function escapeSpecifiers(value: string): string {
  return value.replaceAll('%', '%%');
}

/** Texts of the unit's files without those at `ours`, in systemd's order. */
export function filesWithout(unit: LoadedUnit, ours: ReadonlySet<string>): readonly string[] {
  const dropIns = unit.dropIns.filter((dropIn: DropIn) => !ours.has(dropIn.path));
  return [unit.fragmentContent ?? '', ...dropIns.map((dropIn) => dropIn.content)];
}

/** Words as systemd splits them: blanks between, quotes around or inside, backslash escapes. */
function splitWords(text: string): readonly string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const character = text.charAt(at);
    if (character === '\\' && at + 1 < text.length) {
      at += 1;
      word = (word ?? '') + text.charAt(at);
    } else if (quote !== '') {
      if (character === quote) quote = '';
      else word = (word ?? '') + character;
    } else if (character === '"' || character === "'") {
      quote = character;
      word ??= '';
    } else if (character === ' ' || character === '\t') {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? '') + character;
  }
  if (word !== null) words.push(word);
  return words;
}
