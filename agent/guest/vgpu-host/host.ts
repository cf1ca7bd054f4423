/** Where the host is, and whether a GPU answers there. */

import type { HostFacts, ShimBuild } from '../../contracts/facts.js';
import { noAnswer, troubleOf } from '../../contracts/host-word.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { EndpointSources } from './endpoint.js';
import { resolveEndpoint } from './endpoint.js';
import { askProbe, describeFailure } from './probe.js';

export interface HostQuestion {
  readonly sources: EndpointSources;
  /** The probe and library to ask with; null when only the address is wanted. */
  readonly shim: Pick<ShimBuild, 'files'> | null;
  readonly timeoutMs: number;
}

/**
 * Asks through our own library, because only it speaks the transport (vsock is beyond Node). Throws a
 * VgpuError (`usage`) for a bad `--host` or `VGPU_HOST`; a host that does not answer is a fact.
 */
export async function readHost(runner: CommandRunner, question: HostQuestion): Promise<HostFacts> {
  const { endpoint, from, problem } = resolveEndpoint(question.sources);
  if (problem !== null)
    return { endpoint, from, answer: { kind: 'unreachable', message: problem, word: null } };
  const program = sourceOf(question.shim, 'vgpu-probe');
  const library = sourceOf(question.shim, 'libcuda.so.1');
  if (program === null || library === null) return { endpoint, from, answer: { kind: 'unasked' } };
  const answer = await askProbe(runner, { program, library, host: endpoint, timeoutMs: question.timeoutMs });
  return { endpoint, from, answer: judge(answer) };
}

function sourceOf(shim: HostQuestion['shim'], name: string): string | null {
  return shim?.files.find((file) => file.name === name)?.source ?? null;
}

function judge(answer: Awaited<ReturnType<typeof askProbe>>): HostFacts['answer'] {
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
