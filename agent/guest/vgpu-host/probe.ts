/** Asks a libcuda for its devices, by running `vgpu-probe` as ourselves: no sandbox, no unit's environment. */
import type { HostAnswer, HostFacts, HostOfSeveral, ShimBuild } from '../../contracts/facts.js';
import { noAnswer, type ProbeReport, parseProbeReport, troubleOf } from '../../contracts/probe.js';
import { VgpuError } from '../../lib/errors.js';
import { type CommandRunner, toolEnvironment } from '../../lib/run-command.js';
import { type EndpointSources, hostInUse, readHostInUse, resolveEndpoint, splitHosts } from './endpoint.js';

interface ProbeQuestion {
  readonly program: string;
  readonly library: string;
  /** `VGPU_HOST` for our shim; null leaves it unset. */
  readonly host: string | null;
  readonly timeoutMs: number;
}

type ProbeAnswer =
  | {
      readonly kind: 'report';
      readonly report: ProbeReport;
      readonly milliseconds: number;
    }
  | { readonly kind: 'timed-out'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

/** The probe ends itself at its time-out; this is how much later it is ended. */
const graceMs = 1_000;

/** Never rejects because of what the library or the host does: no answer is an answer. */
export async function askProbe(runner: CommandRunner, question: ProbeQuestion): Promise<ProbeAnswer> {
  const { program, library, host, timeoutMs } = question;
  const { VGPU_HOST: _, VGPU_LOG: __, ...environment } = toolEnvironment(process.env);
  const started = performance.now();
  try {
    const result = await runner.run(
      program,
      ['--library', library, '--json', '--timeout', String(timeoutMs / 1000)],
      {
        env: host === null ? environment : { ...environment, VGPU_HOST: host },
        timeoutMs: timeoutMs + graceMs,
      },
    );
    const milliseconds = Math.round(performance.now() - started);
    if (result.timedOut) {
      return { kind: 'timed-out', message: `${program} did not end within ${timeoutMs} ms` };
    }
    const parsed = parseProbeReport(result.stdout.toString('utf8'));
    if (!('problem' in parsed)) return { kind: 'report', report: parsed, milliseconds };
    const said = result.stderr.toString('utf8').trim();
    const end = `${program} ended with ${result.signal ?? `status ${result.code}`}`;
    return { kind: 'failed', message: said === '' ? `${end}: ${parsed.problem}` : said };
  } catch (error) {
    if (error instanceof VgpuError) return { kind: 'failed', message: error.message };
    throw error;
  }
}

export function describeFailure(report: ProbeReport): string {
  const noHost = troubleOf(report.host);
  if (noHost !== null) return noHost.message;
  if (report.error !== null) {
    const { step, message } = report.error;
    return message.includes(step) ? message : `${step}: ${message}`;
  }
  if (report.devices.length === 0) return 'the driver lists no device';
  return report.roundTrip === null
    ? 'the memory round trip was not made'
    : 'the memory round trip returned other bytes';
}

export interface HostQuestion {
  readonly sources: EndpointSources;
  /** The probe and library to ask with; null when only the address is wanted. */
  readonly shim: Pick<ShimBuild, 'files'> | null;
  readonly timeoutMs: number;
}

/** Only our library speaks the transport (Node has no vsock). Throws `usage` for a bad address. */
export async function readHost(runner: CommandRunner, question: HostQuestion): Promise<HostFacts> {
  const { endpoint, from, problem } = resolveEndpoint(question.sources);
  if (problem !== null)
    return { endpoint, from, answer: { kind: 'unreachable', message: problem, word: null } };
  const program = sourceOf(question.shim, 'vgpu-probe');
  const library = sourceOf(question.shim, 'libcuda.so.1');
  const ask = async (host: string): Promise<HostAnswer> =>
    program === null || library === null
      ? { kind: 'unasked' }
      : judge(await askProbe(runner, { program, library, host, timeoutMs: question.timeoutMs }));
  const addresses = splitHosts(endpoint);
  if (addresses.length === 1) return { endpoint, from, answer: await ask(endpoint) };
  const answers = await Promise.all(
    addresses.map(async (one) => ({ endpoint: one, answer: await ask(one) })),
  );
  return { endpoint, from, ...severalHosts(answers, hostInUse(endpoint, readHostInUse())) };
}

/** `preferred` is the host in use, if it answers or none does; else the first that answers. */
export function severalHosts(
  answers: readonly Omit<HostOfSeveral, 'inUse'>[],
  preferred: string,
): Pick<HostFacts, 'answer' | 'hosts'> {
  const at = answers.find((one) => one.endpoint === preferred);
  const used = at?.answer.kind === 'unreachable' ? (answers.find(answersNow) ?? at) : at;
  const hosts = answers.map((one) => ({ ...one, inUse: one === used }));
  if (used === undefined || used.answer.kind !== 'unreachable')
    return { answer: used?.answer ?? { kind: 'unasked' }, hosts };
  const { word } = used.answer;
  const message = hosts
    .map(({ endpoint, answer }) =>
      answer.kind === 'unreachable' ? named(endpoint, answer.message) : endpoint,
    )
    .join('; ');
  return { answer: { kind: 'unreachable', message, word }, hosts };
}

function answersNow({ answer }: Pick<HostOfSeveral, 'answer'>): boolean {
  return answer.kind === 'answers';
}

function named(endpoint: string, message: string): string {
  return message.includes(endpoint) ? message : `${endpoint}: ${message}`;
}

function sourceOf(shim: HostQuestion['shim'], name: string): string | null {
  return shim?.files.find((file) => file.name === name)?.source ?? null;
}

function judge(answer: Awaited<ReturnType<typeof askProbe>>): HostAnswer {
  if (answer.kind !== 'report') {
    const { kind, message } = answer;
    return { kind: 'unreachable', message, word: kind === 'timed-out' ? noAnswer(message) : null };
  }
  const { report, milliseconds } = answer;
  const [device] = report.devices;
  if (!report.ok || device === undefined) {
    const message = describeFailure(report);
    const silent = report.error?.kind === 'timeout' ? noAnswer(message) : null;
    return { kind: 'unreachable', message, word: troubleOf(report.host) ?? silent };
  }
  return {
    kind: 'answers',
    device: device.name,
    simulated: report.simulated,
    milliseconds,
    devices: report.devices.length,
  };
}
