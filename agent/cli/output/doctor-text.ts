/** The doctor's findings for a person: the verdict, then what is broken, reason first, then the list of checks. */
import { hanging, oneLine, plural, type Style, wrap } from '../../lib/text.js';
import type { CheckResult, Diagnosis, Finding, Remedy } from '../../verdict/doctor/finding.js';
import { groupsOf, type TraceFacts } from '../../verdict/doctor/trace.js';
import { verdictHead } from './verdict-text.js';

export function doctorText(diagnosis: Diagnosis, style: Style): string {
  const { verdict, broken, results } = diagnosis;
  const warnings = results.filter(({ finding }) => finding.kind === 'warning');
  const quiet = broken.length === 0 && warnings.length === 0;
  return [
    verdictHead(verdict, style),
    wrap(oneLine(verdict.summary), style.width),
    ...broken.flatMap((result, index) => ['', ...troubleText(result, broken[index - 1] ?? null, style)]),
    ...warnings.flatMap((result) => ['', ...troubleText(result, null, style)]),
    '',
    // Beside trouble the rest is one paragraph: the first red line must not scroll away.
    ...(quiet ? results.map((result) => listed(result, style)) : inShort(results, style)),
    '',
    closing(diagnosis, style),
  ].join('\n');
}

export function firstFindingText({ broken }: Diagnosis, style: Style): string | null {
  const [first] = broken;
  return first === undefined ? null : troubleText(first, null, style).join('\n');
}

function inShort(results: readonly CheckResult[], style: Style): readonly string[] {
  const unknowns = results.filter(({ finding }) => finding.kind === 'unknown');
  const names = (kind: Finding['kind']): string =>
    results
      .filter(({ finding }) => finding.kind === kind)
      .map(({ check }) => check.id)
      .join(', ');
  const row = (kind: 'ok' | 'not-applicable'): readonly string[] => {
    const text = names(kind);
    return text === '' ? [] : [hanging(`${wordOf(kind, style)} `, text, style, widestWord + 1)];
  };
  return [...unknowns.map((result) => listed(result, style)), ...row('ok'), ...row('not-applicable')];
}

const margin = '  ';

/** @param former the one above, whose remedy is not told twice; null: it stands alone */
function troubleText(
  { check, finding }: CheckResult,
  former: CheckResult | null,
  style: Style,
): readonly string[] {
  if (finding.kind !== 'broken' && finding.kind !== 'warning') return [];
  const { cause, evidence, remedy } = finding;
  const label = finding.kind === 'broken' ? style.bold(style.bad('BROKEN')) : style.caution('WARNING');
  const also = former === null ? '' : ' (may follow from the above)';
  return [
    `${label}  ${style.bold(check.id)}${also}`,
    margin + wrap(oneLine(cause), style.width - margin.length, margin),
    ...evidence.map((line) => `${margin}- ${wrap(oneLine(line), style.width - 4, `${margin}  `)}`),
    ...remedyText(remedy, former, style),
  ];
}

function remedyText(remedy: Remedy, former: CheckResult | null, style: Style): readonly string[] {
  const above = former === null ? null : remedyOf(former);
  const again = above?.command === remedy.command;
  if (again && above?.text === remedy.text) return [];
  const text = `${oneLine(remedy.text)}${again ? ' (the command above)' : ':'}`;
  return [
    `${margin}${style.bold('do:')} ${wrap(text, style.width - 6, `${margin}    `)}`,
    // Never wrapped: it is there to be copied.
    ...(again ? [] : [`${margin}    ${oneLine(remedy.command)}`]),
  ];
}

function remedyOf({ finding }: CheckResult): Remedy | null {
  return finding.kind === 'broken' ? finding.remedy : null;
}

const words: Readonly<Record<Finding['kind'], string>> = {
  ok: 'ok',
  broken: 'BROKEN',
  warning: 'warning',
  'not-applicable': 'skipped',
  unknown: 'unknown',
};
const widestWord = 8;
const widestId = 20;

function listed({ check, finding }: CheckResult, style: Style): string {
  const text = finding.kind === 'not-applicable' || finding.kind === 'unknown' ? finding.why : check.title;
  const label = `${wordOf(finding.kind, style)} ${check.id.padEnd(widestId)} `;
  return hanging(label, text, style, widestWord + widestId + 2);
}

function wordOf(kind: Finding['kind'], style: Style): string {
  const paint = {
    ok: style.good,
    broken: style.bad,
    warning: style.caution,
    unknown: style.caution,
    'not-applicable': style.dim,
  }[kind];
  return paint(words[kind].padEnd(widestWord));
}

function closing({ broken, results, verdict }: Diagnosis, style: Style): string {
  const [first] = broken;
  if (first !== undefined) {
    const more = broken.length === 1 ? '' : ` (the first of ${broken.length}: repair it, then look again)`;
    const remedy = remedyOf(first);
    const next = remedy?.where === 'host' ? 'next, on the host' : 'next';
    return `${style.bold(`first: ${first.check.id}`)}${more}\n${next}: ${oneLine(remedy?.command ?? '')}`;
  }
  if (verdict.mode === 'gpu') return `nothing is broken (${plural(results.length, 'check')})`;
  const next = verdict.next === null ? '' : `\nnext: ${oneLine(verdict.next)}`;
  return `no check found the reason${next}`;
}

export function traceText(facts: TraceFacts | null, style: Style): readonly string[] {
  if (facts?.kind !== 'traced') return [];
  const groups = groupsOf(facts);
  const line = (text: string, indent: string): string =>
    indent + wrap(oneLine(text), style.width - indent.length, `${indent}  `);
  return [
    style.bold(`one traced start (${plural(facts.lines, 'line')} of the tracer)`),
    ...groups.flatMap(({ who, lines }) => [line(who, '  '), ...lines.map(({ text }) => line(text, '    '))]),
    ...(groups.length === 0 ? ['  no process was seen'] : []),
    '',
  ];
}
