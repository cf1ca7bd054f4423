/**
 * Judges a consumer's log, line by line. The live follower and `explain-log` both push their entries here, so they
 * always agree.
 *
 * Only the last start counts. A new start begins at a `starts` line of the profile, at another invocation ID, or after
 * systemd's message that the previous process ended. If the start of a line is uncertain, the line does not count for
 * GPU.
 */
import type { Profile } from '../../profile/types.js';
import { type LogEntry, readEntries } from './entry.js';
import {
  afterLine,
  findingsOf,
  type JudgeState,
  type Loads,
  type LogFindings,
  newStart,
  noLoads,
  type Quote,
  stateOf,
} from './findings.js';
import {
  type CompiledGrammar,
  compileGrammar,
  type DeviceLine,
  matchesFields,
  matchesReason,
  readDevice,
  subjectOf,
  versionFits,
} from './grammar.js';
import { type Logfmt, parseLogfmt } from './logfmt.js';

export interface LogJudge {
  push(entry: LogEntry): JudgeState;
  findings(): LogFindings;
}

const maxDeviceLines = 64;
const maxQuotes = 12;
const maxQuoteLength = 400;
const maxChildren = 64;

function quoteOf(text: string, source: string): Quote {
  const short = text.length > maxQuoteLength ? `${text.slice(0, maxQuoteLength)}...` : text;
  return { kind: 'log-line', text: short.trim(), source };
}

const plain: Logfmt = { kind: 'plain' };

/** systemd's messages after which lines of the previous process no longer count. */
const endOfProcess =
  /: (?:Main process exited|Deactivated successfully|Succeeded|Failed with result|Scheduled restart job|Consumed )|^(?:Stopped|Stopping|Failed to start) /;
const beginOfProcess = /^(?:Started|Starting) /;

/** Judges a log of any length in bounded memory. Rejects with the stream's error. */
export async function explainLog(
  profile: Profile,
  stream: AsyncIterable<Buffer | string>,
): Promise<LogFindings> {
  const judge = logJudges(profile)();
  for await (const entry of readEntries(stream)) judge.push(entry);
  return judge.findings();
}

/** Makes judges for several logs; compiles the grammar once, because that takes milliseconds. Each judge's memory is bounded. */
export function logJudges(profile: Profile): () => LogJudge {
  const grammar = compileGrammar(profile.log);
  return () => judgeWith(profile, grammar);
}

function judgeWith(profile: Profile, grammar: CompiledGrammar): LogJudge {
  // A consumer with children logs under several process IDs in one start.
  const onePid = profile.processes.children.length === 0;
  let start = newStart();
  let ended = false;
  let entries = 0;
  let starts = 0;

  const begin = (): void => {
    start = newStart();
    ended = false;
    starts += 1;
  };

  /** Does this line belong to another start than the lines before? Called only for lines that match. */
  const separate = (entry: LogEntry): void => {
    const { invocationId, pid } = start;
    const other =
      (invocationId !== null && entry.invocationId !== null && invocationId !== entry.invocationId) ||
      (onePid && pid !== null && entry.pid !== null && pid !== entry.pid);
    if (ended || other) begin();
    start.invocationId ??= entry.invocationId;
    start.pid ??= entry.pid;
  };

  const mark = (index: number, first: boolean): void => {
    const used = start.devices.length > 0 || start.spoilt.length > 0;
    if (start.marks.has(index) || start.finished.size > 0 || (first && used)) begin();
    if (starts === 0) starts = 1;
    start.marks.add(index);
  };

  const manage = (entry: LogEntry): void => {
    if (entry.speaker === 'boundary' || endOfProcess.test(entry.text)) ended = true;
    // Only after an end: the journal may sort "Started" behind the first lines of the process itself.
    else if (ended && beginOfProcess.test(entry.text)) begin();
  };

  const announce = (rule: number, line: DeviceLine, entry: LogEntry): void => {
    const quote = quoteOf(entry.text, entry.source);
    if (line.kind === 'spoilt') {
      start.spoilt.push({ ...quote, text: `not counted, ${line.why}: ${quote.text}` });
      start.spoilt = start.spoilt.slice(-maxQuotes);
      return;
    }
    const saysCpu = start.devices.some((known) => known.line.what === 'cpu');
    if (line.what === 'cpu') {
      // The CPU is announced only without other devices, so devices before it are of an earlier start.
      start.devices = start.devices.filter((known) => known.line.what === 'cpu');
    } else if (start.finished.size > 0 || saysCpu) {
      const why = start.finished.size > 0 ? 'discovery was over already' : 'the CPU was announced already';
      start.spoilt.push({ ...quote, text: `not counted, ${why}: ${quote.text}` });
      start.spoilt = start.spoilt.slice(-maxQuotes);
      return;
    }
    if (start.devices.length < maxDeviceLines) start.devices.push({ rule, line, quote });
    // An attempt during the search for devices is older than the result of the search.
    start.loads = noLoads;
  };

  return {
    push(entry) {
      entries += 1;
      if (entry.speaker !== 'consumer') manage(entry);
      else read(entry);
      return stateOf(start);
    },
    findings() {
      return { ...findingsOf(start, grammar), entries, starts };
    },
  };

  function read(entry: LogEntry): void {
    const child = grammar.children?.line.exec(entry.text);
    if (child?.groups !== undefined) {
      readChild(entry, child.groups['child'] ?? '', entry.text.slice(child[0].length));
      return;
    }
    const record =
      grammar.format === 'logfmt' && entry.text.includes('msg') ? parseLogfmt(entry.text) : plain;
    const subject = subjectOf(grammar, entry.text, record);
    const speaks = grammar.any.test(subject);
    // First, because a line that begins a start and names a device belongs to the new start.
    if (speaks) readStarts(entry, subject);
    readDevices(entry, record);
    if (speaks) readWords(entry, record, subject);
  }

  /** A child looks for devices of its own. Of its lines only those about what it loads count. */
  function readChild(entry: LogEntry, key: string, text: string): void {
    if (entry.truncated) return;
    const subject = subjectOf(grammar, text, plain);
    if (!grammar.any.test(subject)) return;
    const known = start.children.get(key);
    const loads = loadsAfter(known?.loads ?? noLoads, entry, subject, plain);
    if (loads === known?.loads || loads === noLoads) return;
    separate(entry);
    keepChild(key, known?.name ?? '', loads);
  }

  function keepChild(key: string, name: string, loads: Loads): void {
    start.children.set(key, { name, loads });
    const [oldest] = start.children.keys();
    if (start.children.size > maxChildren && oldest !== undefined) start.children.delete(oldest);
  }

  function readChildren(subject: string): void {
    const began = grammar.children?.began.exec(subject)?.groups;
    if (began !== undefined) keepChild(began['child'] ?? '', began['name'] ?? '', noLoads);
    const ended = grammar.children?.ended.exec(subject)?.groups?.['name'];
    for (const [key, { name }] of start.children) if (name === ended) start.children.delete(key);
  }

  function loadsAfter(loads: Loads, entry: LogEntry, subject: string, record: Logfmt): Loads {
    return grammar.loads.reduce((before, { says, pattern, fields }) => {
      const match = pattern.exec(subject);
      if (match === null || !matchesFields(fields, record)) return before;
      return afterLine(before, says, match.groups ?? {}, quoteOf(entry.text, entry.source));
    }, loads);
  }

  function readStarts(entry: LogEntry, subject: string): void {
    grammar.starts.forEach(({ pattern, first }, index) => {
      if (!pattern.test(subject)) return;
      separate(entry);
      mark(index, first);
    });
  }

  function readWords(entry: LogEntry, record: Logfmt, subject: string): void {
    const version = grammar.version?.exec(subject)?.groups?.['version'];
    if (version !== undefined) {
      separate(entry);
      start.version = version;
    }
    const address = grammar.address?.exec(subject)?.groups?.['address'];
    if (address !== undefined) start.address = address;

    grammar.reasons.forEach((compiled, index) => {
      if (!matchesReason(compiled, subject, record, start.version)) return;
      separate(entry);
      // Compared as stored (truncated), so that a long line with two reasons is one line.
      const quote = quoteOf(entry.text, entry.source);
      const known = start.quotes.some(({ source, text }) => source === quote.source && text === quote.text);
      if (!known && start.quotes.length < maxQuotes) start.quotes.push(quote);
      start.matched.add(index);
    });
    if (!entry.truncated) {
      const loads = loadsAfter(start.loads, entry, subject, record);
      if (loads !== start.loads) {
        const fresh = start;
        separate(entry);
        start.loads = fresh === start ? loads : loadsAfter(noLoads, entry, subject, record);
      }
      readChildren(subject);
    }
    grammar.finished.forEach((pattern, index) => {
      if (!pattern.test(subject)) return;
      separate(entry);
      if (start.finished.has(index)) begin();
      start.finished.add(index);
    });
  }

  function readDevices(entry: LogEntry, record: Logfmt): void {
    grammar.devices.forEach((compiled, index) => {
      const line = readDevice(compiled, entry.text, record, entry.truncated);
      if (line === null || !versionFits(compiled.rule.versions, start.version)) return;
      separate(entry);
      announce(index, line, entry);
    });
  }
}
