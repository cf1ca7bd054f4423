/** A verdict for a person: the first line says it, the rest says why. */

import type { Device, Evidence, LogVerdict, Mode, Verdict } from '../../contracts/verdict.js';
import { modeText, oneLine, type Style, wrap } from '../../lib/text.js';
import { choiceOf } from '../../profile/instance.js';

export function verdictHead(verdict: Verdict, style: Style): string {
  const version = verdict.consumerVersion === null ? '' : ` ${verdict.consumerVersion}`;
  return `${paint(verdict.mode, modeText(verdict), style)}  ${oneLine(`${verdict.unit} (${verdict.profile}${version})`)}`;
}

interface VerdictTextOptions {
  /** Names `vgpu-agent doctor` under the next command; false where its findings stand beside it anyway. */
  readonly doctor?: boolean;
}

export function verdictText(
  verdict: Verdict,
  style: Style,
  { doctor = true }: VerdictTextOptions = {},
): string {
  return [
    verdictHead(verdict, style),
    wrap(oneLine(verdict.summary), style.width),
    ...(verdict.look === undefined ? [] : [`  looked    ${verdict.look.at} (look ${verdict.look.id})`]),
    ...logVerdictBody(verdict, style, null),
    ...(verdict.next === null ? [] : ['', `next: ${oneLine(verdict.next)}`]),
    ...(verdict.next === null || verdict.mode === 'gpu' || !doctor ? [] : [doctorLine(verdict)]),
  ].join('\n');
}

/** A verdict tells what it saw; the doctor looks behind it. A line to copy, as the next command is. */
function doctorLine({ profile, unit }: Verdict): string {
  return `why:  ${oneLine(`sudo vgpu-agent doctor ${choiceOf({ name: profile, unit })}`)}`;
}

/** @param why the reason as a clause about the consumer; a log alone has no summary that says it */
export function logVerdictText(verdict: LogVerdict, style: Style, why: string | null): string {
  return [paint(verdict.mode, modeText(verdict), style), ...logVerdictBody(verdict, style, why)].join('\n');
}

function logVerdictBody(verdict: LogVerdict, style: Style, why: string | null): readonly string[] {
  const reason = why === null ? verdict.reason : `${verdict.reason}: the service ${why}`;
  return [
    ...verdict.devices.map(
      (device) =>
        `  device    ${wrap(deviceText(device), style.width - 12).replaceAll('\n', `\n${' '.repeat(12)}`)}`,
    ),
    ...(reason === null
      ? []
      : [`  reason    ${wrap(reason, style.width - 12).replaceAll('\n', `\n${' '.repeat(12)}`)}`]),
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
  return oneLine(parts.filter((part) => part !== null && part !== '').join(', '));
}

const hanging = ' '.repeat(14);

function evidenceText(evidence: Evidence, style: Style): string {
  const sign = { for: style.good('+'), against: style.bad('-'), neutral: ' ' }[evidence.weight];
  // A journal cursor is for programs (--json); a person finds the line by its text.
  const source =
    evidence.source === null ? '' : ` [${evidence.source.replace(/^journal cursor .*/, 'journal')}]`;
  const text = wrap(oneLine(evidence.text + source), style.width - hanging.length).replaceAll(
    '\n',
    `\n${hanging}`,
  );
  return `  ${sign} ${labels[evidence.kind].padEnd(10)}${text}`;
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
