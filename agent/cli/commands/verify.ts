/**
 * `vgpu-agent verify`: the verdict about the start that the service is in now. Restarts nothing, but for a service that
 * a killed `doctor --trace` left with the tracer.
 */
import type { Command } from 'commander';
import type { Emit } from '../../contracts/events.js';
import type { Verdict } from '../../contracts/verdict.js';
import { type Choice, chooseOne } from '../../install/pipeline/choose.js';
import { takeBackTrace } from '../../install/pipeline/trace.js';
import { VgpuError } from '../../lib/errors.js';
import { verdictText } from '../output/verdict-text.js';
import {
  type CommandContext,
  computeHelp,
  examples,
  exitCodeForMode,
  type Outcome,
  type Run,
  requireRoot,
  seconds,
  serviceCommand,
  withWorkplace,
} from './common.js';
import { serviceVerdict } from './status.js';

interface VerifyOptions extends Choice {
  readonly timeout?: number;
  readonly compute?: true;
}

export function verifyCommand(run: Run): Command {
  const description = 'verify that the service uses the GPU, from its log, its processes and a probe';
  return serviceCommand('verify', description)
    .option('--timeout <seconds>', 'wait at most this long (default: that of the profile)', seconds)
    .option('--compute', computeHelp)
    .addHelpText(
      'after',
      `\nThe exit code is the verdict: 0 GPU, 3 CPU, 4 undetermined, 5 degraded.\n${examples(
        ['sudo vgpu-agent verify', 'verdict, evidence, reason, next command'],
        ['sudo vgpu-agent verify --compute', 'the strongest evidence: results that the GPU computed'],
        ['sudo vgpu-agent verify --quiet >/dev/null || echo "not on the GPU"', 'in a script'],
      )}`,
    )
    .action((options: VerifyOptions) => run((context) => verify(options, context), { stoppable: true }));
}

async function verify(options: VerifyOptions, context: CommandContext): Promise<Outcome> {
  return withWorkplace(async (work) => {
    const profile = await chooseOne(work, options);
    requireRoot(context, 'verify');
    const { emit } = context.talk;
    await takeBackTrace(work, emit);
    emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
    const shared =
      options.compute === true || options.timeout !== undefined
        ? null
        : await interruptible(serviceVerdict(profile.unit), context.signal);
    if (shared !== null) return outcome(shared, emit);
    const facts = await work.inspect(profile, null);
    emit({ kind: 'facts', facts });
    emit({ kind: 'phase', phase: 'confirm', text: `finding out where ${profile.unit} runs` });
    const timeoutMs = options.timeout === undefined ? null : options.timeout * 1000;
    const judged = await work.confirm(
      { profile, facts, mark: null, timeoutMs, compute: options.compute === true, signal: context.signal },
      emit,
    );
    // Without an installation the doctor has nothing to check.
    const bare = facts.manifest === null && judged.mode !== 'gpu' && facts.unit.kind === 'loaded';
    const verdict = bare ? { ...judged, next: installHint(options) } : judged;
    await work.journal.write({ kind: 'verdict', verdict });
    return outcome(verdict, emit);
  }, context.talk);
}

function outcome(verdict: Verdict, emit: Emit): Outcome {
  emit({ kind: 'verdict', verdict });
  return {
    exitCode: exitCodeForMode(verdict.mode),
    document: { schema: 1, command: 'verify', verdict },
    text: (style) => verdictText(verdict, style),
  };
}

async function interruptible<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  work.catch(() => {});
  return new Promise((resolve, reject) => {
    const stop = (): void =>
      reject(
        new VgpuError('stopped while waiting for the verdict', { kind: 'interrupted', operation: 'verify' }),
      );
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject);
  });
}

function installHint({ profile, unit }: Choice): string {
  const which = `${profile === undefined ? '' : ` --profile ${profile}`}${unit === undefined ? '' : ` --unit ${unit}`}`;
  return `sudo vgpu-agent install${which}`;
}
