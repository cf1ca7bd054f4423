/** Verdicts as text, for the files of what is expected word for word. */

import type { Verdict } from '../../../agent/contracts/verdict.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import { answers, cpu } from './evidence.js';
import { observation } from './support.js';

/** Evidence as a line each; `known` lines are left out, so that a case shows what is different. */
export function verdictText(verdict: Verdict, known: readonly string[] = []): string {
  const { mode, reason, summary, next, simulated } = verdict;
  return [
    `${mode}, ${reason ?? 'no reason'}${simulated ? ', simulated' : ''}`,
    summary,
    `> ${next ?? 'nothing to do'}`,
    ...evidenceLines(verdict).filter((line) => !known.includes(line)),
  ].join('\n');
}
function evidenceLines({ evidence }: Verdict): readonly string[] {
  return evidence.map(
    ({ kind, weight, text, source }) =>
      `[${kind}, ${weight}] ${text}${source === null ? '' : ` (${source})`}`,
  );
}
/** Of a verdict where all is well, and the lines of the two logs that most cases have. */
export function usualLines(): readonly string[] {
  const cpuLines = evidenceLines(decideVerdict(observation({ log: cpu })));
  return [
    ...evidenceLines(decideVerdict(observation())),
    ...cpuLines,
    ...evidenceLines(decideVerdict(observation({ host: answers(40) }))),
  ];
}
