/** Checks of the host: its address, its versions, its answer, and memory shared with it. */
import type { HostFacts } from '../../../contracts/facts.js';
import { type HostWord, olderSide, troubleOf } from '../../../contracts/probe.js';
import { parseEndpoint, parseGuestConf, parseHosts } from '../../../guest/vgpu-host/endpoint.js';
import { vmMemoryOf } from '../../../install/plan/vm-memory.js';
import { own } from '../../../lib/json.js';
import { defaultPort, guestConf as file, storeCurrent, vmMemoryRule } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { effectiveEnvironment, hostOfUnit } from '../../../systemd/unit-environment.js';
import { slowHostMs, transportTrouble } from '../../diagnosis.js';
import {
  broken,
  byHand,
  type Check,
  changeEvidence,
  type DoctorFacts,
  type Finding,
  fixes,
  notApplicable,
  ok,
  onTheHost,
  plannedChanges,
  type Remedy,
  type Trouble,
  takeOut,
  unknown,
  warning,
} from '../finding.js';

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
    const { machine, observation } = facts;
    const { answer } = machine.host;
    const endpoint = usedOf(machine.host);
    const inUnit = wordInUnit(facts);
    if (answer.kind === 'unasked') return unknown(`${endpoint} could not be asked`);
    if (answer.kind === 'answers') {
      const refused = transportTrouble(observation)?.reason === 'host-refused';
      return answersFor(facts, answer, refused ? inUnit : null);
    }
    const word = answer.word ?? inUnit;
    const evidence = [...wordsOf(endpoint, answer.message, word), ...othersOf(machine.host)];
    return broken({ ...unreachable(endpoint, facts.profile.name, word), evidence });
  },
};

function usedOf({ endpoint, hosts }: HostFacts): string {
  return hosts?.find(({ inUse }) => inUse)?.endpoint ?? endpoint;
}

function othersOf({ hosts = [] }: HostFacts): readonly string[] {
  return hosts
    .filter(({ inUse }) => !inUse)
    .map(({ endpoint, answer }) => {
      if (answer.kind === 'answers') return `${endpoint}, not in use: ${answer.device}`;
      const why = answer.kind === 'unreachable' ? `does not answer: ${answer.message}` : 'not asked';
      return `${endpoint}, not in use: ${why}`;
    });
}

/** The result of our libcuda's connection in the unit's own environment; null: none, or it was not asked. */
function wordInUnit({ observation: { probe } }: Pick<DoctorFacts, 'observation'>): HostWord | null {
  return probe?.kind === 'answered' ? troubleOf(probe.report.host) : null;
}

function answersFor(
  { machine, profile }: DoctorFacts,
  answer: { readonly device: string; readonly milliseconds: number },
  refused: HostWord | null,
): Finding {
  const endpoint = usedOf(machine.host);
  const others = othersOf(machine.host);
  const line = `${endpoint}: ${answer.device}, after ${answer.milliseconds} ms`;
  if (refused !== null) {
    const evidence = [line, `in the unit: no host: ${refused.message}`];
    // Only a refusal of this service counts here, not an earlier refusal of another program.
    const { status } = refused;
    if (status === 'busy' || status === 'not-allowed') {
      const allow = status === 'busy' ? 'allow this guest more sessions (sessions=)' : 'allow this guest';
      const remedy = onTheHost(
        `on the host, ${allow} in /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5)`,
        'systemctl restart vgpu-hostd',
      );
      return broken({ cause: refusals[status], evidence, remedy });
    }
    const address = parseEndpoint(endpoint);
    return broken({
      cause: `The host answers root, but refuses the user of ${profile.unit}.`,
      evidence,
      remedy: byHand(
        'on the host, allow that user or guest (vgpu-hostd.conf), or give it access to the socket here',
        `ls -l ${address.kind === 'unix' ? address.path : '/run/vgpu'}; id ${machine.serviceUser?.name ?? 'root'}`,
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
  const away = machine.host.hosts?.some((one) => one.answer.kind === 'unreachable') === true;
  if (!away) return ok(line, ...others);
  return warning({
    cause: 'A host of the list does not answer: no other one is left if the host in use fails.',
    evidence: [line, ...others],
    remedy: onTheHost('see on that host whether vgpu-hostd runs', 'systemctl start vgpu-hostd'),
  });
}

const refusals = {
  busy: 'The host is full: this guest has reached its limit of sessions.',
  'not-allowed': 'The host runs, but its hostd.conf does not allow this guest.',
  'no-device': 'The host runs, but has no GPU.',
} as const;

function refusalOf(status: HostWord['status']): string {
  return own(refusals, status ?? '') ?? 'The host runs, but refuses this guest.';
}

const log = 'journalctl -u vgpu-hostd';

function unreachable(
  endpoint: string,
  profile: string,
  word: HostWord | null,
): Pick<Trouble, 'cause' | 'remedy'> {
  switch (word?.code) {
    case 'version':
      return {
        cause: 'The host runs, but speaks another version of the protocol; see the check "versions".',
        remedy: byHand('install the same release on both sides', 'vgpu-agent version'),
      };
    case 'refused': {
      const text = 'on the host, read the log for the reason: it may be full, or not allow this guest';
      return { cause: refusalOf(word.status), remedy: onTheHost(text, log) };
    }
    case 'timeout':
    case 'lost': {
      const text = 'on the host, see whether vgpu-hostd runs, and restart it';
      return {
        cause:
          'A program accepts the connection and does not answer: the host is frozen, overloaded or stopped.',
        remedy: onTheHost(text, 'systemctl restart vgpu-hostd'),
      };
    }
    case 'foreign':
    case 'closed':
      return {
        cause:
          word.code === 'foreign'
            ? 'The program that answers at the address of the host is not vgpu-hostd.'
            : 'A program accepts the connection and closes it without an answer: it is not vgpu-hostd, or vgpu-hostd ended at that moment.',
        remedy: whoListens(endpoint, profile),
      };
    default:
      return {
        cause: 'No program answers at the address of the host.',
        remedy: onTheHost(
          `if the host is elsewhere, sudo vgpu-agent install --profile ${profile} --host ADDRESS; ` +
            `else start vgpu-hostd on the host, so that this guest finds it at ${endpoint}`,
          'systemctl start vgpu-hostd',
        ),
      };
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

export const versions: Check = {
  id: 'versions',
  title: 'shim and host speak one protocol version',
  looksAt: "the note in the installed shim, and the version in the host's greeting",
  explains: ['host-version'],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { answer } = machine.host;
    const outside = answer.kind === 'unreachable' ? troubleOf(answer.word) : null;
    const word = [outside, wordInUnit(facts)].find((one) => one?.code === 'version') ?? null;
    const installed =
      machine.candidates.find(
        ({ path, vendor }) => path === `${storeCurrent}/libcuda.so.1` && vendor === 'vgpu',
      )?.elf?.provenance ?? null;
    const shim =
      installed === null ? [] : [`the shim is ${installed.version}, wire version ${installed.wire}`];
    if (word === null) {
      return answer.kind === 'unreachable' ? notApplicable('the host does not answer') : ok(...shim);
    }
    const host = word.host === null ? [] : [`the host is ${word.host}, wire version ${word.hostWire}`];
    const evidence = [`no host: ${word.message}`, ...host, ...shim];
    const install = `sudo vgpu-agent install ${choiceOf(profile)}`;
    const older = olderSide(word);
    if (older === 'host')
      return broken({
        cause: 'The host is older than the shim of this guest, and their protocol versions differ.',
        evidence,
        remedy: onTheHost(
          'upgrade vgpu-hostd on the host to the release of this guest, then restart it there',
          'systemctl restart vgpu-hostd',
        ),
      });
    return broken(
      older === 'guest'
        ? {
            cause: 'The shim of this guest is older than the host, and their protocol versions differ.',
            evidence,
            remedy: byHand('upgrade vgpu-agent here to the release of the host, then', install),
          }
        : {
            cause: 'The shim of this guest and the host have different protocol versions.',
            evidence,
            remedy: byHand('install the same release on both; here, after an upgrade of vgpu-agent', install),
          },
    );
  },
};

/** The guest is shown the driver version of the host; consumers have a lower limit of their own. */
export const driverVersion: Check = {
  id: 'driver-version',
  title: 'the driver is new enough for the service',
  looksAt: 'the driver and CUDA versions that the host reports, and what the service logged about them',
  explains: ['driver-too-old', 'driver-library-mismatch'],
  examine({ observation, verdict }) {
    const { log, probe } = observation;
    const report = probe?.kind === 'answered' ? probe.report : null;
    const shown = [
      ...(report?.driver === null || report === null
        ? []
        : [`CUDA ${report.driver}, reported by cuDriverGetVersion`]),
      ...(report?.nvml.driver === null || report === null
        ? []
        : [`driver ${report.nvml.driver}, reported by NVML`]),
    ];
    const said = log.reason ?? (log.mode === 'gpu' ? null : log.hint);
    const isOld = said === 'driver-too-old' || said === 'driver-library-mismatch';
    if (!isOld) {
      return shown.length === 0 && log.mode !== 'gpu' ? unknown('no driver answered') : ok(...shown);
    }
    const lines = log.evidence
      .filter(({ kind, text }) => kind === 'log-line' && /\bdriver\b(?!=)/i.test(text))
      .map(({ text }) => text);
    return broken({
      cause:
        said === 'driver-too-old'
          ? `${verdict.profile} needs a newer NVIDIA driver than the one of the host.`
          : 'The driver and its library on the host are of different versions.',
      evidence: [...lines, ...shown],
      remedy: byHand(
        said === 'driver-too-old'
          ? 'update the driver on the host (a simulated GPU: another device profile), restart vgpu-hostd there, then'
          : 'restart the host after its driver update, then',
        `sudo systemctl restart ${verdict.unit}`,
      ),
    });
  },
};

export const guestConf: Check = {
  id: 'guest-conf',
  title: 'the shim knows the address of the host',
  looksAt: `host= in ${file}, whether every user may read it, and VGPU_HOST in the unit`,
  explains: ['host-unreachable', 'no-device'],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { unit } = machine;
    const set = unit.kind === 'loaded' ? effectiveEnvironment(unit).get('VGPU_HOST') : undefined;
    const host = parseGuestConf(machine.guestConf.content ?? '');
    const own = unit.kind === 'loaded' ? hostOfUnit(unit, host ?? '') : (host ?? '');
    if (set !== undefined && own !== (host ?? '')) {
      const bad = parseHosts(own);
      const isBad = bad.kind === 'bad' ? `${JSON.stringify(own)} is not an address: ${bad.reason}` : null;
      return broken({
        cause: `${profile.unit} sets its own address of the host, which overrides ${file}.`,
        evidence: [
          `VGPU_HOST=${own} [${set.file ?? 'Environment='}]`,
          `host=${host ?? ''} [${file}]`,
          ...(isBad === null ? [] : [isBad]),
        ],
        remedy: takeOut(machine.unit, [{ variable: 'VGPU_HOST', file: set.file }]),
      });
    }
    const planned = plannedChanges(facts).filter((change) => 'path' in change && change.path === file);
    if (planned.length === 0) return ok(`host=${host ?? ''}`);
    const what =
      machine.guestConf.state.kind === 'absent'
        ? 'is missing'
        : host === machine.manifest.endpoint
          ? 'cannot be read by every user'
          : 'names no host, or another one than was installed';
    return broken({
      cause: `${file} ${what}: programs do not find the host.`,
      evidence: planned.map(changeEvidence),
      remedy: fixes(facts, 'write it again, as it was installed'),
    });
  },
};

/** Without it calls take longer, and mapped and managed memory are refused. */
export const sharedMemory: Check = {
  id: 'shared-memory',
  title: 'calls go through shared memory',
  looksAt:
    "this machine's PCI devices of ivshmem, who may open their memory, the service's user and its groups, and whether the kernel is in lockdown",
  explains: [],
  examine(facts) {
    const { machine, observation } = facts;
    const { endpoint } = observation;
    const now = vmMemoryOf(machine, endpoint);
    if (now.kind === 'open') return ok(`${now.device.path}: ${now.device.bytes / 1024 / 1024} MiB`);
    if (now.kind === 'not-concerned') {
      return notApplicable(
        endpoint.startsWith('tcp:')
          ? `${endpoint}: TCP shares no memory. Between a VM and its own host vsock is faster and can use shared memory: sudo vgpu-agent install --host vsock:2:${defaultPort}`
          : `only a host at vsock needs shared memory of its own; this host is ${endpoint}`,
      );
    }
    const { message, evidence, remedy, command } = now;
    if (now.rule === 'missing') {
      const cause = `Calls go over vsock: the udev rule ${vmMemoryRule} is missing or was changed.`;
      return warning({ cause, evidence, remedy: fixes(facts, 'write it again') });
    }
    const cause = `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
    const by = now.code === 'no-shared-memory' ? onTheHost : byHand;
    return warning({ cause, evidence, remedy: by(remedy, command) });
  },
};
