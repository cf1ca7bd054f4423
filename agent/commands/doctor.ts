/** `vgpu-agent doctor`: why the service is not on the GPU, check by check; `--fix` mends what is ours. */
import { Command } from 'commander';
import type { Verdict } from '../confirm/types.js';
import { exitCodeOf, isHealthy } from '../doctor/diagnose.js';
import type { Diagnosis, Finding } from '../doctor/types.js';
import { ExitCode } from '../errors.js';
import { doctorText } from '../output/doctor-text.js';
import { plural } from '../output/text.js';
import { examine, fix } from '../pipeline/doctor.js';
import type { InstallResult } from '../pipeline/install.js';
import type { DoctorWorkplace } from '../pipeline/workplace.js';
import type { Profile } from '../profile/types.js';
import { approved, chosenProfile, requireRoot } from './common.js';
import { examples, profileHelp, seconds } from './options.js';
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
  /** What `--fix` did before these findings; null without it. */
  readonly fix: FixOutcome | null;
}

export interface FixOutcome {
  /** `nothing`: nothing that is broken is ours to mend. */
  readonly outcome: 'nothing' | 'done' | 'declined';
  /** Changes that were carried out. */
  readonly changes: number;
  /** Ids of the checks that were broken before. */
  readonly broken: readonly string[];
}

/** What is there is there: a consumer that has said nothing by then is undetermined. */
const usualSeconds = 10;

interface DoctorOptions {
  readonly profile?: string;
  readonly timeout?: number;
  readonly fix?: true;
  readonly yes?: true;
}

export function doctorCommand(run: Run): Command {
  return new Command('doctor')
    .description('why is the service not on the GPU? Each check with evidence and what to do')
    .option('-p, --profile <name>', profileHelp)
    .option('--fix', 'mend what is ours to mend: shows the plan, asks, looks again')
    .option('-y, --yes', 'do not ask')
    .option(
      '--timeout <seconds>',
      `wait at most so long for the service to say something (default: ${usualSeconds})`,
      seconds,
    )
    .addHelpText(
      'after',
      `\nThe first BROKEN is the reason. man vgpu-doctor explains each check.\nThe exit code is 0 when nothing is broken and the GPU is confirmed, else the\nverdict: 3 CPU, 4 undetermined, 5 degraded.\n${examples(
        ['sudo vgpu-agent doctor', 'what is wrong, and what to do'],
        ['sudo vgpu-agent doctor --fix', 'mend it, where that is ours to do'],
        ['sudo vgpu-agent doctor --json | jq -r .first', 'the reason, in a script'],
      )}`,
    )
    .action((options: DoctorOptions) => run((context) => doctor(options, context), { stoppable: true }));
}

async function doctor(options: DoctorOptions, context: CommandContext): Promise<Outcome> {
  const { openWorkplace } = await import('../pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    const profile = await chosenProfile(work, options.profile);
    requireRoot(context, 'doctor');
    const { emit } = context.talk;
    const timeoutMs = (options.timeout ?? usualSeconds) * 1000;
    const request = { profile, timeoutMs, signal: context.signal };
    const { diagnosis } = await examine(work, request, emit);
    if (options.fix !== true) return outcomeOf(diagnosis, null);
    const mended = await mend(work, profile, diagnosis, options, context);
    if (mended.outcome !== 'done') return outcomeOf(diagnosis, mended);
    const after = await examine(work, request, emit);
    return outcomeOf(after.diagnosis, mended);
  } finally {
    close();
  }
}

async function mend(
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
      approve: async (plan) => {
        emit({ kind: 'plan', plan });
        const question = `Change this, and restart ${plan.unit}?`;
        return approved(context, 'doctor --fix', options.yes === true, question, 'vgpu-agent plan');
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

function outcomeOf(diagnosis: Diagnosis, mended: FixOutcome | null): Outcome {
  const document: DoctorDocument = {
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
    fix: mended,
  };
  return {
    exitCode: mended?.outcome === 'declined' ? ExitCode.interrupted : exitCodeOf(diagnosis),
    document,
    text: (style) => `${doctorText(diagnosis, style)}${mendedText(mended)}`,
  };
}

function mendedText(mended: FixOutcome | null): string {
  switch (mended?.outcome) {
    case undefined:
      return '';
    case 'nothing':
      return '\n--fix: nothing of this is ours to mend';
    case 'declined':
      return '\n--fix: nothing was changed';
    case 'done':
      return `\n--fix: ${plural(mended.changes, 'change')} made; this is how it is now`;
  }
}
