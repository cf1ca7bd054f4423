import { transactionFile, trialFile } from '../../paths.js';
import { choiceOf } from '../../profile/instance.js';
import { broken, byHand, fixes, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

/** An install or uninstall that was killed half way, or an install that was killed while it waited for the service. */
export const interrupted: Check = {
  id: 'interrupted',
  title: 'no install was cut short',
  looksAt:
    `the undo log ${transactionFile}, which is there only while something is changed, and ${trialFile}, ` +
    'which is there only while an install waits for the service',
  explains: [],
  examine(facts) {
    const { machine, profile } = facts;
    if (machine.interrupted) {
      const cause =
        'An install or uninstall was cut short, and what it had begun is half done. ' +
        'The next vgpu-agent finishes it or takes it back before anything else.';
      return broken({
        cause,
        evidence: [`${transactionFile} is there, and no vgpu-agent is at work`],
        remedy:
          machine.manifest === null
            ? byHand('install again', `sudo vgpu-agent install ${choiceOf(profile)}`)
            : fixes(facts, 'clear it up, and put right what is not'),
      });
    }
    if (machine.trial !== true) return ok();
    return warning({
      cause:
        'An install with --rollback-on-failure waits until the service settles, or was killed while it waited. ' +
        'What it installed is complete and stays; the copies for taking it back are still kept.',
      evidence: [`${trialFile} is there`],
      remedy: fixes(facts, 'if that install does not run any more, have the copies removed'),
    });
  },
};
