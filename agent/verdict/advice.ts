/** The advice for the user: one sentence, and the exact next command. */

import { editCommand } from '../containers/container-unit.js';
import { olderSide } from '../contracts/probe.js';
import type { UnitFacts } from '../contracts/unit.js';
import type { Device, Mode, Reason } from '../contracts/verdict.js';
import { choiceOf, titleOf } from '../profile/instance.js';
import { logNamespace, namespaceOption } from '../systemd/unit-facts.js';
import { overrideTrouble } from './diagnosis.js';
import { simulatedSuffix } from './log/findings.js';
import type { Observation } from './observation.js';
import { chosenCpu, isIdle, loadFails, memoryShort } from './present.js';

type Next = (seen: Observation) => string;

interface Advice {
  /** Completes "NAME runs on the CPU: it ...": a clause, no full stop. */
  readonly why: string;
  /** The user's next action, if the next command does not show it; printed after the details. */
  readonly repair?: string | Next;
  /** Print `why` alone: a service that does not run is neither on the GPU nor on the CPU. */
  readonly alone?: true;
  readonly next: Next;
}

const verify: Next = ({ profile }) => `sudo vgpu-agent verify ${choiceOf(profile)}`;
const restart: Next = (seen) => `sudo systemctl restart ${seen.profile.unit} && ${verify(seen)}`;
const install: Next = ({ profile }) => `sudo vgpu-agent install ${choiceOf(profile)}`;
const doctor: Next = ({ profile }) => `sudo vgpu-agent doctor ${choiceOf(profile)}`;
const plan: Next = ({ profile }) => `sudo vgpu-agent plan ${choiceOf(profile)}`;
const edit: Next = (seen) => `sudo ${editCommand(seen.unit)} && ${restart(seen)}`;
/** A drop-in cannot unset a variable that an environment file sets. */
const editVariable =
  (reason: Reason): Next =>
  (seen) => {
    const scopes = ['devices', 'loads', 'doubtful'] as const;
    const hits = scopes.map((of) => overrideTrouble(seen, of));
    const file = hits.find((one) => one?.reason === reason)?.file ?? null;
    return file === null ? edit(seen) : `sudoedit ${file} && ${restart(seen)}`;
  };
const userOf = ({ unit }: Observation): string => (unit.kind === 'loaded' ? unit.user : '');
const probe: Next = (seen) =>
  `sudo -u ${userOf(seen) || 'root'} env VGPU_LOG=stderr /opt/vgpu/current/vgpu-probe --json`;
const askHost: Next = ({ endpoint }) =>
  `sudo env VGPU_HOST=${endpoint} VGPU_LOG=stderr /opt/vgpu/current/vgpu-probe --json`;
const unitCommand: Next = ({ profile, unit }) => {
  if (unit.kind === 'masked') return `sudo systemctl unmask ${profile.unit}`;
  return unit.kind === 'absent'
    ? 'systemctl list-unit-files --type=service'
    : `systemctl status ${profile.unit}`;
};
const allLogs: Next = (seen) => `${journalctl(seen.unit)} --unit=${seen.profile.unit} --lines=100`;
const logs: Next = (seen) =>
  seen.invocationId === null
    ? allLogs(seen)
    : `${journalctl(seen.unit)} _SYSTEMD_INVOCATION_ID=${seen.invocationId}`;
/** A restart or another setting of the unit does not help if memory is short or no layer was requested. */
const unlessDoctor =
  (next: Next): Next =>
  (seen) =>
    memoryShort(seen) || chosenCpu(seen) ? doctor(seen) : next(seen);

/** By reason; docs/reference/reasons.md has the long form. */
const advices: Readonly<Record<Reason, Advice>> = {
  'driver-too-old': {
    why: 'needs a newer NVIDIA driver',
    repair: 'update the driver on the host',
    next: askHost,
  },
  'no-device': { why: 'finds no CUDA device', next: askHost },
  'driver-init-failed': { why: 'could not start the CUDA driver', next: probe },
  'driver-library-mismatch': { why: 'finds a driver and a libcuda of different versions', next: install },
  'library-symbol-missing': { why: 'does not find a function in the libcuda that it loaded', next: install },
  'compute-capability-unreadable': { why: "could not read the device's compute capability", next: probe },
  'architecture-not-compiled': {
    why: 'was not built for the compute capability of this device',
    repair: 'update it',
    next: askHost,
  },
  'discovery-timeout': { why: 'gave up looking for GPUs before one answered', next: restart },
  'probe-crashed': { why: 'had a process that crashed while it looked for GPUs', next: logs },
  'devices-hidden-by-environment': {
    why: 'does not see its GPUs: an environment variable hides them',
    repair: 'remove the variable',
    next: editVariable('devices-hidden-by-environment'),
  },
  'library-forced-to-cpu': {
    why: 'uses the CPU because an environment variable says so',
    repair: 'remove the variable',
    next: editVariable('library-forced-to-cpu'),
  },
  'no-discovery-line': { why: 'did not log which device it uses', next: logs },
  'unsupported-log-version': {
    why: 'has a version that does not log which device it uses',
    repair: 'update it',
    next: logs,
  },
  'shim-not-loaded': { why: 'was not seen to use the libcuda of vgpu-agent', next: install },
  'foreign-library-loaded': { why: "uses another libcuda than vgpu-agent's", next: plan },
  'library-not-found': { why: 'cannot load libcuda.so.1', next: install },
  // Another install would change nothing; the plan checks the preload and warns of settings that hide it.
  'preload-ignored': {
    why: 'runs without the libcuda of vgpu-agent: the loader did not preload it',
    next: plan,
  },
  'host-unreachable': { why: 'cannot reach the host', repair: 'start vgpu-hostd there', next: restart },
  'host-refused': {
    why: 'was refused by the host',
    repair: 'read the log of vgpu-hostd there',
    next: askHost,
  },
  'host-foreign': {
    why: 'finds a program other than vgpu-hostd at the address of the host',
    repair: 'give the address to vgpu-hostd, or name another one (--host)',
    next: askHost,
  },
  'host-version': {
    why: 'and the host speak different versions of the protocol',
    next: (seen) => (isGuestOlder(seen) ? install(seen) : askHost(seen)),
  },
  'host-slow': { why: 'waits too long for the host', next: askHost },
  'transport-blocked-by-sandbox': { why: "cannot reach the host because of its unit's sandbox", next: edit },
  'output-bypasses-journal': {
    why: 'does not log to the journal',
    next: edit,
  },
  'unit-failed': {
    why: 'is not running',
    alone: true,
    next: unitCommand,
  },
  // Logs of all starts, because the newest may have no lines yet.
  'unit-restarting': { why: 'keeps ending and being started again', alone: true, next: allLogs },
  'readiness-timeout': { why: 'did not answer requests in time', next: logs },
  'journal-unavailable': {
    why: 'logs to a journal that cannot be read',
    next: () => 'systemctl status systemd-journald.service',
  },
  'journal-cut': {
    why: 'logged its search for GPUs, but the journal no longer has that part',
    repair:
      'send the service a request and verify again: the host then reports whether the service computes there',
    next: verify,
  },
  'memory-round-trip-failed': {
    why: 'has a GPU that returned other bytes than were written to its memory',
    next: probe,
  },
  'consumer-not-restarted': { why: 'was started before the shim was in place', next: restart },
  'environment-removed': {
    why: 'runs without the libcuda of vgpu-agent: a wrapper removes the variables that its unit sets',
    repair:
      'change the wrapper so that it keeps LD_LIBRARY_PATH and LD_PRELOAD; a restart alone does not help',
    next: edit,
  },
  'probe-disagrees': { why: 'and vgpu-probe disagree about the GPU', next: restart },
  'not-cuda': { why: 'uses a GPU without CUDA, and not through vgpu-agent', next: probe },
  'layers-not-offloaded': {
    why: 'found the GPU, but not all of the model is on it',
    repair: 'give it more device memory, a smaller model, or more --gpu-layers (num_gpu)',
    next: unlessDoctor(edit),
  },
  'model-on-cpu': {
    why: 'found the GPU when it started, but put a model on the CPU',
    repair: ({ present: { loaded } }) =>
      loaded.kind === 'told' && loaded.models.length === 0
        ? 'no model is loaded now; the next one may be put there too'
        : 'it stays there until it is unloaded',
    next: unlessDoctor(restart),
  },
  'no-session': {
    why: 'has no session at the host now',
    repair: 'send it a request and verify again',
    next: verify,
  },
  'no-work-yet': {
    why: 'has not yet shown that it computes on the GPU',
    repair: 'send it a request, or wait until its model is loaded, and verify again',
    next: verify,
  },
  'context-create-failed': {
    why: 'found the GPU and could not create a context on it',
    next: probe,
  },
  'compute-failed': {
    why: 'has a GPU on which the test kernels failed or computed wrong numbers',
    next: (seen) => `${probe(seen)} --compute`,
  },
  'evidence-stale': { why: 'was not checked recently', next: verify },
};

const modeTexts: Readonly<Record<Mode, (title: string) => string>> = {
  gpu: (title) => `${title} runs on the GPU`,
  cpu: (title) => `${title} runs on the CPU`,
  degraded: (title) => `${title} is not confirmed to run on the GPU`,
  undetermined: (title) => `Unknown whether ${title} runs on the GPU`,
};

/** The beginning of a command that shows the journal to which the unit logs. */
export function journalctl(unit: UnitFacts): string {
  return ['sudo journalctl', ...namespaceOption(logNamespace(unit))].join(' ');
}

export function reasonClause(reason: Reason): string {
  return advices[reason].why;
}

export function adviceOn(
  seen: Observation,
  {
    mode,
    reason,
    detail,
  }: { readonly mode: Mode; readonly reason: Reason | null; readonly detail: string | null },
  devices: readonly Device[],
): { readonly summary: string; readonly next: string | null } {
  const title = titleOf(seen.profile);
  if (mode === 'gpu') {
    const report = seen.probe?.kind === 'answered' ? seen.probe.report : null;
    const names = devices.map(({ name, compute }) => (compute === '' ? name : `${name}, compute ${compute}`));
    const simulated =
      devices.some(({ name }) => name.endsWith(simulatedSuffix)) || report?.simulated === true;
    const failing = loadFails(seen);
    const sentences = [
      `${modeTexts.gpu(title)}${names.length === 0 ? '' : `: ${names.join('; ')}`}.`,
      ...(report?.compute?.ok === true ? ['The test kernels compute the right numbers on it.'] : []),
      ...(simulated ? ['This GPU is simulated: no real GPU is used.'] : []),
      ...(isIdle(seen.present) ? ['It is idle: nothing is loaded, so this is the result of its start.'] : []),
      ...(failing ? ['Its last load of a model failed: its log says why.'] : []),
    ];
    return { summary: sentences.join(' '), next: failing ? logs(seen) : null };
  }
  if (reason === null) {
    const summary = `${modeTexts[mode](title)}, and no log line or check says why.`;
    return { summary, next: userOf(seen) === '' ? logs(seen) : probe(seen) };
  }
  const { alone, next, repair, why } = advices[reason];
  const particulars = detail === null ? '' : ` (${detail})`;
  const todo = typeof repair === 'function' ? repair(seen) : repair;
  const subject = alone === true ? title : `${modeTexts[mode](title)}: it`;
  const summary = `${subject} ${why}${particulars}${todo === undefined ? '' : `; ${todo}`}.`;
  return { summary, next: next(seen) };
}

function isGuestOlder({ probe, host }: Observation): boolean {
  const inUnit = probe?.kind === 'answered' ? probe.report.host : null;
  const outside = host?.kind === 'unreachable' ? host.word : null;
  const sides = [inUnit, outside].map((word) => (word === null ? null : olderSide(word)));
  return sides.find((side) => side !== null) === 'guest';
}
