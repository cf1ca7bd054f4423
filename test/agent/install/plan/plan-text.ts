/** A plan with everything in it, as text for the files of what is expected. */
import type { PathState } from '../../../../agent/contracts/manifest.js';
import type { Change, Plan } from '../../../../agent/contracts/plan.js';
import { changeSummary } from '../../../../agent/install/plan/change-title.js';

export function planAsText(plan: Plan): string {
  const told = (
    kind: string,
    { code, message, remedy }: { code: string; message: string; remedy: string | null },
  ) => [`${kind} ${code}: ${message}`, ...(remedy === null ? [] : [`  ${remedy}`])];
  const warnings = plan.warnings.flatMap((one) => told('warning', one));
  if (plan.kind === 'refused') {
    return ['refused', ...plan.refusals.flatMap((one) => told('refusal', one)), ...warnings].join('\n');
  }
  const consumers = plan.consumers.map(
    ({ profile, unit, links }) => `${unit} (${profile}, ${links.length} links)`,
  );
  return [
    `${plan.intent} for ${plan.unit} (${plan.profile}), ${plan.storeId}, ${plan.endpoint}`,
    `consumers: ${consumers.join(', ') || 'none'}`,
    ...plan.changes.flatMap(changeLines),
    ...(plan.changes.length === 0 ? ['nothing to do'] : []),
    ...warnings,
  ].join('\n');
}

function changeLines(change: Change): readonly string[] {
  const { sign, what } = changeSummary(change);
  return [
    `${sign} [${change.kind}] ${what}: ${change.reason}`,
    ...partsOf(change).map((line) => `    ${line}`),
  ];
}

function partsOf(change: Change): readonly string[] {
  switch (change.kind) {
    case 'write-file': {
      const { content, before, previousContent, preflight } = change;
      const user = preflight?.user?.name ?? 'nobody';
      return [
        `before ${stateOf(before)}${previousContent === null ? '' : ', as text'}`,
        ...(preflight === undefined
          ? []
          : [
              `tried as ${user}: ${preflight.required.join(' ')}; kept: ${preflight.inherited.join(' ') || 'none'}`,
            ]),
        ...content.split('\n').map((line) => `| ${line}`),
      ];
    }
    case 'copy-file':
      return [`from ${change.source}, ${change.sha256.slice(0, 8)}, before ${stateOf(change.before)}`];
    case 'write-link':
      return [
        `-> ${change.target}, before ${stateOf(change.before)}${change.ownerPackage === undefined ? '' : ` of ${change.ownerPackage}`}`,
      ];
    case 'alternative':
      return [
        `${change.link}, before ${change.before.status} ${change.before.value}`,
        ...change.slaves.map(({ link, name, path }) => `${link} ${name} ${path}`),
      ];
    case 'adopt':
      return [stateOf(change.state)];
    case 'remove-owned':
      return [`gives back ${stateOf(change.restores)}`];
    case 'ldconfig':
      return change.links ? ['and the links'] : [];
    default:
      return [];
  }
}

function stateOf(state: PathState): string {
  switch (state.kind) {
    case 'link':
      return `link ${state.target}`;
    case 'file':
      return `file ${state.size} ${state.mode.toString(8)}`;
    case 'other':
      return state.type;
    default:
      return state.kind;
  }
}
