/** `vgpu-agent doctor`: why the service is not on the GPU, check by check; `--fix` repairs what is ours, `--trace` traces. */
import { Command } from 'commander';
import type { Verdict } from '../../contracts/verdict.js';
import { chooseOne } from '../../install/pipeline/choose.js';
import { type Examined, examine, fix } from '../../install/pipeline/doctor.js';
import type { InstallResult } from '../../install/pipeline/install.js';
import { takeBackTrace } from '../../install/pipeline/trace.js';
import type { DoctorWorkplace } from '../../install/pipeline/workplace.js';
import { ExitCode } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import type { Profile } from '../../profile/types.js';
import { exitCodeOf, isHealthy } from '../../verdict/doctor/diagnose.js';
import type { Diagnosis, Finding } from '../../verdict/doctor/types.js';
import { doctorText } from '../output/doctor-text.js';
import { planQuestion } from '../output/plan-text.js';
import { traceText } from '../output/trace-text.js';
import { approved, requireRoot } from './common.js';
import { checkReport, type ReportOutcome, report as writeReport } from './doctor-report.js';
import { type TraceOutcome, traceOutcome, traceStart } from './doctor-trace.js';
import { examples, profileHelp, seconds, unitHelp, unitName } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface DoctorDocument {
  readonly schema: 1;
  readonly command: 'doctor';
  readonly healthy: boolean;
  readonly verdict: Verdict;
  /** Id of the check that is the reason; null when nothing is broken. */
  readonly first: string | null;
  /** In the order of causes. */
  readonly checks: readonly {
    readonly id: string;
    readonly title: string;
    readonly looksAt: string;
    readonly finding: Finding;
  }[];
  /** The changes that `--fix` made before these findings; null without it. */
  readonly fix: FixOutcome | null;
  /** The result of `--trace`; null without it. */
  readonly trace: TraceOutcome | null;
  /** The archive that `--report` wrote; null without it. */
  readonly report: ReportOutcome | null;
}

export interface FixOutcome {
  /** `nothing`: nothing that is broken is ours to repair. */
  readonly outcome: 'nothing' | 'done' | 'declined';
  /** Changes that were carried out. */
  readonly changes: number;
  /** Ids of the checks that were broken before. */
  readonly broken: readonly string[];
}

/** Does not wait: a consumer that has said nothing so far is undetermined. */
const usualSeconds = 10;

interface DoctorOptions {
  readonly profile?: string;
  readonly unit?: string;
  readonly timeout?: number;
  readonly fix?: true;
  readonly trace?: true;
  readonly yes?: true;
  readonly report?: string;
}

export function doctorCommand(run: Run): Command {
  return new Command('doctor')
    .description('find out why the service does not use the GPU: checks with evidence and remedies')
    .option('-p, --profile <name>', profileHelp)
    .option('-u, --unit <service>', unitHelp, unitName)
    .option('--fix', 'repair what vgpu-agent can repair: show the plan, ask, check again')
    .option(
      '--trace',
      'restart the service with a tracer that shows the library of each CUDA symbol, then without it; asks first',
    )
    .option(
      '--report <file>',
      'write a tarball for a bug report without secrets; lists its contents and asks first',
    )
    .option('-y, --yes', 'do not ask')
    .option(
      '--timeout <seconds>',
      `wait at most this long for the service's log (default: ${usualSeconds}; after a restart that of the profile)`,
      seconds,
    )
    .addHelpText(
      'after',
      `\nThe first BROKEN is the reason. man vgpu-doctor explains each check.\nThe exit code is 0 when nothing is broken and the GPU is confirmed, else the\nverdict: 3 CPU, 4 undetermined, 5 degraded.\n${examples(
        ['sudo vgpu-agent doctor', 'what is wrong, and what to do'],
        ['sudo vgpu-agent doctor --fix', 'repair it, where vgpu-agent can'],
        ['sudo vgpu-agent doctor --trace', 'which libcuda it really calls; restarts it twice'],
        ['sudo vgpu-agent doctor --report vgpu.tar.gz', 'for a bug report'],
        ['sudo vgpu-agent doctor --json | jq -r .first', 'the reason, in a script'],
      )}`,
    )
    .action((options: DoctorOptions) => run((context) => doctor(options, context), { stoppable: true }));
}

async function doctor(options: DoctorOptions, context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'doctor');
  if (options.report !== undefined) checkReport(options.report, options.yes === true, context);
  const { openWorkplace } = await import('../../install/pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    const profile = await chooseOne(work, options);
    const { emit } = context.talk;
    // A start that has only begun is given the time that the profile grants.
    const patience = (began: boolean) =>
      options.timeout === undefined
        ? { timeoutMs: null, patienceMs: began ? null : usualSeconds * 1000 }
        : { timeoutMs: options.timeout * 1000 };
    const { signal } = context;
    const began = await takeBackTrace(work, emit);
    let found: Examined | null = null;
    let repaired: FixOutcome | null = null;
    if (options.fix === true) {
      found = await examine(work, { profile, ...patience(began), signal }, emit);
      repaired = await repair(work, profile, found.diagnosis, options, context);
      if (repaired.outcome === 'done') found = null;
    }
    if (options.trace === true) {
      const asked = { profile, ...patience(true) };
      const traced = await traceStart(work, asked, options.yes === true, context);
      const waits = patience(began || traced.mark !== null);
      try {
        found = await examine(work, { profile, ...waits, signal, traced }, emit);
      } finally {
        traced.mark?.looking.stop();
      }
    }
    found ??= await examine(work, { profile, ...patience(began), signal }, emit);
    const document = documentOf(found, repaired);
    if (options.report === undefined) return outcomeOf(found, document);
    const written = await writeReport(options.report, options.yes === true, { ...found, document }, context);
    return outcomeOf(found, { ...document, report: written });
  } finally {
    close();
  }
}

async function repair(
  work: DoctorWorkplace,
  profile: Profile,
  before: Diagnosis,
  options: DoctorOptions,
  context: CommandContext,
): Promise<FixOutcome> {
  const broken = before.broken.map(({ check }) => check.id);
  const ours = before.results.some(
    ({ finding }) => (finding.kind === 'broken' || finding.kind === 'warning') && finding.remedy.fix,
  );
  if (!ours) return { outcome: 'nothing', changes: 0, broken };
  const { emit } = context.talk;
  const result = await fix(
    work,
    {
      profile,
      timeoutMs: 0,
      signal: context.signal,
      asks: options.yes !== true,
      approve: async (plan) => {
        emit({ kind: 'plan', plan });
        return approved(
          context,
          'doctor --fix',
          options.yes === true,
          planQuestion('Change this', plan),
          'vgpu-agent plan',
        );
      },
    },
    emit,
  );
  return { ...carriedOut(result), broken };
}

function carriedOut(result: InstallResult | null): Pick<FixOutcome, 'outcome' | 'changes'> {
  if (result?.kind === 'declined') return { outcome: 'declined', changes: 0 };
  return { outcome: 'done', changes: result?.kind === 'done' ? result.applied.changes : 0 };
}

function documentOf({ diagnosis, facts }: Examined, repaired: FixOutcome | null): DoctorDocument {
  return {
    schema: 1,
    command: 'doctor',
    healthy: isHealthy(diagnosis),
    verdict: diagnosis.verdict,
    first: diagnosis.broken[0]?.check.id ?? null,
    checks: diagnosis.results.map(({ check, finding }) => ({
      id: check.id,
      title: check.title,
      looksAt: check.looksAt,
      finding,
    })),
    fix: repaired,
    trace: traceOutcome(facts.trace),
    report: null,
  };
}

function outcomeOf({ diagnosis, facts }: Examined, document: DoctorDocument): Outcome {
  const { fix: repaired, trace, report } = document;
  const declined = [repaired, trace, report].some((one) => one?.outcome === 'declined');
  return {
    exitCode: declined ? ExitCode.interrupted : exitCodeOf(diagnosis),
    document,
    text: (style) =>
      [
        ...traceText(facts.trace, style),
        doctorText(diagnosis, style),
        ...repairedText(repaired, diagnosis),
        ...(trace?.outcome === 'declined' ? ['--trace: nothing was restarted'] : []),
        ...reportText(report),
      ].join('\n'),
  };
}

function repairedText(repaired: FixOutcome | null, { results }: Diagnosis): readonly string[] {
  const isSound = results.every(({ finding }) => finding.kind !== 'broken' && finding.kind !== 'warning');
  switch (repaired?.outcome) {
    case undefined:
      return [];
    case 'nothing':
      return [isSound ? '--fix: nothing to repair' : '--fix: vgpu-agent can repair none of these findings'];
    case 'declined':
      return ['--fix: nothing was changed'];
    case 'done':
      return [`--fix: ${plural(repaired.changes, 'change')} made; the result follows`];
  }
}

function reportText(report: ReportOutcome | null): readonly string[] {
  if (report === null) return [];
  return [report.outcome === 'declined' ? 'no report was written' : `the report is in ${report.path}`];
}
