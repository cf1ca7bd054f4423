import { transactionFile, trialFile } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, fixes, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

/** An install or uninstall that was killed half way, or an install that was killed while it waited for the service. */
export const interrupted: Check = {
  id: 'interrupted',
  title: 'no install was interrupted',
  looksAt:
    `the undo log ${transactionFile}, which is there only while something is changed, and ${trialFile}, ` +
    'which is there only while an install waits for the service',
  explains: [],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.interrupted) {
      const cause =
        'An install or uninstall was interrupted, and its changes are incomplete. ' +
        'The next vgpu-agent install or uninstall finishes or undoes it first.';
      return broken({
        cause,
        evidence: [`${transactionFile} exists, and no vgpu-agent is changing this machine`],
        remedy:
          machine.manifest === null
            ? byHand('install again', `sudo vgpu-agent install ${choiceOf(profile)}`)
            : fixes(facts, 'clean up, and repair what differs'),
      });
    }
    if (machine.trial !== true) return ok();
    return warning({
      cause:
        'An install with --rollback-on-failure waits until vgpu-agent.service settles, or was killed while it waited. ' +
        'What it installed is complete and stays; the copies for undoing it are still kept.',
      evidence: [`${trialFile} is there`],
      remedy: fixes(facts, 'if that install does not run any more, remove the copies'),
    });
  },
};
