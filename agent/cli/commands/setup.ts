/** `vgpu-agent setup`: the wizard. Examines the machine, asks for the rest, and runs `install`. */
import { Command } from 'commander';
import type { Verdict } from '../../contracts/verdict.js';
import { type InstallResult, install } from '../../install/pipeline/install.js';
import type { DoctorWorkplace, Workplace } from '../../install/pipeline/workplace.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { plural, type Style, wrap } from '../../lib/text.js';
import { readableProfiles } from '../../profile/load.js';
import type { Diagnosis } from '../../verdict/doctor/finding.js';
import { firstFindingText } from '../output/doctor-text.js';
import { planText } from '../output/plan-text.js';
import { verdictText } from '../output/verdict-text.js';
import { back, beginning, commandLine, type DialogueEffects, decide, foundText } from '../wizard/dialogue.js';
import { type FindOutEffects, findHosts, findOut } from '../wizard/find-out.js';
import { type Ask, type Decision, goQuestion, yes } from '../wizard/questions.js';
import {
  type CommandContext,
  changeDocument,
  declined,
  examples,
  exitCodeForMode,
  type Outcome,
  type Run,
  requireRoot,
  withWorkplace,
} from './common.js';

const hostQuestionMs = 3_000;
/** Time that the doctor waits for the service's log; short, because `install` has waited already. */
const doctorMs = 10_000;

export function setupCommand(run: Run): Command {
  return new Command('setup')
    .description('install, guided by questions')
    .addHelpText(
      'after',
      '\nFinds services that can use a GPU and a host that answers, asks the other questions,\n' +
        'shows the plan, and installs it after a last question. Nothing is changed before\n' +
        'that. Ctrl-C at any question ends it with exit code 130.\n' +
        `Without a terminal, use install.\n${examples(['sudo vgpu-agent setup', 'ask and install'])}`,
    )
    .action(() => run(setup, { stoppable: true }));
}

async function setup(context: CommandContext): Promise<Outcome> {
  const { dialogue: ask } = context;
  if (ask === null) throw noTerminal();
  requireRoot(context, 'setup');
  return withWorkplace(async (work) => {
    return await converse(work, ask, context);
  });
}

function noTerminal(): VgpuError {
  return new VgpuError('setup needs an interactive terminal', {
    kind: 'usage',
    operation: 'setup',
    remedy:
      'use options instead: vgpu-agent install --profile NAME --host ADDRESS --service --yes ' +
      '(vgpu-agent install --help)',
  });
}

async function converse(work: DoctorWorkplace, ask: Ask, context: CommandContext): Promise<Outcome> {
  const { talk, signal, show } = context;
  const effects = await lookingEffects(work, context);
  const found = await findOut(effects);
  talk.pause();
  talk.keepSteps();
  show((style) => `${foundText(found, style)}\n`);
  const dialogue: DialogueEffects = {
    ask,
    askHost: async (endpoint) => {
      talk.emit({ kind: 'phase', phase: 'inspect', text: `asking for a host at ${endpoint}` });
      const answer = await effects.askHost(endpoint);
      talk.pause();
      return answer;
    },
    lookAgain: async () => {
      const hosts = await findHosts(effects, found.hosts);
      talk.pause();
      show((style) => `${foundText({ ...found, hosts }, style)}\n`);
      return hosts;
    },
    say: (text) => show((style) => wrap(text, style.width, '  ')),
  };
  let standing = beginning(found);
  for (;;) {
    const { decision, standing: decided } = await decide(standing, dialogue);
    let wentBack = false;
    const result = await install(
      work,
      {
        profile: decision.profile,
        host: decision.host,
        service: decision.service,
        force: false,
        restart: true,
        rollbackOnFailure: false,
        timeoutMs: null,
        signal,
        asks: true,
        approve: async (plan) => {
          talk.emit({ kind: 'plan', plan });
          show(() => '');
          const answer = await ask(goQuestion(plan.unit), { back: true });
          wentBack = answer.kind === 'back';
          return answer.kind === 'answer' && answer.value === yes;
        },
      },
      talk.emit,
    );
    if (!wentBack) return outcomeOf(result, decision, await whyNot(work, result, decision, context));
    standing = back(decided);
  }
}

/** The doctor's first finding where the verdict is not GPU; null: there is nothing to examine. */
async function whyNot(
  work: DoctorWorkplace,
  result: InstallResult,
  { profile }: Decision,
  { talk, signal }: CommandContext,
): Promise<Diagnosis | null> {
  if (result.kind !== 'done' || result.verdict === null || result.verdict.mode === 'gpu') return null;
  const { examine } = await import('../../install/pipeline/doctor.js');
  const { diagnosis } = await examine(
    work,
    { profile, timeoutMs: null, patienceMs: doctorMs, signal },
    talk.emit,
  );
  talk.pause();
  return diagnosis;
}

async function lookingEffects(work: Workplace, { talk, signal }: CommandContext): Promise<FindOutEffects> {
  const { hostAsker } = await import('../../install/pipeline/open-workplace.js');
  const { profiles, problems } = readableProfiles();
  for (const { message } of problems) {
    talk.emit({ kind: 'note', level: 'warning', code: 'bad-profile', text: message, remedy: null });
  }
  return {
    profiles,
    unit: (name) => work.unit(name),
    inspect: (profile) => work.inspect(profile, null, { quick: true }),
    planInstall: (profile, facts, options) => work.planInstall(profile, facts, options),
    askHost: hostAsker(hostQuestionMs),
    environmentHost: process.env['VGPU_HOST'],
    emit: talk.emit,
    signal,
  };
}

function outcomeOf(result: InstallResult, decision: Decision, diagnosis: Diagnosis | null): Outcome {
  const same = commandLine(decision);
  const again = `the same without questions:\n  ${same}`;
  if (result.kind !== 'done') {
    const unjudged = { commandLine: same, restart: { kind: 'not-planned' }, verdict: null };
    return declined('setup', result.plan, unjudged, `; ${again}`);
  }
  const { plan, applied, verdict } = result;
  const more = { commandLine: same, restart: applied.restart, verdict };
  return {
    exitCode: verdict === null ? ExitCode.done : exitCodeForMode(verdict.mode),
    document: changeDocument('setup', 'done', plan, applied.changes, more),
    text: (style) =>
      [
        ...(verdict === null ? [] : [verdictText(verdict, style, { doctor: diagnosis === null }), '']),
        ...findingText(diagnosis, style),
        plan.changes.length === 0
          ? planText(plan, style)
          : `installed (${plural(applied.changes, 'change')}); ${again}`,
        '',
        ...(plan.changes.length === 0 ? [again, ''] : []),
        whatNow(verdict, style),
      ].join('\n'),
  };
}

function findingText(diagnosis: Diagnosis | null, style: Style): readonly string[] {
  const text = diagnosis === null ? null : firstFindingText(diagnosis, style);
  return text === null ? [] : [text, ''];
}

/** The verdict tells the next command itself when it is not GPU. */
function whatNow(verdict: Verdict | null, style: Style): string {
  const lines =
    verdict?.mode === 'gpu'
      ? ['sudo vgpu-agent verify      is it still on the GPU?']
      : [
          'sudo vgpu-agent doctor      why not, check by check',
          'sudo vgpu-agent verify      after the repair: the verdict again',
        ];
  return [
    style.bold('From now on'),
    ...lines.map((line) => `  ${line}`),
    '  vgpu-agent status           what is installed, and what has changed since',
    '  sudo vgpu-agent uninstall   everything as it was before',
  ].join('\n');
}
