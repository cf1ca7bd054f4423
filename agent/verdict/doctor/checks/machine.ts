/** Checks of what vgpu-agent itself has on this machine. */
import { kindOf } from '../../../contracts/manifest.js';
import { findConsumer } from '../../../install/plan/owned.js';
import { agentUnit, guestState, storeCurrent, storeVersions } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import {
  broken,
  byHand,
  type Check,
  changeEvidence,
  fixes,
  notApplicable,
  ok,
  plannedChanges,
  warning,
} from '../finding.js';

export const interrupted: Check = {
  id: 'interrupted',
  title: 'no install was interrupted',
  looksAt: `the undo log ${guestState.transaction}, which exists only during a change`,
  explains: [],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.interrupted) {
      const cause =
        'An install or uninstall was interrupted, and its changes are incomplete. ' +
        'The next vgpu-agent install or uninstall finishes or undoes it first.';
      return broken({
        cause,
        evidence: [`${guestState.transaction} exists, and no vgpu-agent is changing this machine`],
        remedy:
          machine.manifest === null
            ? byHand('install again', `sudo vgpu-agent install ${choiceOf(profile)}`)
            : fixes(facts, 'clean up, and repair what differs'),
      });
    }
    return ok();
  },
};

export const installed: Check = {
  id: 'installed',
  title: 'vgpu-agent is installed for this service',
  looksAt: `the manifest ${guestState.manifest}`,
  explains: [],
  examine({ machine, profile }) {
    const { manifest } = machine;
    const install = `sudo vgpu-agent install ${choiceOf(profile)}`;
    if (manifest === null) {
      return broken({
        cause: `Nothing of vgpu-agent is installed here, so ${profile.unit} has no GPU from the host.`,
        evidence: [`${guestState.manifest} does not exist`],
        remedy: byHand('install it', install),
      });
    }
    const known = findConsumer(manifest, profile.unit);
    const list = (known === undefined ? manifest.consumers : [known]).map(
      (one) => `profile ${one.profile}, unit ${one.unit}`,
    );
    const named = `${guestState.manifest}: ${list.join('; ')}`;
    if (known === undefined) {
      const units = manifest.consumers.map((one) => one.unit).join(' and ');
      return broken({
        cause: `vgpu-agent is installed for ${units}, not for ${profile.unit}.`,
        evidence: [named],
        remedy: byHand('install it for this one too', install),
      });
    }
    return ok(named);
  },
};

export const store: Check = {
  id: 'store',
  title: "the shim's files are as they were installed",
  looksAt: `every file in ${storeVersions}/ against the hash in the name of its directory, and ${storeCurrent}`,
  // A mapping of a file that was changed is no longer recognized as ours.
  explains: [
    'foreign-library-loaded',
    'library-not-found',
    'library-symbol-missing',
    'preload-ignored',
    'shim-not-loaded',
    'no-session',
    // A library that is cut short ends every program that the loader gives it to.
    'unit-failed',
    'unit-restarting',
    'probe-crashed',
  ],
  examine(facts) {
    const { machine, look } = facts;
    const { store: found, manifest } = machine;
    if (manifest === null) return notApplicable('nothing is installed');
    const id = found.current.kind === 'link' ? found.current.target.replace(/^versions\//, '') : null;
    const version = found.versions.find((one) => one.id === id);
    if (id !== null && version?.intact === true) {
      return ok(`${storeCurrent} -> versions/${id}, all files intact`);
    }
    const seen =
      found.current.kind !== 'link'
        ? `${storeCurrent} is ${kindOf(found.current)}`
        : version === undefined
          ? `${storeCurrent} -> ${found.current.target}, which is not there`
          : `${storeVersions}/${id}: files are missing, changed or truncated`;
    const planned = plannedChanges(facts).filter(
      (change) => change.kind === 'store' || ('path' in change && change.path === storeCurrent),
    );
    return broken({
      cause:
        'Files of the shim are not as they were installed, so programs cannot load it, or load other code.',
      evidence: [
        seen,
        ...(id === machine.shim.id ? (look.storeDamage ?? []) : []),
        ...planned.map(changeEvidence),
      ],
      remedy: fixes(facts, 'write them again from the package'),
    });
  },
};

export const refused: Check = {
  id: 'refused',
  title: 'nothing prevents an install',
  looksAt:
    'reasons for which install refuses to change anything: the service, the architecture, other files at the paths that it needs',
  explains: [],
  examine({ plan }) {
    if (plan.kind === 'ready') return ok();
    const [first] = plan.refusals;
    return broken({
      cause: 'vgpu-agent can neither install nor repair anything here until this is resolved.',
      evidence: plan.refusals.map(({ message }) => message),
      remedy: byHand(
        `${first?.remedy ?? 'resolve it'}; then check whether anything else prevents it`,
        'sudo vgpu-agent plan',
      ),
    });
  },
};

export const agentService: Check = {
  id: 'agent-service',
  title: 'vgpu-agent.service runs',
  looksAt: `the files of ${agentUnit}, its state in systemd, and its state on the bus`,
  explains: [],
  examine(facts) {
    const { machine, look, profile } = facts;
    const { service, manifest } = machine;
    const ours = new Set(service?.files.map(({ present }) => present.path) ?? []);
    const owned = manifest?.items.some((item) => ours.has(item.path)) === true;
    if (service === undefined || !owned)
      return notApplicable(`${agentUnit} is not installed: sudo vgpu-agent install --service`);
    const planned = plannedChanges(facts).filter(
      (change) => 'path' in change && (ours.has(change.path) || change.path === service.link.path),
    );
    if (planned.length > 0) {
      return warning({
        cause: `Files of ${agentUnit} were changed or removed: it may not start again, or not at boot.`,
        evidence: planned.map(changeEvidence),
        remedy: fixes(facts, 'write them again'),
      });
    }
    if (service.activeState !== 'active' && service.activeState !== 'reloading') {
      return warning({
        cause: `${agentUnit} is installed and does not run: no program repairs drift or watches the host.`,
        evidence: [`systemd says: ${service.activeState}`],
        remedy: byHand(
          'start it again, and read why it ended',
          `sudo systemctl restart ${agentUnit}; journalctl -u ${agentUnit}`,
        ),
      });
    }
    const { status } = look.service;
    if (status?.state === 'degraded') {
      return warning({
        cause: `${agentUnit} has paused its repairs for up to 60 minutes: they failed, or another program undid each of them.`,
        evidence: [`${agentUnit} reports: ${status.problem ?? 'degraded'}`],
        remedy: byHand(
          'remove the cause that the service reports, then let the service try again at once',
          `sudo systemctl reload ${agentUnit} && vgpu-agent status ${choiceOf(profile)}`,
        ),
      });
    }
    const problem = status?.configProblem ?? service.confProblem;
    if (problem !== null) {
      return warning({
        cause:
          'agent.json has a mistake: the service keeps its current settings until restarted, then uses the defaults.',
        evidence: [problem],
        remedy: byHand('repair /etc/vgpu-agent/agent.json, then', `sudo systemctl reload ${agentUnit}`),
      });
    }
    return ok(`${agentUnit} is ${status?.state ?? 'active'}`);
  },
};
