/** doctor --report: gathers what a bug report needs beside the doctor's own facts, scrubbed. */
import { readFileSync } from 'node:fs';
import { release } from 'node:os';
import { agentVersion } from '../../lib/agent-version.js';
import { agentUnit } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { styleFor } from '../../lib/style.js';
import { logNamespace, namespaceOption } from '../../systemd/unit-output.js';
import type { Diagnosis, DoctorFacts } from '../../verdict/doctor/types.js';
import { doctorText } from '../output/doctor-text.js';
import { traceText } from '../output/trace-text.js';
import { type ReportFile, reportFiles } from './contents.js';
import { readIdentity } from './identity.js';
import { createScrubber } from './scrub.js';

/** Lines of a journal: the newest are kept. */
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
