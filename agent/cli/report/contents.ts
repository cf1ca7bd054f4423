/** The contents of a report: small text files, each scrubbed. Pure. */

import type { MachineFacts } from '../../contracts/facts.js';
import type { UnitFacts } from '../../contracts/unit.js';
import { serviceText } from '../../install/plan/service-text.js';
import type { DoctorFacts } from '../../verdict/doctor/types.js';
import { redacted, type Scrubber } from './scrub.js';

export interface ReportFile {
  readonly name: string;
  /** The file's description, a phrase; listed before anything is written. */
  readonly what: string;
  readonly text: string;
}

/** The sources of the report, as they are on the machine. */
export interface ReportSources {
  readonly facts: DoctorFacts;
  /** The document of `doctor --json` and its text at 80 columns. */
  readonly document: object;
  readonly text: string;
  /** `name version` lines: of the agent, Node, the kernel, systemd, the loader. */
  readonly versions: readonly string[];
  /** Log lines of this start of the consumer, and of vgpu-agent's own service, oldest first. */
  readonly journal: readonly string[];
  readonly agentJournal: readonly string[];
}

/** Every byte of what comes back went through `scrub`. */
export function reportFiles(sources: ReportSources, scrub: Scrubber): readonly ReportFile[] {
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

/** The names that an environment file assigns. */
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
