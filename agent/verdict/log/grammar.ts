// One function at a time: the service would keep the rest of the package in memory.
import coerce from 'semver/functions/coerce.js';
import satisfies from 'semver/functions/satisfies.js';
import type { Device } from '../../contracts/verdict.js';
import { VgpuError } from '../../lib/errors.js';
import { compilePattern, maxMatchLength } from '../../profile/patterns.js';
import type { DeviceRule, LogGrammar } from '../../profile/types.js';
import type { Logfmt } from './logfmt.js';

export type CompiledGrammar = ReturnType<typeof compileGrammar>;
type CompiledDevice = CompiledGrammar['devices'][number];
type CompiledReason = CompiledGrammar['reasons'][number];

function compile(source: string): RegExp {
  const result = compilePattern(source);
  if (result.kind === 'ok') return result.pattern;
  // The loader refuses such a profile, so only a profile built in code gets here.
  throw new VgpuError(`${JSON.stringify(source)}: ${result.message}`, {
    kind: 'profile',
    operation: 'compile log grammar',
  });
}

export function compileGrammar({ format, prefix, ...grammar }: LogGrammar) {
  const { children } = grammar;
  return {
    format,
    prefix: prefix === undefined ? null : compile(prefix),
    starts: grammar.starts.map(({ message, first }) => ({ pattern: compile(message), first })),
    version: grammar.version === null ? null : compile(grammar.version.message),
    address: grammar.address === null ? null : compile(grammar.address.message),
    // In logfmt, msg must be equal to the message.
    devices: grammar.devices.map((rule) => ({
      rule,
      pattern: format === 'logfmt' ? null : compile(rule.message),
    })),
    reasons: grammar.reasons.map((rule) => ({
      rule,
      pattern: compile(rule.message),
      fields: compileFields(rule.fields),
    })),
    finished: grammar.finished.map(compile),
    loads: (grammar.loads ?? []).map(({ message, says, fields = {} }) => ({
      says,
      pattern: compile(message),
      fields: compileFields(fields),
    })),
    children:
      children === undefined
        ? null
        : {
            line: compile(children.line),
            began: compile(children.began),
            ended: compile(children.ended),
          },
    /** Matches every line that any other expression matches, except devices: most lines need only this test. */
    any: anyOf(grammar),
  };
}

function compileFields(fields: Readonly<Record<string, string>>) {
  return Object.entries(fields).map(([key, source]) => [key, compile(source)] as const);
}

function anyOf(grammar: Omit<LogGrammar, 'format' | 'prefix'>): RegExp {
  const sources = [
    ...grammar.starts.map(({ message }) => message),
    ...[grammar.version, grammar.address].flatMap((one) => (one === null ? [] : [one.message])),
    ...grammar.reasons.map(({ message }) => message),
    ...grammar.finished,
    ...(grammar.loads ?? []).map(({ message }) => message),
    ...(grammar.children === undefined ? [] : [grammar.children.began, grammar.children.ended]),
  ];
  if (sources.length === 0) return /^(?!)/;
  // Two groups of an expression must not have the same name.
  return new RegExp(sources.map((source) => `(?:${source.replaceAll(/\(\?<\w+>/g, '(?:')})`).join('|'), 'u');
}

/** The text that patterns are matched against: msg of a record, else the line without its prefix, bounded. */
export function subjectOf({ prefix }: CompiledGrammar, text: string, record: Logfmt): string {
  const message = record.kind === 'record' ? record.fields.get('msg') : undefined;
  if (message !== undefined) return message.slice(0, maxMatchLength);
  const subject = text.slice(0, maxMatchLength);
  const before = prefix?.exec(subject);
  return before?.index === 0 ? subject.slice(before[0].length) : subject;
}

/** `*` fits any version, known or not; a range fits a known one. */
export function versionFits(range: string, version: string | null): boolean {
  if (range === '*') return true;
  if (version === null) return false;
  const plain = coerce(version);
  // Unstamped builds have version 0.0.0, which counts as unknown.
  if (plain === null || plain.version === '0.0.0') return false;
  return satisfies(plain, range);
}

export function matchesReason(
  { rule, pattern, fields }: CompiledReason,
  subject: string,
  record: Logfmt,
  version: string | null,
): boolean {
  return versionFits(rule.versions, version) && pattern.test(subject) && matchesFields(fields, record);
}

export function matchesFields(fields: CompiledReason['fields'], record: Logfmt): boolean {
  if (fields.length === 0) return true;
  if (record.kind !== 'record') return false;
  return fields.every(([key, wanted]) => {
    const value = record.fields.get(key);
    return value !== undefined && wanted.test(value.slice(0, maxMatchLength));
  });
}

export type DeviceLine =
  | { readonly kind: 'device'; readonly device: Device; readonly what: 'gpu' | 'unusable' | 'cpu' | 'other' }
  /** The line has the form of an announcement, but invalid values. */
  | { readonly kind: 'spoilt'; readonly why: string };

const realCompute = /^[1-9]\d?\.\d{1,2}$/;

/** `cuda`, `rocm`, `vulkan` or another name; in lower case. */
const libraryName = /^[a-z0-9][a-z0-9._+-]{0,30}$/;

export function readDevice(
  { rule, pattern }: CompiledDevice,
  text: string,
  record: Logfmt,
  truncated: boolean,
): DeviceLine | null {
  let fieldOf: (name: string) => string | undefined;
  if (pattern === null) {
    if (record.kind === 'plain' || record.fields.get('msg') !== rule.message) return null;
    if (record.kind === 'cut' || truncated) return { kind: 'spoilt', why: 'the line is truncated' };
    const keys = ['msg', ...Object.values(rule.fields).flat()];
    const twice = keys.find((key) => record.repeated.has(key));
    if (twice !== undefined) return { kind: 'spoilt', why: `it has ${twice}= twice` };
    fieldOf = (name) => record.fields.get(name);
  } else {
    const match = pattern.exec(text.slice(0, maxMatchLength));
    if (match === null) return null;
    if (truncated) return { kind: 'spoilt', why: 'the line is truncated' };
    fieldOf = (name) => match.groups?.[name];
  }
  const field = (name: keyof DeviceRule['fields']): string | null => {
    for (const key of rule.fields[name]) {
      const value = fieldOf(key);
      if (value !== undefined) return value;
    }
    return rule.fixed[name] ?? null;
  };
  const library = (field('library') ?? '').toLowerCase();
  if (library === '') return { kind: 'spoilt', why: 'it names no library' };
  if (!libraryName.test(library)) return { kind: 'spoilt', why: 'the name that it has is not a library' };
  const compute = field('compute');
  const device = { library, compute: compute ?? '', name: field('name') ?? '', pci: field('pci') };
  if (rule.cpu.includes(library)) return { kind: 'device', device, what: 'cpu' };
  if (!rule.gpu.includes(library)) return { kind: 'device', device, what: 'other' };
  // A grammar whose lines have no compute capability does not require one.
  const asksCompute = rule.fields.compute.length > 0 || rule.fixed.compute !== undefined;
  const usable =
    !asksCompute ||
    (compute !== null && realCompute.test(compute) && !rule.degradedCompute.includes(compute));
  return { kind: 'device', device, what: usable ? 'gpu' : 'unusable' };
}
