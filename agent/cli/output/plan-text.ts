/** A plan that a person reads: one line a change, or each in full, as a diff. */
import type { PathState } from '../../contracts/manifest.js';
import type { Change, Plan, Warning } from '../../contracts/plan.js';
import { type ChangeSummary, changeSummary, octal } from '../../install/plan/change-title.js';
import { bytes, oneLine, plural, printable, type Style, wrap } from '../../lib/text.js';
import { hanging } from './layout.js';

export const nothingToDo = 'nothing to do';

export function planText(plan: Plan, style: Style, { full = false } = {}): string {
  if (plan.kind === 'refused') {
    return [
      ...plan.refusals.map((refusal) => labelled('refused', style.bad, refusal, style)),
      ...warningsText(plan, style),
    ].join('\n');
  }
  if (plan.changes.length === 0) return [nothingToDo, ...warningsText(plan, style)].join('\n');
  return [
    style.bold(wrap(oneLine(headOf(plan)), style.width)),
    '',
    ...plan.changes.map((change) => (full ? changeText(change, style) : changeLine(change, style))),
    '',
    `${plural(plan.changes.length, 'change')}${full ? '' : '; --verbose shows each in full'}`,
    ...warningsText(plan, style),
  ].join('\n');
}

function headOf(plan: Extract<Plan, { kind: 'ready' }>): string {
  const { side, intent, unit, profile, endpoint } = plan;
  if (side === 'host') {
    return intent === 'install'
      ? `this machine will serve its virtual machines at ${endpoint}:`
      : 'this machine will be as it was before vgpu-agent host install:';
  }
  return intent === 'install'
    ? `${unit} (profile ${profile}) will use the GPU of the host at ${endpoint}:`
    : `${unit} (profile ${profile}) will be as it was before vgpu-agent:`;
}

function warningsText(plan: Plan, style: Style): readonly string[] {
  return plan.warnings.map((warning) => warningText(warning, style));
}

export function warningText(warning: Warning, style: Style): string {
  return labelled('warning', style.caution, warning, style);
}

function labelled(
  word: string,
  paint: (text: string) => string,
  { message, remedy }: Pick<Warning, 'message' | 'remedy'>,
  style: Style,
): string {
  const width = word.length + 2;
  const said = hanging(`${paint(word)}: `, message, style, width);
  return remedy === null ? said : `${said}\n${hanging(' '.repeat(width), remedy, style)}`;
}

const indent = '    ';

function changeLine(change: Change, style: Style): string {
  const { sign, what } = changeSummary(change);
  const owner = 'ownerPackage' in change && change.ownerPackage !== null;
  const line = owner ? `${what}, of the package ${change.ownerPackage}` : what;
  return `${painted(sign, style)} ${wrap(oneLine(line), style.width - 2, indent)}`;
}

function painted(sign: ChangeSummary['sign'], style: Style): string {
  return sign === '+' ? style.good(sign) : sign === '-' ? style.bad(sign) : style.caution(sign);
}

function changeText(change: Change, style: Style): string {
  const { sign, what } = changeSummary(change);
  return [
    `${painted(sign, style)} ${style.bold(oneLine(what))}`,
    indent + style.dim(hanging(indent, change.reason, style).slice(indent.length)),
    ...body(change, style),
  ].join('\n');
}

function body(change: Change, style: Style): readonly string[] {
  switch (change.kind) {
    case 'write-file': {
      const replaced =
        change.before.kind === 'absent' || change.previousContent !== null
          ? []
          : [`${indent}${style.dim(`kept aside: ${stateText(change.before)}`)}`];
      const lines = diffLines(change.previousContent ?? '', change.content).map(({ sign, text }) => {
        const line = `${indent}${sign}${printable(text)}`;
        return sign === '+' ? style.good(line) : sign === '-' ? style.bad(line) : line;
      });
      return [...ownerNote(change.ownerPackage), ...replaced, ...lines];
    }
    case 'copy-file':
      return [
        ...ownerNote(change.ownerPackage),
        ...(change.before.kind === 'absent'
          ? []
          : [`${indent}${style.dim(`in the place of ${stateText(change.before)}`)}`]),
      ];
    case 'write-link':
      return [
        ...ownerNote(change.ownerPackage),
        `${indent}${stateText(change.before)} -> ${oneLine(change.target)}`,
      ];
    case 'alternative':
      return change.slaves.map((slave) => `${indent}${oneLine(slave.link)} -> ${oneLine(slave.path)}`);
    case 'remove-owned':
      return [`${indent}vgpu-agent's -> ${stateText(change.restores)}`];
    default:
      return [];
  }
}

function ownerNote(owner: string | null): readonly string[] {
  return owner === null ? [] : [`${indent}belongs to the package ${oneLine(owner)}`];
}

function stateText(state: PathState): string {
  switch (state.kind) {
    case 'absent':
      return 'nothing';
    case 'link':
      return oneLine(state.target);
    case 'file':
      return `a file of ${bytes(state.size)} (sha256 ${state.sha256.slice(0, 12)}..., ${octal(state.mode)})`;
    case 'directory':
      return state.empty ? 'an empty directory' : 'a directory';
    case 'other':
      return `a ${state.type}`;
  }
}

export function planQuestion(
  verb: 'Change this' | 'Uninstall',
  { changes, unit }: Pick<Plan & { kind: 'ready' }, 'changes' | 'unit'>,
): string {
  const restarts = changes.some((one) => one.kind === 'restart');
  return `${verb}${restarts ? `, and restart ${oneLine(unit)}` : ''}?`;
}

interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly text: string;
}

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
