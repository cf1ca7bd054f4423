import type { HostFacts } from '../../contracts/facts.js';
import { type Carrier, carrierCodes } from '../../contracts/shim-codes.js';
import type { ConsumerView, StatusView } from '../../contracts/views.js';
import { defaultPort } from '../../lib/paths.js';
import { hanging, oneLine, plural, type Style, wrap } from '../../lib/text.js';
import { choiceOf } from '../../profile/instance.js';
import { verdictText } from './verdict-text.js';

export function statusText(view: StatusView, style: Style): string {
  const { installed, consumers } = view;
  const row = rowFor(style);
  const rows = [
    row('installed', installed === null ? notInstalledText(consumers) : installedText(installed)),
    ...hostRows(view.host, row),
  ];
  if (view.service !== undefined && view.service !== null) rows.push(...serviceRows(view.service, style));
  else if (view.configProblem !== undefined && view.configProblem !== null)
    rows.push(...badFileRows(view.configProblem, style));
  const warn = (text: string): void => {
    rows.push(hanging(`${style.caution('warning')}: `, text, style, 9));
  };
  if (view.interrupted)
    warn('an install or uninstall was interrupted; the next vgpu-agent install or uninstall cleans up');
  for (const consumer of consumers) {
    if (consumers.length > 1) rows.push('');
    rows.push(...consumerRows(consumer, view, style));
  }
  return rows.join('\n');
}

function consumerRows(
  { profile, unit, drift, verdict, service }: ConsumerView,
  { installed, consumers, service: agent }: StatusView,
  style: Style,
): readonly string[] {
  const row = rowFor(style);
  const isInstalled = installed !== null;
  const several = consumers.length > 1;
  const unknown =
    agent === undefined || agent === null
      ? 'needs root: sudo vgpu-agent status'
      : 'vgpu-agent.service has no verdict on this start yet: sudo vgpu-agent verify';
  const state = `${unit.name}: ${unit.active ?? unit.load}${restartsText(unit.restarts)}`;
  const did =
    several && service !== undefined && service !== null
      ? [
          row('agent', service.state),
          ...troubleRows([service.problem, dueText(service.pendingRestart)], style),
        ]
      : [];
  return [
    row('service', several ? `${state} (profile ${profile})` : state),
    ...(isInstalled ? [row('drift', driftHead(drift.length))] : []),
    ...drift.map(
      ({ change, reason }) => `${margin}${oneLine(change)}\n${margin}  ${style.dim(oneLine(reason))}`,
    ),
    ...did,
    ...(verdict?.carrier === undefined ? [] : [row('transport', transportText(verdict.carrier))]),
    ...(verdict === null
      ? isInstalled
        ? [row('verdict', unknown)]
        : []
      : ['', verdictText(verdict, style)]),
  ];
}

function serviceRows(service: NonNullable<StatusView['service']>, style: Style): readonly string[] {
  const { state, problem, configProblem, pendingRestart, repairs, restarts } = service;
  const did = `${plural(repairs, 'repair')}, ${plural(restarts, 'restart')}`;
  const refused =
    configProblem === null ? null : `agent.json is not valid and not in force: ${configProblem}`;
  return [
    rowFor(style)('agent', `${state}; ${did} since it started`),
    ...troubleRows([problem, refused, dueText(pendingRestart)], style),
  ];
}

/** Whether a service runs, and with which settings, is not known here. */
function badFileRows(problem: string, style: Style): readonly string[] {
  const [first = '', ...others] = problem.split('\n');
  return [rowFor(style)('agent.json', `is not valid: ${first}`), ...troubleRows(others, style)];
}

function dueText(due: NonNullable<StatusView['service']>['pendingRestart']): string | null {
  return due === null ? null : `a restart is due (${due.reason}) and waits: ${due.waitsFor}`;
}

function troubleRows(texts: readonly (string | null)[], style: Style): readonly string[] {
  return texts
    .filter((text) => text !== null)
    .flatMap((text) => text.split('\n'))
    .map((line) => `${margin}${style.caution(wrap(oneLine(line), style.width - 12, margin))}`);
}

const margin = ' '.repeat(12);

function rowFor(style: Style): (label: string, text: string) => string {
  return (label, text) => hanging(label.padEnd(margin.length), text, style);
}

function notInstalledText([shown]: readonly ConsumerView[]): string {
  if (shown === undefined) return 'nothing; sudo vgpu-agent install';
  const { profile, unit } = shown;
  return `nothing for ${unit.name}; sudo vgpu-agent install ${choiceOf({ name: profile, unit: unit.name })}`;
}

function installedText(installed: NonNullable<StatusView['installed']>): string {
  const { profile, agent, storeId, items } = installed;
  return `profile ${profile}, shim ${storeId}, ${plural(items, 'item')}, by vgpu-agent ${agent}`;
}

function restartsText(restarts: number | null): string {
  return restarts === null || restarts === 0 ? '' : `, restarted ${plural(restarts, 'time')} by systemd`;
}

function hostRows(host: HostFacts, row: (label: string, text: string) => string): readonly string[] {
  const { hosts, from } = host;
  if (hosts === undefined) return [row('host', hostText(host, `from ${from}`))];
  return hosts.map((one, index) =>
    row(index === 0 ? 'hosts' : '', hostText(one, one.inUse ? `in use, from ${from}` : `from ${from}`)),
  );
}

function hostText({ endpoint, answer }: Pick<HostFacts, 'endpoint' | 'answer'>, about: string): string {
  const where = `${endpoint} (${about})`;
  switch (answer.kind) {
    case 'answers':
      return `${where}: ${answer.device}${answer.simulated && !answer.device.includes('(simulated)') ? ' (simulated)' : ''}, ${answer.milliseconds} ms`;
    case 'unreachable':
      return `${where}: does not answer: ${answer.message}`;
    case 'unasked':
      return where;
  }
}

const faster: Partial<Record<Carrier, string>> = {
  vsock:
    'memory shared between VM and host is faster: vgpu-agent doctor shows whether this machine supports it',
  tcp: `vsock is faster if that host runs this VM: sudo vgpu-agent install --host vsock:2:${defaultPort}`,
  unix: 'rings in shared memory are faster; they do not work through ssh or a proxy, or if vgpu-hostd has --session-shared 0',
};

function transportText(carrier: Carrier): string {
  const text = carrierCodes.find(({ code }) => code === carrier)?.text ?? carrier;
  const hint = faster[carrier];
  return hint === undefined ? text : `${text}; ${hint}`;
}

function driftHead(count: number): string {
  return count === 0 ? 'none' : `${plural(count, 'change')} would repair it: sudo vgpu-agent install`;
}
