/** Checks of the unit: does it run, its drop-in, environment, sandbox, overrides, last start and order. */
import { containerOf, editCommand, isContainer, isRunning } from '../../../containers/container-unit.js';
import { kindOf } from '../../../contracts/manifest.js';
import type { Change } from '../../../contracts/plan.js';
import type { LoadedUnit } from '../../../contracts/unit.js';
import { deliveryOf } from '../../../install/plan/container.js';
import { ourDropIns, wantedVariables } from '../../../install/plan/drop-in.js';
import { unitRefusals } from '../../../install/plan/refusals.js';
import { outdatedReason, takenAwayFrom } from '../../../install/plan/restart.js';
import { own } from '../../../lib/json.js';
import { agentUnit } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { effectiveEnvironment, overridesOf } from '../../../systemd/unit-environment.js';
import { sandboxObstacles } from '../../../systemd/unit-sandbox.js';
import { journalctl } from '../../advice.js';
import {
  broken,
  byHand,
  type Check,
  changeEvidence,
  type DoctorFacts,
  editUnit,
  fixes,
  logLines,
  notApplicable,
  ok,
  plannedChanges,
  type Trouble,
  takeOut,
  unknown,
  warning,
} from '../finding.js';

export const unitRuns: Check = {
  id: 'unit-runs',
  title: 'the service runs',
  looksAt: 'the state of the unit as systemd has it, and whether it was started again during the check',
  explains: ['unit-failed', 'unit-restarting'],
  examine(facts) {
    const { unit } = facts.observation;
    const { name } = unit;
    if (unit.kind === 'loaded') return running(facts);
    const [refusal] = unitRefusals({ unit });
    const commands = {
      absent: 'systemctl list-unit-files --type=service',
      masked: `sudo systemctl unmask ${name}`,
      bad: `systemd-analyze verify ${name}`,
    };
    return broken({
      cause: `No service can use the GPU: ${refusal?.message}.`,
      evidence: [`systemd: ${name} is ${unit.kind}`],
      remedy: byHand(refusal?.remedy ?? '', commands[unit.kind]),
    });
  },
};

function running({ observation }: DoctorFacts): ReturnType<Check['examine']> {
  const { unit, end, restarts, lastWords } = observation;
  if (unit.kind !== 'loaded') return ok();
  const { name, activeState, subState, result } = unit;
  const state = `${name}: ${activeState} (${subState}), result ${result === '' ? 'none' : result}`;
  const evidence = [state, ...lastWords.slice(-3).map(({ text }) => text)];
  if (end === 'unit-restarting' || restarts > 0) {
    const remedy = byHand(
      'read what it logs before it ends',
      `${journalctl(unit)} --unit=${name} --lines=100`,
    );
    return broken({ cause: `${name} keeps ending and being started again.`, evidence, remedy });
  }
  if (activeState === 'active' || activeState === 'activating' || activeState === 'reloading')
    return ok(state);
  const remedy =
    activeState === 'inactive'
      ? byHand('start it', `sudo systemctl start ${name}`)
      : byHand('see why it ended', `systemctl status ${name}`);
  return broken({ cause: `${name} does not run.`, evidence, remedy });
}

export const dropIn: Check = {
  id: 'drop-in',
  title: "vgpu-agent's drop-in is complete and loaded",
  looksAt:
    "vgpu-agent's drop-ins of the unit, byte for byte, and the unit's environment as systemd has loaded it",
  explains: [],
  examine(facts) {
    const { unit, manifest, dropIn: file } = facts.machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (manifest === null) return notApplicable('nothing is installed');
    const quadlet = facts.machine.containers?.dropIn ?? null;
    const paths = new Set([...ourDropIns(unit.name), ...(quadlet === null ? [] : [quadlet.path])]);
    const planned = plannedChanges(facts);
    const files = planned.filter((change) => 'path' in change && paths.has(change.path));
    if (files.length > 0) {
      return broken({
        cause: `The drop-in ${whatHappened(facts)}: ${unit.name} does not get the right path of the shim.`,
        evidence: files.flatMap(differences),
        remedy: fixes(facts, 'write it again, have systemd read it, and restart the service'),
      });
    }
    const reload = planned.find((change) => change.kind === 'daemon-reload');
    if (reload !== undefined) {
      const stale = unit.needDaemonReload ? ['NeedDaemonReload=yes'] : [];
      return broken({
        cause: `The drop-in is there, but systemd has not read it: the next start of ${unit.name} does not use it.`,
        evidence: [changeEvidence(reload), ...stale],
        remedy: fixes(facts, 'have systemd read it, and restart the service'),
      });
    }
    const delivery = deliveryOf(facts.machine, unit);
    const container = containerOf(unit);
    if (delivery?.kind === 'own') {
      const asks =
        container?.command === 'compose' ? `container ${container.name}` : `command of ${unit.name}`;
      return ok(`the ${asks} asks for the device itself`);
    }
    if (container?.command === 'compose' && container.name === null)
      return unknown(
        'the unit starts containers of a compose file: check whether that file requests the GPU',
      );
    if (delivery?.kind === 'by-hand') return broken(withoutDevice(delivery, unit));
    return ok(`${(quadlet ?? file).path} is in force`);
  },
};

function withoutDevice({ message, remedy }: { message: string; remedy: string }, unit: LoadedUnit): Trouble {
  return {
    cause: `The container does not get the GPU: ${message}.`,
    evidence: [message],
    remedy: byHand(remedy, `sudo ${editCommand(unit)}`),
  };
}

function whatHappened({ machine: { dropIn: file, manifest } }: DoctorFacts): string {
  const { state } = file;
  if (state.kind !== 'file')
    return state.kind === 'absent' ? 'is missing' : `was replaced by ${kindOf(state)}`;
  const item = manifest?.items.find((one) => one.kind === 'file' && one.path === file.path);
  return item?.kind === 'file' && item.sha256 === state.sha256
    ? 'is unchanged, but a newer setting of the unit conflicts with it'
    : 'was changed';
}

function differences(change: Change): readonly string[] {
  if (change.kind !== 'write-file') return [changeEvidence(change)];
  const { path, content, previousContent } = change;
  if (previousContent === null) return [`${path} is not there`];
  const wanted = settingsOf(content);
  const present = settingsOf(previousContent);
  const lines = [
    ...wanted.filter((line) => !present.includes(line)).map((line) => `${path} lacks ${line}`),
    ...present.filter((line) => !wanted.includes(line)).map((line) => `${path} has ${line}`),
  ];
  return lines.length > 0 ? lines : [`${path} differs in its comments or the order of its lines`];
}

function settingsOf(text: string): readonly string[] {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}

export const environment: Check = {
  id: 'environment',
  title: 'no setting overrides the drop-in of vgpu-agent',
  looksAt:
    "UnsetEnvironment=, environment files and later drop-ins of the unit that set or clear the loader's variables",
  explains: ['consumer-not-restarted', 'shim-not-loaded', 'foreign-library-loaded'],
  examine(facts) {
    const { machine, profile } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (machine.manifest === null) return notApplicable('nothing is installed');
    if (containerOf(unit) !== null) return notApplicable('a container gets the GPU without variables');
    const taken = wantedVariables(profile, machine, unit).flatMap(({ name, overridden }) =>
      overridden === null ? [] : [{ name, overridden }],
    );
    const [first] = taken;
    if (first === undefined) return ok();
    const isFile = first.overridden.startsWith('/');
    const settings = taken
      .filter(({ overridden }) => !overridden.startsWith('/'))
      .map(({ overridden }) => overridden.replace(' of the unit', ''));
    return broken({
      cause: 'The service does not get the variables by which the loader finds the shim.',
      evidence: taken.map(({ name, overridden }) => `${overridden} overrides the ${name} of vgpu-agent`),
      remedy: isFile
        ? byHand(
            `take ${first.name} out of that file, then start the service again`,
            `sudoedit ${first.overridden} && sudo systemctl restart ${unit.name}`,
          )
        : editUnit(facts, `take ${settings.join(' and ')} out`),
    });
  },
};

export const sandbox: Check = {
  id: 'sandbox',
  title: "the unit's sandbox lets the shim work",
  looksAt:
    'RestrictAddressFamilies=, SystemCallFilter=, PrivateNetwork=, IPAddressDeny=, PrivateTmp=, ProtectHome=, ' +
    "InaccessiblePaths=, TemporaryFileSystem= and RootDirectory= against the host's address, the store and guest.conf",
  explains: ['transport-blocked-by-sandbox', 'preload-ignored', 'shim-not-loaded', 'no-session'],
  examine(facts) {
    const { machine, observation } = facts;
    const { unit } = machine;
    const { endpoint } = observation;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const obstacles = sandboxObstacles(endpoint, unit.sandbox);
    const [first] = obstacles;
    if (first === undefined) return ok(`no setting blocks ${endpoint}`);
    return broken({
      cause: `A setting of ${unit.name} restricts its processes: they cannot reach the host or cannot read the shim.`,
      evidence: obstacles.map(({ setting, keepsFrom }) =>
        keepsFrom === 'host' ? `${setting}, and the host is ${endpoint}` : setting,
      ),
      remedy: editUnit(facts, isContainer(unit) ? first.remedy : `${first.remedy}, under [Service]`),
    });
  },
};

export const overrides: Check = {
  id: 'overrides',
  title: 'no variable keeps the service from the GPU',
  looksAt:
    "the profile's override variables (such as CUDA_VISIBLE_DEVICES) in Environment=, in environment files and in a container",
  explains: ['devices-hidden-by-environment', 'library-forced-to-cpu', 'not-cuda'],
  examine(facts) {
    const { profile, machine, verdict } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const found = overridesOf(unit, profile.overrides);
    const set = effectiveEnvironment(unit);
    const { mode, reason } = verdict;
    // One that only may be the cause is it where the verdict says so.
    const hits = found.filter(
      ({ rule }) => rule.scope !== 'doubtful' || (mode !== 'gpu' && rule.reason === reason),
    );
    const fromImage = profile.overrides.filter(({ variable, value, scope }) => {
      const inImage = set.has(variable) ? undefined : own(facts.look.containerEnvironment, variable);
      return scope !== 'doubtful' && inImage !== undefined && new RegExp(value, 'u').test(inImage);
    });
    if (hits.length > 0) {
      return broken({
        cause: `${unit.name} is configured not to use the GPU: ${hits.map(({ rule }) => rule.why).join('; ')}.`,
        evidence: hits.map(lineOf),
        remedy: takeOut(
          unit,
          hits.map(({ rule, found }) => ({ variable: rule.variable, file: found.file })),
        ),
      });
    }
    if (fromImage.length > 0) {
      const names = fromImage.map(({ variable }) => variable);
      const place = '[the image of its container, or its compose file]';
      return broken({
        cause: `The container of ${unit.name} is configured not to use the GPU, and not by its command: ${fromImage.map(({ why }) => why).join('; ')}.`,
        evidence: names.map((name) => `${name}=${own(facts.look.containerEnvironment, name) ?? ''} ${place}`),
        remedy: byHand(
          `take ${names.join(' and ')} out of the image (ENV) or of the compose file, or give the container another value with --env, then start it again`,
          `sudo ${editCommand(unit)}`,
        ),
      });
    }
    if (found.length > 0) {
      return warning({
        cause: 'A variable selects a device or library, and may select one that does not exist.',
        evidence: found.map(lineOf),
        remedy: editUnit(facts, 'remove it unless it is intended'),
      });
    }
    return ok();

    function lineOf({ rule, found: { value, file } }: (typeof found)[number]): string {
      const place = file ?? (isContainer(unit) ? 'the command of its container' : 'Environment=');
      return `${rule.variable}=${value} [${place}]`;
    }
  },
};

export const restarted: Check = {
  id: 'restarted',
  title: 'the running service has the present settings',
  looksAt: 'the loader variables and the mapped libraries of its processes against what is installed now',
  explains: ['consumer-not-restarted', 'environment-removed'],
  examine(facts) {
    const { unit, manifest, processes } = facts.machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (manifest === null) return notApplicable('nothing is installed');
    if (!isRunning(unit)) return notApplicable(`${unit.name} does not run`);
    const variables = wantedVariables(facts.profile, facts.machine, unit);
    const taken = takenAwayFrom(facts.machine, unit, variables);
    if (taken !== null) {
      return broken({
        cause: `A wrapper removes the variables that ${unit.name} sets. Another restart does not help.`,
        evidence: [taken],
        remedy: editUnit(facts, 'have the wrapper keep LD_LIBRARY_PATH and LD_PRELOAD'),
      });
    }
    const old = outdatedReason(facts.machine, unit, variables);
    const main = processes.find(({ pid, namespacePid }) => pid === unit.mainPid || namespacePid === 1);
    if (old === null) {
      return main === undefined ? ok() : ok(`process ${main.pid} (${main.name}) was started with it`);
    }
    return broken({
      cause: `${unit.name} runs with the settings from its start, and these have changed since.`,
      evidence: [old],
      remedy: fixes(facts, 'start it again'),
    });
  },
};

export const startOrder: Check = {
  id: 'start-order',
  title: 'the GPU was available when the service started',
  looksAt: 'what the service logged at its start, compared with what vgpu-probe finds now in its environment',
  // Any other broken check is the likelier cause: this one comes first only when it is alone.
  explains: [],
  examine({ machine, observation, verdict }) {
    const { log, probe, unit } = observation;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    if (unit.kind !== 'loaded' || !isRunning(unit)) return notApplicable(`${verdict.unit} does not run`);
    // When the service logged its own reason, the check for that reason reports it.
    const vague = log.reason === null || log.reason === 'no-device' || log.reason === 'driver-init-failed';
    if (log.mode !== 'cpu') return ok();
    if (!vague) return notApplicable('the service logged another reason');
    if (probe?.kind !== 'answered' || !probe.report.ok) return notApplicable('no GPU answers now either');
    const guarded = machine.service?.activeState === 'active';
    return broken({
      cause:
        `A GPU answers now, and ${verdict.profile} found none when it started: ` +
        'it started before the host or the shim was available. It looks only once.',
      evidence: [
        ...logLines(observation),
        `now vgpu-probe finds ${probe.report.devices[0]?.name ?? 'a device'}, as its user and in its unit`,
        ...(guarded ? [] : [`${agentUnit} does not run; it would have restarted it`]),
      ],
      remedy: byHand(
        guarded
          ? 'start it again'
          : 'start it again; vgpu-agent install --service sets the order at boot and does this automatically',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf({ name: verdict.profile, unit: verdict.unit })}`,
      ),
    });
  },
};
