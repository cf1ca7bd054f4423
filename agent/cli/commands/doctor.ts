/** `vgpu-agent doctor`: why the service is not on the GPU, check by check; `--fix` repairs what is ours, `--trace` traces. */

import { accessSync, constants, existsSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import type { ReadyPlan } from '../../contracts/plan.js';
import { type Choice, chooseOne } from '../../install/pipeline/choose.js';
import { type Examined, examine, fix } from '../../install/pipeline/doctor.js';
import { type Traced, takeBackTrace, trace } from '../../install/pipeline/trace.js';
import type { DoctorWorkplace } from '../../install/pipeline/workplace.js';
import { ExitCode, errnoOf, VgpuError } from '../../lib/errors.js';
import { spawnRunner } from '../../lib/run-command.js';
import { bytes, oneLine, plural } from '../../lib/text.js';
import type { Profile } from '../../profile/types.js';
import { isHealthy } from '../../verdict/doctor/diagnose.js';
import type { Diagnosis, DoctorFacts } from '../../verdict/doctor/finding.js';
import type { TraceFacts } from '../../verdict/doctor/trace.js';
import { doctorText, traceText } from '../output/doctor-text.js';
import { planQuestion } from '../output/plan-text.js';
import { gatherReport } from '../report/report.js';
import { alreadyThere, cannotWrite } from '../report/tarball.js';
import {
  approval,
  approved,
  type CommandContext,
  examples,
  exitCodeForMode,
  type Outcome,
  type Run,
  requireRoot,
  requireSomeoneToAsk,
  seconds,
  serviceCommand,
  withWorkplace,
} from './common.js';

export type DoctorDocument = ReturnType<typeof documentOf>;

interface FixOutcome {
  /** `nothing`: nothing that is broken is ours to repair. */
  readonly outcome: 'nothing' | 'done' | 'declined';
  readonly changes: number;
  readonly broken: readonly string[];
}

/** Does not wait: a consumer that has said nothing so far is undetermined. */
const usualSeconds = 10;

interface DoctorOptions extends Choice {
  readonly timeout?: number;
  readonly fix?: true;
  readonly trace?: true;
  readonly yes?: true;
  readonly report?: string;
}

export function doctorCommand(run: Run): Command {
  const description = 'find out why the service does not use the GPU: checks with evidence and remedies';
  return serviceCommand('doctor', description)
    .option('--fix', 'repair the installation: show the plan, ask, check again')
    .option(
      '--trace',
      'restart the service with a tracer, show the library of each CUDA symbol, and restart it without the tracer; asks first',
    )
    .option(
      '--report <file>',
      'write a tarball for a bug report, with secrets removed; lists its contents and asks first',
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
        ['sudo vgpu-agent doctor --fix', 'repair what vgpu-agent installed'],
        ['sudo vgpu-agent doctor --trace', 'which libcuda the service really calls; restarts it twice'],
        ['sudo vgpu-agent doctor --report vgpu.tar.gz', 'for a bug report'],
        ['sudo vgpu-agent doctor --json | jq -r .first', 'the reason, in a script'],
      )}`,
    )
    .action((options: DoctorOptions) => run((context) => doctor(options, context), { stoppable: true }));
}

async function doctor(options: DoctorOptions, context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'doctor');
  if (options.report !== undefined) checkReport(options.report, options.yes === true, context);
  return withWorkplace(async (work) => {
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
    const document = documentOf(found, repaired, null);
    if (options.report === undefined) return outcomeOf(found, document);
    const written = await report(options.report, options.yes === true, { ...found, document }, context);
    return outcomeOf(found, { ...document, report: written });
  });
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
  const yes = options.yes === true;
  const question = (plan: ReadyPlan): string => planQuestion('Change this', plan);
  const ask = approval(context, 'doctor --fix', yes, question, look);
  const result = await fix(
    work,
    { profile, timeoutMs: 0, signal: context.signal, ...ask },
    context.talk.emit,
  );
  if (result?.kind === 'declined') return { outcome: 'declined', changes: 0, broken };
  return { outcome: 'done', changes: result?.kind === 'done' ? result.applied.changes : 0, broken };
}

function documentOf(
  { diagnosis, facts }: Examined,
  repaired: FixOutcome | null,
  written: ReportOutcome | null,
) {
  return {
    schema: 1 as const,
    command: 'doctor' as const,
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
    report: written,
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
        ...(report?.outcome === 'written' ? [`the report is in ${report.path}`] : []),
        ...(report?.outcome === 'declined' ? ['no report was written'] : []),
      ].join('\n'),
  };
}

export function exitCodeOf(diagnosis: Diagnosis): ExitCode {
  const { mode } = diagnosis.verdict;
  return mode === 'gpu' && !isHealthy(diagnosis) ? ExitCode.degraded : exitCodeForMode(mode);
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

interface ReportOutcome {
  readonly outcome: 'written' | 'declined';
  readonly path: string;
  readonly files: readonly { readonly name: string; readonly bytes: number; readonly what: string }[];
}

const look = 'vgpu-agent doctor';

/** Throws a VgpuError before the examination if FILE cannot be written, or if there is no terminal to ask on. */
function checkReport(file: string, yes: boolean, context: CommandContext): void {
  if (!yes) requireSomeoneToAsk(context, `doctor --report ${file}`, look);
  const unusable = (message: string, remedy: string): VgpuError =>
    new VgpuError(message, { kind: 'usage', operation: 'write the report', path: file, remedy });
  if (file === '') throw unusable('--report "" names no file', 'name a file, such as vgpu.tar.gz');
  if (existsSync(file)) throw alreadyThere(file);
  const directory = path.dirname(path.resolve(file));
  if (!existsSync(directory)) {
    const problem = `${path.dirname(file)} does not exist, so no report can be written there`;
    throw unusable(problem, 'name a file in a directory that exists');
  }
  try {
    accessSync(directory, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw cannotWrite(file, errnoOf(cause) ?? String(cause), cause);
  }
}

async function report(
  file: string,
  yes: boolean,
  found: { readonly facts: DoctorFacts; readonly diagnosis: Diagnosis; readonly document: object },
  context: CommandContext,
): Promise<ReportOutcome> {
  const runner = spawnRunner();
  const files = await gatherReport(runner, found.facts, found.diagnosis, found.document);
  const listed = files.map(({ name, what, text }) => ({ name, bytes: Buffer.byteLength(text), what }));
  const widest = Math.max(...listed.map(({ name }) => name.length));
  context.talk.pause();
  context.say('contents of the report (secrets, host names, user names and addresses are removed):');
  for (const one of listed) {
    context.say(`  ${one.name.padEnd(widest)}  ${bytes(one.bytes).padStart(9)}  ${one.what}`);
  }
  const go = await approved(context, `doctor --report ${file}`, yes, `Write it to ${file}?`, look);
  // The writer needs a library that no other command needs.
  if (go) await (await import('../report/tarball.js')).writeTarball(runner, file, files);
  return { outcome: go ? 'written' : 'declined', path: file, files: listed };
}

async function traceStart(
  work: DoctorWorkplace,
  { profile, timeoutMs }: { readonly profile: Profile; readonly timeoutMs: number | null },
  yes: boolean,
  context: CommandContext,
): Promise<Traced> {
  const approve = async (unit: string, serves: string | null): Promise<boolean> => {
    context.talk.pause();
    const now = serves === null ? '' : ` It serves requests now: ${oneLine(serves)}.`;
    const question = `Restart ${oneLine(unit)} twice, with the tracer and without it?${now}`;
    return approved(context, 'doctor --trace', yes, question, look);
  };
  return trace(work, { profile, timeoutMs, signal: context.signal, approve, asks: !yes }, context.talk.emit);
}

function traceOutcome(facts: TraceFacts | null) {
  if (facts === null) return null;
  if (facts.kind === 'not-traced') {
    const outcome = facts.declined ? 'declined' : 'not-possible';
    return { outcome, why: facts.why, lines: 0, strange: 0, cut: false, processes: [], deaf: [] };
  }
  const { lines, strange, cut, processes, live } = facts;
  const deaf = live.filter(({ traced }) => traced === false).map(({ pid, program }) => ({ pid, program }));
  return { outcome: 'traced', why: null, lines, strange, cut, processes, deaf };
}
