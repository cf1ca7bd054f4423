import { type HostWord, troubleOf } from '../../../contracts/host-word.js';
import { parseEndpoint } from '../../../guest/vgpu-host/endpoint.js';
import { slowHostMs, transportTrouble } from '../../diagnosis.js';
import { broken, byHand, ok, onTheHost, unknown, warning } from '../finding.js';
import type { Check, DoctorFacts, Finding, Remedy } from '../types.js';

/** Does a program listen there, and does it answer in time? */
export const host: Check = {
  id: 'host',
  title: 'the host answers',
  looksAt:
    "the host's address, asked twice by vgpu-probe: as root without a sandbox, and as the service's user in the sandbox of the unit",
  explains: [
    'host-unreachable',
    'host-refused',
    'host-foreign',
    'host-version',
    'host-slow',
    'no-device',
    'memory-round-trip-failed',
    'model-on-cpu',
  ],
  examine(facts) {
    const { machine, observation, look } = facts;
    const { endpoint, answer } = machine.host;
    const seen = transportTrouble(observation);
    const inUnit = wordInUnit(facts);
    switch (answer.kind) {
      case 'answers':
        return answersFor(facts, answer, seen?.reason === 'host-refused' ? inUnit : null);
      case 'unasked':
        return unknown(`${endpoint} could not be asked`);
      case 'unreachable': {
        const { word, message } = answer;
        const evidence = [...wordsOf(endpoint, message, word ?? inUnit), ...look.hostSocket];
        return unreachable(facts, evidence, word ?? inUnit);
      }
    }
  },
};

/** The result of our libcuda's connection in the unit's own environment; null: none, or it was not asked. */
export function wordInUnit({ observation: { probe } }: Pick<DoctorFacts, 'observation'>): HostWord | null {
  return probe?.kind === 'answered' ? troubleOf(probe.report.host) : null;
}

function answersFor(
  { machine, profile }: DoctorFacts,
  answer: { readonly device: string; readonly milliseconds: number },
  refused: HostWord | null,
): Finding {
  const { endpoint } = machine.host;
  const line = `${endpoint}: ${answer.device}, after ${answer.milliseconds} ms`;
  // Only a refusal of this service counts here, not an earlier refusal of another program.
  const status = refused?.status;
  if (refused !== null && (status === 'busy' || status === 'not-allowed')) {
    return broken({
      cause:
        status === 'busy'
          ? 'The host is full: this guest has reached its limit of sessions.'
          : 'The host runs, but its hostd.conf does not allow this guest.',
      evidence: [line, `in the unit: no host: ${refused.message}`],
      remedy: onTheHost(
        `on the host, ${status === 'busy' ? 'allow this guest more sessions (sessions=)' : 'allow this guest'} in /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5)`,
        'systemctl restart vgpu-hostd',
      ),
    });
  }
  if (refused !== null) {
    return broken({
      cause: `The host answers root, but refuses the user of ${profile.unit}.`,
      evidence: [line, `in the unit: no host: ${refused.message}`],
      remedy: byHand(
        'on the host, allow that user or guest (vgpu-hostd.conf), or give it access to the socket here',
        `ls -l ${socketOf(endpoint) ?? '/run/vgpu'}; id ${machine.serviceUser?.name ?? 'root'}`,
      ),
    });
  }
  if (answer.milliseconds > slowHostMs) {
    return warning({
      cause:
        'The host answers late. A program stops looking for GPUs after some seconds and stays on the CPU.',
      evidence: [line],
      remedy: onTheHost('find out on the host why vgpu-hostd is slow', 'journalctl -u vgpu-hostd'),
    });
  }
  return ok(line);
}

/** `word`: why, if our libcuda came to tell. */
function unreachable(
  { machine, profile }: DoctorFacts,
  evidence: readonly string[],
  word: HostWord | null,
): Finding {
  const { endpoint } = machine.host;
  switch (word?.code) {
    case 'version':
      return broken({
        cause: 'The host runs, but speaks another version of the protocol; see the check "versions".',
        evidence,
        remedy: byHand('install the same release on both sides', 'vgpu-agent version'),
      });
    case 'refused':
      return broken({
        cause: refusalOf(word),
        evidence,
        remedy: onTheHost(
          'on the host, read the log for the reason: it may be full, or not allow this guest',
          'journalctl -u vgpu-hostd',
        ),
      });
    case 'timeout':
    case 'lost':
      return broken({
        cause:
          'A program accepts the connection and does not answer: the host is frozen, overloaded or stopped.',
        evidence,
        remedy: onTheHost(
          'on the host, see whether vgpu-hostd runs, and restart it',
          'systemctl restart vgpu-hostd',
        ),
      });
    case 'foreign':
      return broken({
        cause: 'The program that answers at the address of the host is not vgpu-hostd.',
        evidence,
        remedy: whoListens(endpoint, profile.name),
      });
    case 'closed':
      return broken({
        cause:
          'A program accepts the connection and closes it without an answer: it is not vgpu-hostd, or vgpu-hostd ended at that moment.',
        evidence,
        remedy: whoListens(endpoint, profile.name),
      });
    default:
      return broken({
        cause: 'No program answers at the address of the host.',
        evidence,
        remedy: startIt(endpoint, profile.name),
      });
  }
}

/** The shim's words about it. They are mostly the same as ours, and then not quoted twice. */
function wordsOf(endpoint: string, message: string, word: HostWord | null): readonly string[] {
  if (word?.message === message) return [`no host: ${message}`];
  return [
    message.includes(endpoint) ? message : `${endpoint}: ${message}`,
    ...(word === null ? [] : [`the shim says: no host: ${word.message}`]),
  ];
}

function refusalOf({ status }: HostWord): string {
  switch (status) {
    case 'busy':
      return 'The host is full: it has reached its limit of sessions.';
    case 'no-device':
      return 'The host runs, but has no GPU.';
    case 'not-allowed':
      return 'The host runs, but its hostd.conf does not allow this guest.';
    default:
      return 'The host runs, but refuses this guest.';
  }
}

function startIt(endpoint: string, profile: string): Remedy {
  return onTheHost(
    `if the host is elsewhere, sudo vgpu-agent install --profile ${profile} --host ADDRESS; ` +
      `else start vgpu-hostd on the host, so that this guest finds it at ${endpoint}`,
    'systemctl start vgpu-hostd',
  );
}

/** A program that has taken vgpu-hostd's address. ss(8) names it to root. */
function whoListens(endpoint: string, profile: string): Remedy {
  const address = parseEndpoint(endpoint);
  const [options, name] =
    address.kind === 'unix'
      ? ['-xlp', address.path]
      : address.kind === 'vsock'
        ? ['--vsock -lp', String(address.port)]
        : ['-tlnp', address.kind === 'tcp' ? String(address.port) : ''];
  return onTheHost(
    `see which program listens at ${endpoint}, give the address to vgpu-hostd, or name another one here: ` +
      `sudo vgpu-agent install --profile ${profile} --host ADDRESS`,
    `ss ${options} | grep ${name}`,
  );
}

function socketOf(endpoint: string): string | null {
  const parsed = parseEndpoint(endpoint);
  return parsed.kind === 'unix' ? parsed.path : null;
}
