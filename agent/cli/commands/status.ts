/**
 * `vgpu-agent status`: what is installed, what has drifted, and where the service runs now. It waits for no change, but
 * looks for itself where vgpu-agent.service has no verdict yet.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import type { Verdict } from '../../contracts/verdict.js';
import type { StatusView } from '../../contracts/views.js';
import { type Choice, chooseAll, chooseOne } from '../../install/pipeline/choose.js';
import { allInOne, asOf, statusView, unjudged, withVerdictOf } from '../../install/pipeline/status-view.js';
import type { Workplace } from '../../install/pipeline/workplace.js';
import { findConsumer } from '../../install/plan/owned.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { packageRoot } from '../../lib/paths.js';
import { describing, readAs, type Schema } from '../../lib/schema.js';
import type { Profile } from '../../profile/types.js';
import { type AgentClient, askAgent } from '../../systemd/agent-client.js';
import { BusError } from '../../systemd/connection.js';
import { text as textOf } from '../../systemd/properties.js';
import { statusText } from '../output/status-text.js';
import {
  type CommandContext,
  examples,
  exitCodeForMode,
  type Outcome,
  type Run,
  serviceCommand,
  withWorkplace,
} from './common.js';

export interface StatusDocument extends StatusView {
  readonly schema: 1;
  readonly command: 'status';
}

/** No wait: the verdict uses existing evidence; a consumer without an announcement is `undetermined`. */
const consumerMs = 2_000;
/** The limit while the service makes its own verdict: on a slow machine both verdicts are slow. */
const besideServiceMs = 10_000;

interface StatusOptions extends Choice {
  readonly fresh?: true;
}

export function statusCommand(run: Run): Command {
  const description = 'show what is installed, what has drifted, and whether the service uses the GPU';
  return serviceCommand('status', description)
    .option('--fresh', "inspect the machine even if the agent's service runs")
    .addHelpText(
      'after',
      `\nThe exit code is the verdict if something is installed, else 0:\n0 GPU, 3 CPU, 4 undetermined, 5 degraded or restart-pending.\n${examples(
        ['sudo vgpu-agent status', 'with the verdict'],
        ['vgpu-agent status --json | jq .drift', 'what has changed since install'],
      )}`,
    )
    .action((options: StatusOptions) => run((context) => status(options, context)));
}

async function status(options: StatusOptions, context: CommandContext): Promise<Outcome> {
  const told = options.fresh === true ? null : await serviceStatus(options);
  if (told !== null) {
    return outcomeOf(context.isRoot ? await judgedAll(told, context) : told);
  }
  return withWorkplace(async (work) => {
    const [first, ...others] = await chooseAll(work, options);
    if (first === undefined)
      throw new VgpuError('no consumer to look at', { kind: 'internal', operation: 'status' });
    const views: [StatusView, ...StatusView[]] = [await look(work, first, context)];
    for (const profile of others) views.push(await look(work, profile, context));
    return outcomeOf({ schema: 1, command: 'status', ...allInOne(views) });
  }, context.talk);
}

function outcomeOf(document: StatusDocument): Outcome {
  return { exitCode: exitCodeOf(document), document, text: (style) => statusText(document, style) };
}

/** The service judges a start seconds after it has settled: until then the verdict is our own. */
async function judgedAll(told: StatusDocument, context: CommandContext): Promise<StatusDocument> {
  const names = unjudged(told);
  if (names.length === 0) return told;
  return withWorkplace(async (work) => {
    let known = told;
    for (const unit of names) {
      const profile = await chooseOne(work, { unit });
      const { verdict } = await look(work, profile, context, besideServiceMs);
      known = { ...known, ...withVerdictOf(known, unit, verdict) };
    }
    return known;
  }, context.talk);
}

async function look(
  work: Workplace,
  profile: Profile,
  context: CommandContext,
  patienceMs = consumerMs,
): Promise<StatusView> {
  const { emit } = context.talk;
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
  const facts = await work.inspect(profile, null, { quick: true });
  emit({ kind: 'facts', facts });
  const { manifest } = facts;
  // A consumer that is not installed has no drift and no verdict.
  const installed = findConsumer(manifest, profile.unit) !== undefined ? manifest : null;
  let verdict: Verdict | null = null;
  // Only root can read other users' maps and the journal: a verdict without them would mislead.
  if (installed !== null && context.isRoot) {
    const request = { profile, facts, mark: null, timeoutMs: null, patienceMs, signal: context.signal };
    verdict = await work.confirm(request, emit);
  }
  const plan =
    installed === null
      ? null
      : work.planInstall(profile, facts, {
          endpoint: installed.endpoint,
          force: true,
          allowUnreachable: true,
          restart: false,
        });
  // The service may run and not have looked yet: until then nobody else names a mistake in its configuration.
  return { ...statusView(profile, facts, plan, verdict), configProblem: facts.service?.confProblem ?? null };
}

function exitCodeOf(view: StatusView): ExitCode {
  if (view.installed === null) return ExitCode.done;
  const codes = view.consumers.map(({ verdict }) =>
    verdict === null ? ExitCode.undetermined : exitCodeForMode(verdict.mode),
  );
  // It works, but with former files: a person has to know that a restart waits.
  if (view.consumers.some(({ service }) => service?.state === 'restart-pending'))
    codes.push(ExitCode.degraded);
  const worst = [ExitCode.cpu, ExitCode.degraded, ExitCode.undetermined].find((code) => codes.includes(code));
  return worst ?? ExitCode.done;
}

/** Null: the service does not run, has not looked yet, or does not look after this consumer. */
function serviceStatus(choice: Choice): Promise<StatusDocument | null> {
  return askAgent((agent) => documentOf(agent, choice));
}

async function documentOf(agent: AgentClient, choice: Choice): Promise<StatusDocument | null> {
  const properties = await agent.properties();
  const document = readStatus(textOf(properties, 'Status', 'null'));
  const chosen = document === null ? null : chosenOf(document, choice);
  return chosen === null ? null : { ...chosen, ...asOf(chosen, Date.now()) };
}

/** Has the service judge again. Null: it does not run, or does not look after this unit. */
export function serviceVerdict(unit: string): Promise<Verdict | null> {
  return askAgent(async (agent) => {
    try {
      if ((await documentOf(agent, { unit })) === null) return null;
      await agent.verify();
      return (await documentOf(agent, { unit }))?.verdict ?? null;
    } catch (error) {
      // The service ended meanwhile, or this user may not call it.
      if (error instanceof BusError || error instanceof VgpuError) return null;
      throw error;
    }
  });
}

/** Null: the service has not looked yet, or is of another version and says it in another way. */
export function readStatus(json: string): StatusDocument | null {
  const checked = readAs(statusSchema(), json);
  return checked.kind === 'fits' ? checked.value : null;
}

function chosenOf(document: StatusDocument, { profile, unit }: Choice): StatusDocument | null {
  if (profile === undefined && unit === undefined) return document;
  const consumers = document.consumers.filter(
    (one) =>
      (profile === undefined || one.profile === profile) && (unit === undefined || one.unit.name === unit),
  );
  const [first] = consumers;
  if (first === undefined) return null;
  const { drift, verdict } = first;
  const installed =
    document.installed === null
      ? null
      : { ...document.installed, profile: first.profile, unit: first.unit.name };
  return { ...document, installed, consumers, unit: first.unit, drift, verdict };
}

// The output of `status --json`, as docs/json describes it: the service answers with the same document.

export function statusSchema(): Schema<StatusDocument> {
  const status = read('status.schema.json');
  return describing({
    ...status,
    $defs: { ...Object(Reflect.get(status, '$defs')), common: read('common.schema.json') },
  });
}

function read(name: string): object {
  return Object(JSON.parse(readFileSync(path.join(packageRoot(), 'docs', 'json', name), 'utf8')));
}
