import { transactionFile } from '../../paths.js';
import { choiceOf } from '../../profile/instance.js';
import { broken, byHand, fixes, ok } from '../finding.js';
import type { Check } from '../types.js';

/** An install or uninstall that was killed half way. */
export const interrupted: Check = {
  id: 'interrupted',
  title: 'no install was cut short',
  looksAt: `the undo log ${transactionFile}, which is there only while something is changed`,
  explains: [],
  examine(facts) {
    if (!facts.machine.interrupted) return ok();
    const cause =
      'An install or uninstall was cut short, and what it had begun is half done. ' +
      'The next vgpu-agent finishes it or takes it back before anything else.';
    return broken({
      cause,
      evidence: [`${transactionFile} is there, and no vgpu-agent is at work`],
      remedy:
        facts.machine.manifest === null
          ? byHand('install again', `sudo vgpu-agent install ${choiceOf(facts.profile)}`)
          : fixes(facts, 'clear it up, and put right what is not'),
    });
  },
};
