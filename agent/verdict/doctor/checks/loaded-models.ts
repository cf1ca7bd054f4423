import { isRunning } from '../../../containers/container-unit.js';
import { choiceOf } from '../../../profile/instance.js';
import { overrideTrouble } from '../../diagnosis.js';
import { chosenCpu, presentOf, turnedAwayText } from '../../present.js';
import { broken, byHand, notApplicable, ok, onTheHost, takeOut } from '../finding.js';
import type { Check } from '../types.js';

/** Where the service works now, against what it found when it started. */
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
    const lines = verdict.evidence.filter(({ kind }) => kind === 'loaded' || kind === 'sessions');
    const evidence = lines.map(({ text }) => text);
    const lastOnCpu = log.mode === 'degraded' && log.load !== null && log.load.outcome !== 'gpu';
    const { loaded } = observation.present;
    const empty = loaded.kind === 'told' && loaded.models.length === 0;
    if (now.kind !== 'contradicted' && !lastOnCpu) {
      return now.kind === 'nothing'
        ? notApplicable('it has nothing loaded, or does not report it')
        : ok(...evidence);
    }
    const quoted = lastOnCpu ? (log.load?.quotes ?? []).map(({ text }) => text) : [];
    const { sessions } = observation.present;
    if (sessions.kind === 'told' && sessions.turnedAway?.status === 'busy') {
      return broken({
        cause:
          `${turnedAwayText(sessions.turnedAway)}. Models loaded without a session are on the CPU, ` +
          'and stay there until they are unloaded.',
        evidence: [...evidence, ...quoted],
        remedy: onTheHost(
          'allow this guest more sessions (sessions= in /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5)), then load it again',
          'systemctl restart vgpu-hostd',
        ),
      });
    }
    const override = overrideTrouble({ profile, unit }, 'loads');
    const cause =
      now.kind === 'contradicted'
        ? `A part of what it has loaded is not on the GPU: ${now.detail}.`
        : 'A part of what it loaded last is not on the GPU.';
    if (override !== null) {
      return broken({
        cause: `${cause} ${override.detail}.`,
        evidence: [...evidence, ...quoted],
        remedy: takeOut(unit, [override]),
      });
    }
    if (chosenCpu(observation)) {
      return broken({
        cause: `${cause} It was told to put no layer on the GPU; a restart changes nothing.`,
        evidence: [...evidence, ...quoted],
        remedy: byHand(
          'take num_gpu: 0 out of the request or the Modelfile (PARAMETER num_gpu), or --gpu-layers 0 out of the command or its preset, then load the model again',
          `systemctl cat ${verdict.unit}`,
        ),
      });
    }
    return broken({
      cause:
        now.kind === 'contradicted'
          ? `A part of what it has loaded is not on the GPU: ${now.detail}. It stays on the CPU until it is unloaded.`
          : `The last model that it loaded went to the CPU${empty ? ' and is unloaded' : ''}; the next one may do so too.`,
      evidence: [...evidence, ...quoted],
      remedy: byHand(
        'restart the service, or unload the model and load it again; if the device memory is too small for it, use a smaller one',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf(profile)}`,
      ),
    });
  },
};
