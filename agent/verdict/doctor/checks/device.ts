/** Checks of the outcome: the device, requests, memory and models. */
import { isRunning } from '../../../containers/container-unit.js';
import type { MemoryTold } from '../../../contracts/sessions.js';
import type { Reason } from '../../../contracts/verdict.js';
import { choiceOf } from '../../../profile/instance.js';
import { journalctl } from '../../advice.js';
import { otherDevice, overrideTrouble, probeTrouble } from '../../diagnosis.js';
import {
  chosenCpu,
  memoryLimitText,
  presentOf,
  refusedKernelsText,
  refusedMemoryText,
  tooLarge,
  turnedAwayText,
} from '../../present.js';
import {
  broken,
  byHand,
  type Check,
  type DoctorFacts,
  logLines,
  notApplicable,
  ok,
  onTheHost,
  type Remedy,
  type Trouble,
  takeOut,
  unknown,
  warning,
} from '../finding.js';

const causes: Partial<Readonly<Record<Reason, string>>> = {
  'driver-init-failed': 'The service finds a GPU, but cannot start its driver.',
  'compute-capability-unreadable':
    'The service finds a GPU, but cannot read its compute capability, so it does not use it.',
  'context-create-failed':
    'The service finds a GPU, but cannot create a CUDA context on it: the host refuses it, or has no memory left for it.',
  'probe-crashed':
    'A signal ended a process that looked for GPUs; that may happen again when the first model is loaded.',
};

export const device: Check = {
  id: 'device',
  title: 'the GPU works in the environment of the service',
  looksAt:
    "how far vgpu-probe gets as the service's user and in its environment, and what the service logged about the device",
  explains: [
    'driver-init-failed',
    'compute-capability-unreadable',
    'context-create-failed',
    'probe-crashed',
    'probe-disagrees',
  ],
  examine(facts) {
    const { observation, verdict, profile } = facts;
    const { log, probe } = observation;
    const met = probeTrouble(probe);
    const cause = met === null ? undefined : causes[met.reason];
    if (met !== null && cause !== undefined) {
      const evidence = [`vgpu-probe, run as the service: ${met.detail ?? 'it found no working GPU'}`];
      return broken({ cause, evidence, remedy: remedyOf(met.reason, facts) });
    }
    const own = log.mode === 'gpu' ? null : log.reason;
    const said = own === null ? undefined : causes[own];
    // An init that failed once and goes well now is the order of the start.
    const over = own === 'driver-init-failed' && probe?.kind === 'answered' && probe.report.ok;
    if (own !== null && said !== undefined && !over)
      return broken({ cause: said, evidence: logLines(observation), remedy: remedyOf(own, facts) });
    const other = met === null ? otherDevice(observation) : null;
    if (other !== null) {
      return broken({
        cause:
          "The service uses another GPU than the one that the host offers: the host's GPU has changed since, or the service found one through another library.",
        evidence: [other.detail ?? ''],
        remedy: byHand(
          'start it again',
          `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf(profile)}`,
        ),
      });
    }
    return probe?.kind === 'not-run' ? unknown('vgpu-probe could not be run', probe.message) : ok();
  },
};

function remedyOf(reason: Reason, facts: DoctorFacts): Remedy {
  if (reason !== 'probe-crashed') {
    return onTheHost(
      'read the log of vgpu-hostd; VGPU_LOG=stderr shows the log of the library in the guest',
      'journalctl -u vgpu-hostd --lines=50',
    );
  }
  const { invocationId, unit } = facts.verdict;
  const start = invocationId === null ? `--unit=${unit}` : `_SYSTEMD_INVOCATION_ID=${invocationId}`;
  return byHand(
    'read its log before it ended; coredumpctl(1) has the core dump if the system keeps them',
    `${journalctl(facts.observation.unit)} ${start}`,
  );
}

export const readiness: Check = {
  id: 'readiness',
  title: 'the service answers requests',
  looksAt: 'whether the service answers at its address, in the time that its profile allows',
  explains: ['readiness-timeout'],
  examine({ observation, verdict, profile }) {
    const { readiness: seen, elapsedMs } = observation;
    if (seen.kind === 'unasked') return notApplicable('it was not asked');
    if (seen.kind === 'answered') return ok(`${seen.url} answers`);
    if (verdict.reason !== 'readiness-timeout') {
      const other = verdict.reason === null ? '' : `: ${verdict.reason}`;
      return notApplicable(`${seen.url} does not answer, but the verdict has another reason${other}`);
    }
    return broken({
      cause: `${verdict.unit} runs and does not answer requests: it is still starting, hangs, or listens elsewhere.`,
      evidence: [`${seen.url}: no answer in ${(elapsedMs / 1000).toFixed(1)} s: ${seen.lastError}`],
      remedy: byHand(
        'read its log; if it only needs longer, verify again with a longer timeout',
        `${journalctl(observation.unit)} --unit=${verdict.unit} --lines=50; sudo vgpu-agent verify ${choiceOf(profile)} --timeout 600`,
      ),
    });
  },
};

export const deviceMemory: Check = {
  id: 'device-memory',
  title: 'the host has enough device memory for this guest',
  looksAt:
    "the host's report on this guest: the last allocation of device memory that it refused, and its limit; and the free memory that the service logged when it loaded a model",
  explains: ['model-on-cpu', 'layers-not-offloaded', 'context-create-failed'],
  examine({ observation, verdict }) {
    const { sessions } = observation.present;
    if (sessions.kind !== 'told') return notApplicable('the host does not report it');
    const { memory } = sessions;
    if (memory === null) return notApplicable('the host is too old to report it');
    const large = tooLarge(observation);
    const { load } = observation.log;
    const short = load !== null && load.outcome !== 'gpu' ? load.short : null;
    if (memory.refused === null && large === null && short === null) return ok();
    const { refused, limit, line } = memory;
    const trouble: Trouble = {
      cause:
        refused !== null
          ? `The host refused ${refused.program} device memory. The program fails with "out of memory", or continues on the CPU.`
          : large !== null
            ? 'The service has loaded more than the device memory that the host allows this guest, so a part of it is on the CPU.'
            : 'The service counted the free device memory before it loaded its model, and put what did not fit on the CPU. llama.cpp leaves 1 GiB free.',
      evidence: [
        ...(refused === null ? [] : [refusedMemoryText(refused, line)]),
        ...(large === null ? [] : [large]),
        ...(short === null ? [] : [short.text]),
        ...(short === null || large !== null || limit === 0 ? [] : [memoryLimitText(memory)]),
      ],
      remedy: memoryRemedy(memory),
    };
    return this.explains.some((reason) => reason === verdict.reason) ? broken(trouble) : warning(trouble);
  },
};

function memoryRemedy({ refused, by, line }: MemoryTold): Remedy {
  switch (refused?.by ?? by) {
    case 'guest': {
      const where =
        line === 0 ? 'its line for this guest' : `line ${line}, or in the "limits" line that it follows`;
      return onTheHost(
        `load something smaller, or raise memory= in hostd.conf of the host (${where}; see vgpu-hostd.conf(5)); the limit applies to new sessions, so load it again afterwards`,
        'sudoedit /etc/vgpu/hostd.conf && sudo systemctl reload vgpu-hostd',
      );
    }
    case 'session':
      return onTheHost(
        'load something smaller, or raise --session-memory of vgpu-hostd; the restart ends the sessions of all guests',
        'sudoedit /etc/default/vgpu-hostd && sudo systemctl restart vgpu-hostd',
      );
    case 'device':
    case 'none':
      return onTheHost(
        'load something smaller, or unload models of other guests; this command shows how much each session holds',
        'sudo vgpu-hostd status',
      );
  }
}

export const loadedModels: Check = {
  id: 'loaded-models',
  title: 'what the service has loaded is on the GPU',
  looksAt: "what the service says it has loaded, and the host's list of the sessions of its processes",
  explains: ['model-on-cpu', 'layers-not-offloaded', 'no-session', 'host-refused'],
  examine({ machine, observation, verdict, profile }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { unit, log } = observation;
    if (unit.kind !== 'loaded' || !isRunning(unit)) return notApplicable(`${verdict.unit} does not run`);
    const now = presentOf(observation);
    const { loaded, sessions } = observation.present;
    const lines = verdict.evidence.filter(({ kind }) => kind === 'loaded' || kind === 'sessions');
    const seen = lines.map(({ text }) => text);
    const lastOnCpu = log.mode === 'degraded' && log.load !== null && log.load.outcome !== 'gpu';
    if (now.kind !== 'contradicted' && !lastOnCpu)
      return now.kind === 'nothing'
        ? notApplicable('the service has no model loaded, or does not report its models')
        : ok(...seen);
    const evidence = [...seen, ...(lastOnCpu ? (log.load?.quotes ?? []).map(({ text }) => text) : [])];
    if (sessions.kind === 'told' && sessions.turnedAway?.status === 'busy') {
      const full = 'Models loaded without a session are on the CPU, and stay there until they are unloaded.';
      return broken({
        cause: `${turnedAwayText(sessions.turnedAway)}. ${full}`,
        evidence,
        remedy: onTheHost(
          'allow this guest more sessions (sessions= in /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5)), then load it again',
          'systemctl restart vgpu-hostd',
        ),
      });
    }
    const cause =
      now.kind === 'contradicted'
        ? `A part of what it has loaded is not on the GPU: ${now.detail}.`
        : 'A part of what it loaded last is not on the GPU.';
    const override = overrideTrouble({ profile, unit }, 'loads');
    if (override !== null)
      return broken({ cause: `${cause} ${override.detail}.`, evidence, remedy: takeOut(unit, [override]) });
    if (chosenCpu(observation)) {
      return broken({
        cause: `${cause} It was told to put no layer on the GPU; a restart changes nothing.`,
        evidence,
        remedy: byHand(
          'take num_gpu: 0 out of the request or the Modelfile (PARAMETER num_gpu), or --gpu-layers 0 out of the command or its preset, then load the model again',
          `systemctl cat ${verdict.unit}`,
        ),
      });
    }
    const empty = loaded.kind === 'told' && loaded.models.length === 0;
    return broken({
      cause:
        now.kind === 'contradicted'
          ? `${cause} It stays on the CPU until it is unloaded.`
          : `The last model that it loaded went to the CPU${empty ? ' and is unloaded' : ''}; the next one may do so too.`,
      evidence,
      remedy: byHand(
        'restart the service, or unload the model and load it again; if the device memory is too small for it, use a smaller one',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf(profile)}`,
      ),
    });
  },
};

export const refusedKernels: Check = {
  id: 'refused-kernels',
  title: 'the host can run the kernels of this guest',
  looksAt: "the host's list of this guest's sessions, which names the last kernel that it could not run",
  explains: [],
  examine({ observation }) {
    const { sessions } = observation.present;
    if (sessions.kind !== 'told') return notApplicable('the host does not report it');
    const refused = sessions.refusedKernels;
    if (refused === null) return ok();
    const { program } = refused;
    return warning({
      cause:
        `The host could not run a kernel of ${program}, so that operation failed. A simulated device runs ` +
        'kernels that come as PTX; those of cuBLAS come as code of real GPUs only.',
      evidence: [refusedKernelsText(refused)],
      remedy: onTheHost(
        'see "A real LLM on it" in docs/reference/software-gpu.md for the programs that need such kernels and how to avoid them ' +
          '(weights that are quantised, batches of 16 tokens); the log of vgpu-hostd says why it refused this one',
        "journalctl -u vgpu-hostd -g 'cannot be run here'",
      ),
    });
  },
};
