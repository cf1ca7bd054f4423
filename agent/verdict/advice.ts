/** The advice for the user: one sentence, and the exact next command. */

import { editCommand } from '../containers/container-unit.js';
import { olderSide } from '../contracts/probe.js';
import type { Device, Mode, Reason } from '../contracts/verdict.js';
import { choiceOf, titleOf } from '../profile/instance.js';
import { logNamespace, namespaceOption } from '../systemd/unit-facts.js';
import { overrideTrouble } from './diagnosis.js';
import type { Observation } from './observation.js';
import { chosenCpu, isIdle, loadFails, memoryShort } from './present.js';

interface Case {
  readonly choice: string;
  readonly unit: string;
  readonly edit: string;
  readonly user: string;
  readonly endpoint: string;
  readonly invocationId: string | null;
  /** journalctl's option for a unit that logs into a namespace, with a space before it; else empty. */
  readonly namespace: string;
  readonly unitKind: Observation['unit']['kind'];
  readonly file: string | null;
  readonly memoryShort: boolean;
  readonly empty: boolean;
  readonly chosen: boolean;
  readonly older: 'guest' | 'host' | null;
}

interface Advice {
  /** Completes "NAME runs on the CPU: it ...": a clause, no full stop. */
  readonly why: string;
  /** The user's next action, if the next command does not show it; printed after the details. */
  readonly repair?: string | ((about: Case) => string);
  /** Print `why` alone: a service that does not run is neither on the GPU nor on the CPU. */
  readonly alone?: true;
  readonly next: (about: Case) => string;
}

const verify = ({ choice }: Case): string => `sudo vgpu-agent verify ${choice}`;
const restart = (about: Case): string => `sudo systemctl restart ${about.unit} && ${verify(about)}`;
const install = ({ choice }: Case): string => `sudo vgpu-agent install ${choice}`;
const edit = (about: Case): string => `sudo ${about.edit} && ${restart(about)}`;
/** The place of a variable that a drop-in cannot unset. */
const editVariable = (about: Case): string =>
  about.file === null ? edit(about) : `sudoedit ${about.file} && ${restart(about)}`;
const probe = ({ user }: Case): string =>
  `sudo -u ${user === '' ? 'root' : user} env VGPU_LOG=stderr /opt/vgpu/current/vgpu-probe --json`;
function unitCommand({ unit, unitKind }: Case): string {
  if (unitKind === 'masked') return `sudo systemctl unmask ${unit}`;
  return unitKind === 'absent' ? 'systemctl list-unit-files --type=service' : `systemctl status ${unit}`;
}
const allLogs = ({ unit, namespace }: Case): string =>
  `sudo journalctl${namespace} --unit=${unit} --lines=100`;
const logs = (about: Case): string =>
  about.invocationId === null
    ? allLogs(about)
    : `sudo journalctl${about.namespace} _SYSTEMD_INVOCATION_ID=${about.invocationId}`;
const doctor = ({ choice }: Case): string => `sudo vgpu-agent doctor ${choice}`;
const plan = ({ choice }: Case): string => `sudo vgpu-agent plan ${choice}`;
const askHost = ({ endpoint }: Case): string =>
  `sudo env VGPU_HOST=${endpoint} VGPU_LOG=stderr /opt/vgpu/current/vgpu-probe --json`;

/** By reason; docs/reference/reasons.md has the long form. */
const advices: Readonly<Record<Reason, Advice>> = {
  'driver-too-old': {
    why: 'finds the NVIDIA driver too old for it',
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
  'probe-crashed': { why: 'lost a process to a crash while it looked for GPUs', next: logs },
  'devices-hidden-by-environment': {
    why: 'does not see its GPUs: an environment variable hides them',
    repair: 'remove the variable',
    next: editVariable,
  },
  'library-forced-to-cpu': {
    why: 'uses the CPU because an environment variable says so',
    repair: 'remove the variable',
    next: editVariable,
  },
  'no-discovery-line': { why: 'did not say which device it uses', next: logs },
  'unsupported-log-version': {
    why: 'is of a version that does not say which device it uses',
    repair: 'update it',
    next: logs,
  },
  'shim-not-loaded': { why: 'was not seen to use the libcuda of vgpu-agent', next: install },
  'foreign-library-loaded': { why: 'uses a libcuda that is not that of vgpu-agent', next: plan },
  'library-not-found': { why: 'cannot load libcuda.so.1', next: install },
  // Another install would change nothing; the plan checks the preload and warns of settings that hide it.
  'preload-ignored': {
    why: 'runs without the libcuda of vgpu-agent: the loader did not preload it',
    next: plan,
  },
  'host-unreachable': { why: 'cannot reach the host', repair: 'start vgpu-hostd there', next: restart },
  'host-refused': { why: 'is refused by the host', repair: 'see the log of vgpu-hostd there', next: askHost },
  'host-foreign': {
    why: 'finds a program other than vgpu-hostd at the address of the host',
    repair: 'give the address to vgpu-hostd, or name another one (--host)',
    next: askHost,
  },
  'host-version': {
    why: 'and the host speak different versions of the protocol',
    next: (about) => (about.older === 'guest' ? install(about) : askHost(about)),
  },
  'host-slow': { why: 'waits too long for the host', next: askHost },
  'transport-blocked-by-sandbox': { why: "is kept from the host by its unit's sandbox", next: edit },
  'output-bypasses-journal': {
    why: 'writes a log that does not reach the journal',
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
    why: 'wrote the beginning of its log, which is no longer in the journal',
    repair: 'give it something to do and ask again, because the host then shows whether it computes there',
    next: verify,
  },
  'memory-round-trip-failed': { why: 'has a GPU whose memory does not keep what is written', next: probe },
  'consumer-not-restarted': { why: 'was started before the shim was in place', next: restart },
  'environment-removed': {
    why: 'runs without the libcuda of vgpu-agent: a wrapper takes the variables away that its unit sets',
    repair: 'have the wrapper keep LD_LIBRARY_PATH and LD_PRELOAD; another restart changes nothing',
    next: edit,
  },
  'probe-disagrees': { why: 'and vgpu-probe disagree about the GPU', next: restart },
  'not-cuda': { why: 'uses a GPU without CUDA, and not through vgpu-agent', next: probe },
  'layers-not-offloaded': {
    why: 'found the GPU, but not all of the model is on it',
    repair: 'give it more device memory, a smaller model, or more --gpu-layers (num_gpu)',
    next: (about) => (about.memoryShort || about.chosen ? doctor(about) : edit(about)),
  },
  'model-on-cpu': {
    why: 'found the GPU when it started, but put a model on the CPU',
    repair: ({ empty }) =>
      empty ? 'nothing is loaded now; the next one may go there too' : 'it stays there until it is unloaded',
    next: (about) => (about.memoryShort || about.chosen ? doctor(about) : restart(about)),
  },
  'no-session': {
    why: 'has no session at the host now',
    repair: 'give it something to do and ask again',
    next: verify,
  },
  'no-work-yet': {
    why: 'has not yet shown that it computes on the GPU',
    repair: 'give it something to do, or wait until its model is loaded, and ask again',
    next: verify,
  },
  'context-create-failed': {
    why: 'found the GPU and could not create a context on it',
    next: probe,
  },
  'compute-failed': {
    why: 'has a GPU on which the test kernels failed or computed wrong numbers',
    next: (about) => `${probe(about)} --compute`,
  },
  'evidence-stale': { why: 'was not seen for a while', next: verify },
};

const modeTexts: Readonly<Record<Mode, (title: string) => string>> = {
  gpu: (title) => `${title} runs on the GPU`,
  cpu: (title) => `${title} runs on the CPU`,
  degraded: (title) => `${title} is not confirmed to run on the GPU`,
  undetermined: (title) => `Unknown whether ${title} runs on the GPU`,
};

export function reasonClause(reason: Reason): string {
  return advices[reason].why;
}

export function adviceOn(
  observation: Observation,
  conclusion: { readonly mode: Mode; readonly reason: Reason | null; readonly detail: string | null },
  devices: readonly Device[],
): { readonly summary: string; readonly next: string | null } {
  const { profile, unit, endpoint, invocationId, probe, host, present } = observation;
  const { mode, reason, detail } = conclusion;
  const title = titleOf(profile);
  const overrides = (['devices', 'loads', 'doubtful'] as const).map((of) =>
    overrideTrouble({ profile, unit }, of),
  );
  const about: Case = {
    choice: choiceOf(profile),
    unit: profile.unit,
    edit: editCommand(unit),
    user: unit.kind === 'loaded' ? unit.user : '',
    endpoint,
    invocationId,
    namespace: namespaceOption(logNamespace(unit))
      .map((option) => ` ${option}`)
      .join(''),
    unitKind: unit.kind,
    file: overrides.find((one) => one?.reason === reason)?.file ?? null,
    empty: present.loaded.kind === 'told' && present.loaded.models.length === 0,
    chosen: chosenCpu(observation),
    memoryShort: memoryShort(observation),
    older: olderNow({ probe, host }),
  };
  if (mode === 'gpu') {
    const names = devices.map(({ name, compute }) => (compute === '' ? name : `${name}, compute ${compute}`));
    const simulated =
      devices.some(({ name }) => name.endsWith(' (simulated)')) ||
      (probe?.kind === 'answered' && probe.report.simulated);
    const warning = simulated ? ' This GPU is simulated: no real GPU is used.' : '';
    const computed =
      probe?.kind === 'answered' && probe.report.compute?.ok === true
        ? ' The test kernels compute the right numbers on it.'
        : '';
    const idle = isIdle(observation.present)
      ? ' It is idle: nothing is loaded, so this is the result of its start.'
      : '';
    const failing = loadFails(observation);
    const failed = failing ? ' Its last load of a model failed: its log says why.' : '';
    return {
      summary: `${modeTexts.gpu(title)}${names.length === 0 ? '' : `: ${names.join('; ')}`}.${computed}${warning}${idle}${failed}`,
      next: failing ? logs(about) : null,
    };
  }
  if (reason === null) {
    return {
      summary: `${modeTexts[mode](title)}, and no log line or check says why.`,
      next: probeOrLogs(about),
    };
  }
  const advice = advices[reason];
  const particulars = detail === null ? '' : ` (${detail})`;
  const todo = typeof advice.repair === 'function' ? advice.repair(about) : advice.repair;
  const repair = todo === undefined ? '' : `; ${todo}`;
  const subject = advice.alone === true ? title : `${modeTexts[mode](title)}: it`;
  return { summary: `${subject} ${advice.why}${particulars}${repair}.`, next: advice.next(about) };
}

function olderNow({ probe, host }: Pick<Observation, 'probe' | 'host'>): 'guest' | 'host' | null {
  const inUnit = probe?.kind === 'answered' ? probe.report.host : null;
  const outside = host?.kind === 'unreachable' ? host.word : null;
  return [inUnit, outside].map((word) => (word === null ? null : olderSide(word))).find(Boolean) ?? null;
}

function probeOrLogs(about: Case): string {
  return about.user === '' ? logs(about) : probe(about);
}
