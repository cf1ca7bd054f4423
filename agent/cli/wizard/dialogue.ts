/** The dialogue: question by question, and back; ends when all is known that an install needs. */

import type { HostFacts } from '../../contracts/facts.js';
import { VgpuError } from '../../lib/errors.js';
import { decisionOf, lookAgain, nextQuestion, otherAddress, stopHere, yes } from './questions.js';
import type { Answers, Ask, Decision, Found, HostSeen, Question } from './types.js';
import { hostLine } from './words.js';

export interface DialogueEffects {
  readonly ask: Ask;
  /** Asks one host; bounded in time. */
  readonly askHost: (endpoint: string) => Promise<HostFacts['answer']>;
  /** Tries every candidate again. */
  readonly lookAgain: () => Promise<readonly HostSeen[]>;
  /** Prints a line. */
  readonly say: (text: string) => void;
}

/** Where the dialogue stands. A value: going back is taking an older one. */
export interface Standing {
  readonly found: Found;
  readonly answers: Answers;
  /** The standings at each question that was answered, the first first. */
  readonly past: readonly Standing[];
}

export function beginning(found: Found): Standing {
  return { found, answers: {}, past: [] };
}

/** The standing at the question before this one. */
export function back(standing: Standing): Standing {
  return standing.past.at(-1) ?? standing;
}

/**
 * Asks what is not known yet. Throws a VgpuError: `interrupted` when the person stops, `refused` when there is
 * no host to go on with.
 */
export async function decide(
  start: Standing,
  effects: DialogueEffects,
): Promise<{ readonly decision: Decision; readonly standing: Standing }> {
  let standing = start;
  for (;;) {
    const question = nextQuestion(standing.found, standing.answers);
    const decision = decisionOf(standing.found, standing.answers);
    if (question === null) {
      if (decision !== null) return { decision, standing };
      throw new VgpuError('the dialogue ended without a decision', { kind: 'internal', operation: 'ask' });
    }
    const answer = await effects.ask(question, { back: standing.past.length > 0 });
    standing =
      answer.kind === 'back' ? back(standing) : await taken(standing, question, answer.value, effects);
  }
}

async function taken(
  standing: Standing,
  question: Question,
  value: string,
  effects: DialogueEffects,
): Promise<Standing> {
  const { answers, found } = standing;
  const next = (more: Answers): Standing => ({
    found,
    answers: { ...answers, ...more },
    past: [...standing.past, standing],
  });
  switch (question.id) {
    case 'consumer':
      return next({ profile: value });
    case 'service':
      return next({ service: value === yes });
    case 'host':
      if (value === otherAddress) return next({ typing: true });
      if (value === stopHere) throw noHost(found.hosts);
      // Another look is no step that one could go back from.
      if (value === lookAgain) return { ...standing, found: { ...found, hosts: await effects.lookAgain() } };
      return next({ host: value });
    case 'address': {
      const answer = await effects.askHost(value);
      const seen: HostSeen = { endpoint: value, from: 'typed', answer };
      effects.say(hostLine(seen));
      // Asked again: an address without an answer is most often a typing error.
      return answer.kind === 'answers' ? next({ host: value }) : standing;
    }
    case 'go':
    case 'device':
      throw new VgpuError('the wizard does not have this question', { kind: 'internal', operation: 'ask' });
  }
}

function noHost(hosts: readonly HostSeen[]): VgpuError {
  return new VgpuError(`no host answers:\n${hosts.map((one) => `  ${hostLine(one)}`).join('\n')}`, {
    kind: 'refused',
    operation: 'find the host',
    remedy:
      'start vgpu-hostd on the host, then sudo vgpu-agent setup; to install before it runs: ' +
      'sudo vgpu-agent install --host ADDRESS --allow-unreachable-host',
  });
}
