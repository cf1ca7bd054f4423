/** A verdict for a person: the first line says it, the rest says why. */

import type { Device, Evidence, LogVerdict, Mode, Verdict } from '../../contracts/verdict.js';
import { hanging, modeText, oneLine, type Style, wrap } from '../../lib/text.js';
import { choiceOf } from '../../profile/instance.js';

export function verdictHead(verdict: Verdict, style: Style): string {
  const version = verdict.consumerVersion === null ? '' : ` ${verdict.consumerVersion}`;
  return `${paint(verdict.mode, modeText(verdict), style)}  ${oneLine(`${verdict.unit} (${verdict.profile}${version})`)}`;
}

/** `doctor`: name `vgpu-agent doctor` too, unless its findings are printed beside the verdict. */
export function verdictText(verdict: Verdict, style: Style, { doctor = true } = {}): string {
  const { look, mode, next, profile, summary, unit } = verdict;
  const why = `why:  sudo vgpu-agent doctor ${choiceOf({ name: profile, unit })}`;
  return [
    verdictHead(verdict, style),
    wrap(oneLine(summary), style.width),
    ...(look === undefined ? [] : [`  checked   ${look.at}`]),
    ...logVerdictBody(verdict, style, null),
    ...(next === null ? [] : ['', `next: ${oneLine(next)}`]),
    ...(next === null || mode === 'gpu' || !doctor ? [] : [oneLine(why)]),
  ].join('\n');
}

/** `why`: the reason as a clause about the consumer, because a log alone has no summary with it. */
export function logVerdictText(verdict: LogVerdict, style: Style, why: string | null): string {
  return [paint(verdict.mode, modeText(verdict), style), ...logVerdictBody(verdict, style, why)].join('\n');
}

function logVerdictBody(verdict: LogVerdict, style: Style, why: string | null): readonly string[] {
  const reason = why === null ? verdict.reason : `${verdict.reason}: the service ${why}`;
  return [
    ...verdict.devices.map((device) => hanging('  device    ', deviceText(device), style)),
    ...(reason === null ? [] : [hanging('  reason    ', reason, style)]),
    ...verdict.evidence.map((evidence) => evidenceText(evidence, style)),
  ];
}

function deviceText(device: Device): string {
  const parts = [
    device.name,
    device.library,
    `compute ${device.compute === '' ? 'unknown' : device.compute}`,
    device.pci,
  ];
  return parts.filter((part) => part !== null && part !== '').join(', ');
}

function evidenceText({ kind, text, weight, source }: Evidence, style: Style): string {
  const sign = { for: style.good('+'), against: style.bad('-'), neutral: ' ' }[weight];
  // A journal cursor is for programs (--json); a person finds the line by its text.
  const from = source === null ? '' : ` [${source.replace(/^journal cursor .*/, 'journal')}]`;
  return hanging(`  ${sign} ${labels[kind].padEnd(10)}`, text + from, style, 14);
}

const labels: Readonly<Record<Evidence['kind'], string>> = {
  'log-line': 'log',
  readiness: 'readiness',
  loaded: 'loaded',
  sessions: 'sessions',
  maps: 'maps',
  environment: 'environ',
  probe: 'probe',
  compute: 'compute',
  unit: 'unit',
  host: 'host',
};

function paint(mode: Mode, text: string, style: Style): string {
  switch (mode) {
    case 'gpu':
      return style.bold(style.good(text));
    case 'cpu':
      return style.bold(style.bad(text));
    case 'degraded':
    case 'undetermined':
      return style.bold(style.caution(text));
  }
}
