import { slowHostMs, transportTrouble } from '../../confirm/diagnosis.js';
import { parseEndpoint } from '../../machine/host/endpoint.js';
import { broken, byHand, ok, onTheHost, unknown, warning } from '../finding.js';
import type { Check, DoctorFacts, Finding, Remedy } from '../types.js';

/** Is somebody there, and does it answer in time? */
export const host: Check = {
  id: 'host',
  title: 'the host answers',
  looksAt:
    "the host's address, asked twice: by vgpu-probe as root without a sandbox, and as the service's user in its unit's",
  explains: [
    'host-unreachable',
    'host-refused',
    'host-slow',
    'no-device',
    'memory-round-trip-failed',
    'model-on-cpu',
  ],
  examine(facts) {
    const { machine, observation, look } = facts;
    const { endpoint, answer } = machine.host;
    const seen = transportTrouble(observation);
    const inUnit = observation.probe?.kind === 'answered' ? observation.probe.noHost : null;
    switch (answer.kind) {
      case 'answers':
        return answersFor(facts, answer, seen?.reason === 'host-refused' ? inUnit : null);
      case 'unasked':
        return unknown(`${endpoint} could not be asked`);
      case 'unreachable': {
        const said = look.host.noHost ?? inUnit;
        const evidence = [...wordsOf(endpoint, answer.message, said), ...look.host.socket];
        return unreachable(facts, evidence, `${said ?? ''} ${answer.message}`);
      }
    }
  },
};

function answersFor(
  { machine, profile, observation }: DoctorFacts,
  answer: { readonly device: string; readonly milliseconds: number },
  refused: string | null,
): Finding {
  const { endpoint } = machine.host;
  const line = `${endpoint}: ${answer.device}, after ${answer.milliseconds} ms`;
  const { sessions } = observation.present;
  const turnedAway = sessions.kind === 'told' ? (sessions.turnedAway?.status ?? null) : null;
  if (refused !== null && (turnedAway === 'busy' || turnedAway === 'not-allowed')) {
    return broken({
      cause:
        turnedAway === 'busy'
          ? 'The host is there and full: this guest has as many sessions as it may.'
          : 'The host is there, and its hostd.conf does not let this guest in.',
      evidence: [line, `in the unit: no host: ${refused}`],
      remedy: onTheHost(
        `on the host, ${turnedAway === 'busy' ? 'allow this guest more sessions (sessions=)' : 'allow this guest'} in /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5)`,
        'systemctl restart vgpu-hostd',
      ),
    });
  }
  if (refused !== null) {
    return broken({
      cause: `The host answers root and refuses the user of ${profile.unit}.`,
      evidence: [line, `in the unit: no host: ${refused}`],
      remedy: byHand(
        'on the host, let that user or guest in (vgpu-hostd.conf), or open the socket to it here',
        `ls -l ${socketOf(endpoint) ?? '/run/vgpu'}; id ${machine.serviceUser?.name ?? 'root'}`,
      ),
    });
  }
  if (answer.milliseconds > slowHostMs) {
    return warning({
      cause:
        'The host answers late. A program gives up looking for GPUs after some seconds and stays on the CPU.',
      evidence: [line],
      remedy: onTheHost('see on the host what keeps vgpu-hostd waiting', 'journalctl -u vgpu-hostd'),
    });
  }
  return ok(line);
}

/** `said`: everything that was said of it, the kernel's words among it. */
function unreachable({ machine, profile }: DoctorFacts, evidence: readonly string[], said: string): Finding {
  const { endpoint } = machine.host;
  if (/wire version|another version of the protocol/.test(said)) {
    return broken({
      cause: 'The host is there and speaks another version of the protocol; see the check "versions".',
      evidence,
      remedy: byHand('bring both sides to one release', 'vgpu-agent version'),
    });
  }
  if (/refused the session|took no greeting/.test(said)) {
    return broken({
      cause: refusalOf(said),
      evidence,
      remedy: onTheHost(
        'on the host, read why: it may be full, or not let this guest in',
        'journalctl -u vgpu-hostd',
      ),
    });
  }
  if (/no answer within|no answer to|timed out/i.test(said)) {
    return broken({
      cause: 'Something takes the connection and does not answer: the host is frozen, overloaded or stopped.',
      evidence,
      remedy: onTheHost(
        'on the host, see whether vgpu-hostd runs and start it again',
        'systemctl restart vgpu-hostd',
      ),
    });
  }
  return broken({
    cause: 'Nobody answers at the address of the host.',
    evidence,
    remedy: startIt(endpoint, profile.name),
  });
}

/** What was said of it; the shim mostly has the same words as we, which are not quoted twice. */
function wordsOf(endpoint: string, message: string, said: string | null): readonly string[] {
  if (said === message) return [`no host: ${said}`];
  return [
    message.includes(endpoint) ? message : `${endpoint}: ${message}`,
    ...(said === null ? [] : [`the shim says: no host: ${said}`]),
  ];
}

function refusalOf(said: string): string {
  if (/as many sessions/.test(said))
    return 'The host is there and full: it serves as many sessions as it may.';
  if (/no device/.test(said)) return 'The host is there and has no GPU to give.';
  if (/does not allow/.test(said)) return 'The host is there, and its hostd.conf does not let this guest in.';
  return 'The host is there and refuses this guest.';
}

function startIt(endpoint: string, profile: string): Remedy {
  return onTheHost(
    `if the host is elsewhere, sudo vgpu-agent install --profile ${profile} --host ADDRESS; ` +
      `else start vgpu-hostd on the host, so that this guest finds it at ${endpoint}`,
    'systemctl start vgpu-hostd',
  );
}

function socketOf(endpoint: string): string | null {
  const parsed = parseEndpoint(endpoint);
  return parsed.kind === 'unix' ? parsed.path : null;
}
