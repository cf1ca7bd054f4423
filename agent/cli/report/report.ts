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
import { createScrubber, readIdentity, redacted, type Scrubber } from './scrub.js';

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
  const { unit } = facts.profile;
  const invocation = facts.verdict.invocationId;
  const [journal, agentJournal, versions] = await Promise.all([
    invocation === null
      ? []
      : journalOf(
          runner,
          mostLines,
          ...namespaceOption(logNamespace(facts.machine.unit)),
          `_SYSTEMD_UNIT=${unit}`,
          `_SYSTEMD_INVOCATION_ID=${invocation}`,
          '+',
          '_PID=1',
          `UNIT=${unit}`,
        ),
    journalOf(runner, agentLines, `_SYSTEMD_UNIT=${agentUnit}`),
    versionsOf(runner, facts),
  ]);
  const plain = styleFor({ isTty: true, columns: 80, wanted: false, env: {} });
  const sources = {
    facts,
    document,
    text: [...traceText(facts.trace, plain), doctorText(diagnosis, plain)].join('\n'),
    versions,
    journal,
    agentJournal,
  };
  return reportFiles(sources, createScrubber(readIdentity()));
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

interface ReportSources {
  readonly facts: DoctorFacts;
  readonly document: object;
  readonly text: string;
  readonly versions: readonly string[];
  readonly journal: readonly string[];
  readonly agentJournal: readonly string[];
}

function reportFiles(sources: ReportSources, scrub: Scrubber): readonly ReportFile[] {
  const { facts, document, text, versions, journal, agentJournal } = sources;
  const { machine, look, plan, profile } = facts;
  const plain: readonly (readonly [name: string, what: string, text: string])[] = [
    ['doctor.txt', 'the findings of the doctor', text],
    ['versions.txt', 'versions of all components', versions.join('\n')],
    ['unit.txt', `${profile.unit} and its drop-ins`, unitText(machine.unit)],
    ['journal.txt', `this start of ${profile.unit}`, lines(journal)],
    ['agent-journal.txt', 'the last log lines of vgpu-agent.service', lines(agentJournal)],
    ['loader.txt', 'drivers in the cache of the loader', loaderText(machine)],
  ];
  const json: readonly (readonly [name: string, what: string, value: unknown])[] = [
    ['doctor.json', 'the same, with the evidence of every check', document],
    ['facts.json', 'the facts that the checks used', { machine: withoutTexts(machine), look, plan }],
  ];
  return [
    ...plain.map(([name, what, content]) => ({ name, what, text: `${scrub.text(content).trimEnd()}\n` })),
    ...json.map(([name, what, value]) => ({
      name,
      what,
      text: `${JSON.stringify(scrub.value(value), null, 1)}\n`,
    })),
  ];
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

function loaderText({ loader, candidates }: MachineFacts): string {
  return [
    '# directories, as ldconfig reads them',
    ...loader.directories.map(({ path, from }) => `${path} (${from})`),
    '',
    '# of the cache',
    ...loader.cache.map(({ soname, flags, path }) => `${soname} (${flags}) => ${path}`),
    '',
    '# where a program may find a driver',
    ...candidates
      .filter(({ state }) => state.kind !== 'absent')
      .map(({ path, resolution, vendor, elf, elfProblem }) => {
        const end = resolution.kind === 'file' ? resolution.realPath : resolution.kind;
        const what = elf === null ? (elfProblem ?? 'no library') : `SONAME ${elf.soname ?? 'none'}`;
        return `${path} => ${end}: ${vendor ?? 'unknown'}, ${what}`;
      }),
  ].join('\n');
}

/** unit.txt has the texts already, environment files without their values; those of our service are known. */
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
