/** doctor --report: gathers what a bug report needs beside the doctor's own facts, scrubbed. */
import { readFileSync } from 'node:fs';
import { release } from 'node:os';
import type { MachineFacts } from '../../contracts/facts.js';
import type { UnitFacts } from '../../contracts/unit.js';
import { serviceText } from '../../install/plan/service.js';
import { agentVersion } from '../../lib/build-info.js';
import { agentUnit } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { styleFor } from '../../lib/text.js';
import { logNamespace, namespaceOption } from '../../systemd/unit-facts.js';
import type { Diagnosis, DoctorFacts } from '../../verdict/doctor/finding.js';
import { doctorText, traceText } from '../output/doctor-text.js';
import { createScrubber, readIdentity, redacted } from './scrub.js';

const mostLines = 2_000;
const agentLines = 300;
const toolTimeoutMs = 20_000;

/** Every file of the report, ready to be listed and written. Nothing is thrown for what cannot be found out. */
export async function gatherReport(
  runner: CommandRunner,
  facts: DoctorFacts,
  diagnosis: Diagnosis,
  document: object,
): Promise<readonly ReportFile[]> {
  const { machine, look, plan, profile, verdict } = facts;
  const { unit } = profile;
  const { invocationId } = verdict;
  const start = [
    `_SYSTEMD_UNIT=${unit}`,
    `_SYSTEMD_INVOCATION_ID=${invocationId}`,
    '+',
    '_PID=1',
    `UNIT=${unit}`,
  ];
  const namespace = namespaceOption(logNamespace(machine.unit));
  const [journal, agentJournal, versions] = await Promise.all([
    invocationId === null ? [] : journalOf(runner, mostLines, ...namespace, ...start),
    journalOf(runner, agentLines, `_SYSTEMD_UNIT=${agentUnit}`),
    versionsOf(runner, facts),
  ]);
  const style = styleFor({ isTty: true, columns: 80, wanted: false, env: {} });
  const findings = [...traceText(facts.trace, style), doctorText(diagnosis, style)].join('\n');
  const scrub = createScrubber(readIdentity());
  const text = (name: string, what: string, content: string): ReportFile => ({
    name,
    what,
    text: `${scrub.text(content).trimEnd()}\n`,
  });
  const json = (name: string, what: string, value: unknown): ReportFile => ({
    name,
    what,
    text: `${JSON.stringify(scrub.value(value), null, 1)}\n`,
  });
  return [
    text('doctor.txt', 'the findings of the doctor', findings),
    text('versions.txt', 'versions of all components', versions.join('\n')),
    text('unit.txt', `${unit} and its drop-ins`, unitText(machine.unit)),
    text('journal.txt', `this start of ${unit}`, lines(journal)),
    text('agent-journal.txt', 'the last log lines of vgpu-agent.service', lines(agentJournal)),
    json('doctor.json', 'the same, with the evidence of every check', document),
    json('facts.json', 'the facts that the checks used', { machine: withoutTexts(machine), look, plan }),
  ];
}

/** In the format that explain-log reads, without the host's name. */
async function journalOf(
  runner: CommandRunner,
  count: number,
  ...matches: readonly string[]
): Promise<readonly string[]> {
  const args = ['--no-pager', '--quiet', '--no-hostname', '--output=short-iso-precise', `--lines=${count}`];
  const said = await outputOf(runner, 'journalctl', [...args, ...matches]);
  return said === null ? ['(journalctl failed)'] : said.split('\n').filter((line) => line !== '');
}

async function versionsOf(
  runner: CommandRunner,
  { machine, profile, verdict }: DoctorFacts,
): Promise<readonly string[]> {
  const [systemd, loader] = await Promise.all([
    outputOf(runner, 'systemctl', ['--version']),
    outputOf(runner, 'getconf', ['GNU_LIBC_VERSION']),
  ]);
  const { manifest, shim, distribution } = machine;
  return [
    `vgpu-agent ${agentVersion()}`,
    `installed by ${manifest === null ? 'nothing' : `vgpu-agent ${manifest.agent}, shim ${manifest.storeId}`}`,
    `shim beside the agent ${shim.version} ${shim.id}`,
    `${profile.name} ${verdict.consumerVersion ?? 'unknown'}`,
    `system ${distribution.prettyName}`,
    `kernel ${release()} ${distribution.architecture}`,
    `virtualization ${firstLine(readText('/run/systemd/container') ?? 'not a container')}`,
    `systemd ${firstLine(systemd ?? 'unknown').replace(/^systemd /, '')}`,
    `loader ${firstLine(loader ?? 'unknown')}`,
    `node ${process.version}`,
  ];
}

async function outputOf(
  runner: CommandRunner,
  file: string,
  args: readonly string[],
): Promise<string | null> {
  try {
    const ran = await runner.run(file, args, { timeoutMs: toolTimeoutMs });
    return ran.code === 0 ? ran.stdout.toString('utf8') : null;
  } catch {
    return null;
  }
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}

function firstLine(text: string): string {
  return text.split('\n')[0]?.trim() ?? '';
}

export interface ReportFile {
  readonly name: string;
  readonly what: string;
  readonly text: string;
}

function lines(entries: readonly string[]): string {
  return entries.length === 0 ? '(nothing)' : entries.join('\n');
}

function unitText(unit: UnitFacts): string {
  if (unit.kind !== 'loaded') return `${unit.name} is ${unit.kind}`;
  const files = [
    { path: unit.fragment, content: unit.fragmentContent ?? '(not read)' },
    ...unit.dropIns,
    // The content of such a file is more likely to be a secret than to be of use.
    ...(unit.environmentFileContents ?? []).map(({ path, content }) => ({
      path,
      content: namesOnly(content),
    })),
  ];
  return files.map(({ path, content }) => `# ${path}\n${content.trimEnd()}\n`).join('\n');
}

function namesOnly(content: string): string {
  return content
    .split('\n')
    .map((line) => /^\s*(?:export\s+)?(\w+)\s*=/.exec(line)?.[1])
    .filter((name) => name !== undefined)
    .map((name) => `${name}=${redacted}`)
    .join('\n');
}

function withoutTexts(machine: MachineFacts): unknown {
  const { unit, service } = machine;
  const files = service?.files.map((file) => ({
    path: file.present.path,
    state: file.present.state,
    asWritten: file.present.content === serviceText(service, file),
  }));
  const rest = { ...machine, service: service === undefined ? null : { ...service, files } };
  if (unit.kind !== 'loaded') return rest;
  const { fragmentContent: _text, environmentFileContents: _values, ...known } = unit;
  return { ...rest, unit: known };
}
