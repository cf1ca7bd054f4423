/** Environment= as systemd.exec(5) reads and writes it. Pure. */
import { isUtf8 } from 'node:buffer';
import type { DropIn, LoadedUnit } from '../contracts/unit.js';
import { storeCurrent, tracerName } from '../lib/paths.js';
import { assignments } from '../lib/unit-file.js';
import type { OverrideRule } from '../profile/types.js';

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

interface Assigned {
  readonly value: string;
  /** The environment file that sets it; null: Environment= of the unit or of a drop-in. */
  readonly file: string | null;
}

/** The environment of the unit's processes and its sources: files win over Environment=, later over earlier ones. */
export function effectiveEnvironment(
  unit: Pick<LoadedUnit, 'environment' | 'environmentFileContents'>,
): ReadonlyMap<string, Assigned> {
  const set = new Map<string, Assigned>();
  for (const [name, value] of Object.entries(unit.environment)) set.set(name, { value, file: null });
  for (const { path, content } of unit.environmentFileContents ?? []) {
    for (const [name, value] of environmentFileVariables(content)) set.set(name, { value, file: path });
  }
  return set;
}

/** The rules of a profile's `overrides` that the unit meets, with what meets each. */
export function overridesOf(
  unit: Pick<LoadedUnit, 'environment' | 'environmentFileContents' | 'execStart'>,
  rules: readonly OverrideRule[],
): readonly { readonly rule: OverrideRule; readonly found: Assigned }[] {
  const set = effectiveEnvironment(unit);
  return rules.flatMap((rule) => {
    const { variable, value, option } = rule;
    const found = set.get(variable);
    if (found === undefined || !new RegExp(value, 'u').test(found.value)) return [];
    const outweighed =
      option !== undefined && unit.execStart.some((one) => new RegExp(option, 'u').test(one));
    return outweighed ? [] : [{ rule, found }];
  });
}

/** The host that the unit's processes connect to: their own VGPU_HOST, where an empty one is none, else `endpoint`. */
export function hostOfUnit(
  unit: Pick<LoadedUnit, 'environment' | 'environmentFileContents'>,
  endpoint: string,
): string {
  return effectiveEnvironment(unit).get('VGPU_HOST')?.value.trim() || endpoint;
}

/** One `Environment="NAME=VALUE"` line. `value` is unit file text: specifiers are doubled already if meant literally. */
export function environmentLine(name: string, value: string): string {
  // A newline would begin another line of the unit file.
  const escaped = `${name}=${value}`
    .replaceAll(/["\\]/g, '\\$&')
    .replaceAll(/\p{Cc}/gu, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return `Environment="${escaped}"`;
}

export function escapeSpecifiers(value: string): string {
  return value.replaceAll('%', '%%');
}

/** Texts of the unit's files without vgpu-agent's drop-ins (`ours`), in systemd's order. */
export function filesWithout(unit: LoadedUnit, ours: ReadonlySet<string>): readonly string[] {
  const dropIns = unit.dropIns.filter((dropIn: DropIn) => !ours.has(dropIn.path));
  return [unit.fragmentContent ?? '', ...dropIns.map((dropIn) => dropIn.content)];
}

/**
 * Words as systemd splits them (extract_first_word() with EXTRACT_UNQUOTE and EXTRACT_CUNESCAPE): blanks between,
 * quotes around or inside, C escapes. At an escape that it does not know systemd ignores the rest of the line; a word
 * that is no UTF-8 is ignored alone.
 */
function splitWords(text: string): readonly string[] {
  const words: string[] = [];
  let word: Buffer[] | null = null;
  let quote = '';
  const end = (): void => {
    if (word === null) return;
    const bytes = Buffer.concat(word);
    if (isUtf8(bytes)) words.push(bytes.toString('utf8'));
    word = null;
  };
  for (let at = 0; at < text.length; ) {
    const character = String.fromCodePoint(text.codePointAt(at) ?? 0);
    const add = (bytes: Buffer): void => {
      word = [...(word ?? []), bytes];
    };
    if (character === '\\') {
      const escaped = escapeAt(text.slice(at + 1));
      if (escaped === null) return words;
      add(escaped.bytes);
      at += 1 + escaped.length;
      continue;
    }
    if (quote !== '' ? character === quote : character === '"' || character === "'") {
      quote = quote === '' ? character : '';
      add(Buffer.alloc(0));
    } else if (quote === '' && (character === ' ' || character === '\t')) end();
    else add(Buffer.from(character));
    at += character.length;
  }
  // A quote without its closing quote makes the word invalid.
  if (quote === '') end();
  return words;
}

/** Escapes of one letter (systemd.syntax(7), "Supported escapes"). */
const letters: Readonly<Record<string, string>> = {
  a: '\u0007',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  s: ' ',
  '\\': '\\',
  '"': '"',
  "'": "'",
};

/** The escape at the beginning of `text`, after its backslash; null when systemd knows none, or it would be NUL. */
function escapeAt(text: string): { readonly bytes: Buffer; readonly length: number } | null {
  const letter = letters[text.charAt(0)];
  if (letter !== undefined) return { bytes: Buffer.from(letter), length: 1 };
  const [whole = '', byte, octal, short, long] =
    /^(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/.exec(text) ?? [];
  const digits = byte ?? octal ?? short ?? long;
  if (digits === undefined) return null;
  const value = Number.parseInt(digits, octal === undefined ? 16 : 8);
  if (value === 0) return null;
  const isByte = byte !== undefined || octal !== undefined;
  if (isByte) return value > 0xff ? null : { bytes: Buffer.from([value]), length: whole.length };
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return null;
  return { bytes: Buffer.from(String.fromCodePoint(value)), length: whole.length };
}

// The variables that a trace adds to a service: plan/trace.ts sets them, and facts about the service omit them.

export const tracer = `${storeCurrent}/${tracerName}`;

/** Names of the variables that tell the tracer what to do. */
export const tracerVariables = { file: 'VGPU_TRACE', limit: 'VGPU_TRACE_LIMIT' } as const;

export function withoutTracer(environment: Readonly<Record<string, string>>): Record<string, string> {
  const ours: ReadonlySet<string> = new Set(Object.values(tracerVariables));
  return Object.fromEntries(
    Object.entries(environment).flatMap(([name, value]) => {
      if (ours.has(name)) return [];
      if (name !== 'LD_PRELOAD') return [[name, value]];
      if (value === tracer) return [];
      return [[name, value.startsWith(`${tracer}:`) ? value.slice(tracer.length + 1) : value]];
    }),
  );
}
