/** The doctor's findings for a person: the verdict, then what is broken, reason first, then the list of checks. */
import type { CheckResult, Diagnosis, Finding } from '../doctor/types.js';
import type { Style } from './style.js';
import { oneLine, plural, wrap } from './text.js';
import { verdictHead } from './verdict-text.js';

/** Without a newline at its end. */
export function doctorText(diagnosis: Diagnosis, style: Style): string {
  const { verdict, broken, results } = diagnosis;
  const warnings = results.filter(({ finding }) => finding.kind === 'warning');
  return [
    verdictHead(verdict, style),
    wrap(oneLine(verdict.summary), style.width),
    ...broken.flatMap((result, index) => ['', ...troubleText(result, index > 0, style)]),
    ...warnings.flatMap((result) => ['', ...troubleText(result, false, style)]),
    '',
    ...results.map((result) => listed(result, style)),
    '',
    wrap(closing(diagnosis), style.width),
  ].join('\n');
}

/** The first broken check alone, without a newline at its end; null: no check found anything broken. */
export function firstFindingText({ broken }: Diagnosis, style: Style): string | null {
  const [first] = broken;
  return first === undefined ? null : troubleText(first, false, style).join('\n');
}

const margin = '  ';

function troubleText({ check, finding }: CheckResult, further: boolean, style: Style): readonly string[] {
  if (finding.kind !== 'broken' && finding.kind !== 'warning') return [];
  const { cause, evidence, remedy } = finding;
  const label = finding.kind === 'broken' ? style.bold(style.bad('BROKEN')) : style.caution('WARNING');
  const also = further ? ' (may follow from the above)' : '';
  return [
    `${label}  ${style.bold(check.id)}${also}`,
    margin + wrap(oneLine(cause), style.width - margin.length, margin),
    ...evidence.map((line) => `${margin}- ${wrap(oneLine(line), style.width - 4, `${margin}  `)}`),
    `${margin}${style.bold('do:')} ${wrap(`${oneLine(remedy.text)}:`, style.width - 6, `${margin}    `)}`,
    // Never wrapped: it is there to be copied.
    `${margin}    ${oneLine(remedy.command)}`,
  ];
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
  const word = words[finding.kind].padEnd(widestWord);
  const text = finding.kind === 'not-applicable' || finding.kind === 'unknown' ? finding.why : check.title;
  const start = `${painted(finding.kind, word, style)} ${check.id.padEnd(widestId)} `;
  const indent = ' '.repeat(widestWord + widestId + 2);
  return start + wrap(oneLine(text), style.width - indent.length).replaceAll('\n', `\n${indent}`);
}

function painted(kind: Finding['kind'], text: string, style: Style): string {
  switch (kind) {
    case 'ok':
      return style.good(text);
    case 'broken':
      return style.bad(text);
    case 'warning':
    case 'unknown':
      return style.caution(text);
    case 'not-applicable':
      return style.dim(text);
  }
}

function closing({ broken, results, verdict }: Diagnosis): string {
  const [first] = broken;
  if (first !== undefined) {
    const count = broken.length === 1 ? 'One check is' : `${broken.length} checks are`;
    const rest = broken.length === 1 ? '' : '; mend the first and look again';
    return `${count} broken${rest}. What each looks at: man vgpu-doctor`;
  }
  if (verdict.mode === 'gpu') return `Nothing is broken (${plural(results.length, 'check')}).`;
  const next = verdict.next === null ? '' : ` Next: ${verdict.next}`;
  return `No check found the reason.${next}`;
}
