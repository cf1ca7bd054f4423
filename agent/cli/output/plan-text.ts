/** A plan that a person reads: one line a change, or each in full, as a diff. */
import { structuredPatch } from 'diff';
import type { PathState } from '../../contracts/manifest.js';
import type { Change, Plan, Warning } from '../../contracts/plan.js';
import { type ChangeSummary, changeSummary } from '../../install/plan/change-title.js';
import { bytes, hanging, octal, oneLine, plural, printable, type Style, wrap } from '../../lib/text.js';

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
  const owner = change.kind === 'write-link' ? change.ownerPackage : undefined;
  const line = owner === undefined ? what : `${what}, of the package ${owner}`;
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
      const lines = diffLines(change.previousContent ?? '', change.content).map((text) => {
        const line = indent + printable(text);
        return text.startsWith('+') ? style.good(line) : text.startsWith('-') ? style.bad(line) : line;
      });
      return [...replaced, ...lines];
    }
    case 'copy-file':
      return change.before.kind === 'absent'
        ? []
        : [`${indent}${style.dim(`in the place of ${stateText(change.before)}`)}`];
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

function ownerNote(owner: string | undefined): readonly string[] {
  return owner === undefined ? [] : [`${indent}belongs to the package ${oneLine(owner)}`];
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

const context = 2;
/** Time for the shortest edit; a file that takes longer is shown as replaced as a whole. */
const shortestMs = 1_000;

export function diffLines(before: string, after: string): readonly string[] {
  const options = { context, timeout: shortestMs };
  const patch = structuredPatch('', '', before, after, undefined, undefined, options);
  if (patch !== undefined) return patch.hunks.flatMap(({ lines }) => lines);
  const linesOf = (text: string): readonly string[] => text.replace(/\n$/, '').split('\n');
  return [...linesOf(before).map((line) => `-${line}`), ...linesOf(after).map((line) => `+${line}`)];
}
