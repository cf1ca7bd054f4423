import { agentUnit } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { byHand, changeEvidence, fixes, notApplicable, ok, plannedChanges, warning } from '../finding.js';
import type { Check } from '../types.js';

/** Installed with --service: then it has to run, and to be able to. */
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
    if (service === undefined || !owned) return notApplicable('it is not installed (install --service)');
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
        cause: `${agentUnit} has stopped repairing: its limit is reached, and the changes came back each time.`,
        evidence: [`it says: ${status.problem ?? 'degraded'}`],
        remedy: byHand(
          'repair what it names, then restart it',
          `sudo systemctl restart ${agentUnit} && vgpu-agent status ${choiceOf(profile)}`,
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
