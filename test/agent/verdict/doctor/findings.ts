/** Findings as text, for the files of what checks are expected to say. */
import type { Check, DoctorFacts, Finding } from '../../../../agent/verdict/doctor/finding.js';
import type { Expected } from '../../expected.js';

/** The check's title, then its finding in each case. */
export function says(expected: Expected, check: Check, cases: Readonly<Record<string, DoctorFacts>>): void {
  expected.text(check.id, () =>
    [check.title, `looks at ${check.looksAt}`, `explains ${check.explains.join(', ') || 'no verdict'}`].join(
      '\n',
    ),
  );
  for (const [when, facts] of Object.entries(cases)) {
    expected.text(`${check.id}: ${when}`, () => findingText(check.examine(facts)));
  }
}

export function findingText(finding: Finding): string {
  switch (finding.kind) {
    case 'ok':
      return ['ok', ...lines(finding.evidence)].join('\n');
    case 'not-applicable':
      return `not applicable: ${finding.why}`;
    case 'unknown':
      return [`unknown: ${finding.why}`, ...lines(finding.evidence)].join('\n');
    case 'broken':
    case 'warning': {
      const { text, command, where, fix } = finding.remedy;
      return [
        `${finding.kind}: ${finding.cause}`,
        ...lines(finding.evidence),
        `do: ${text}`,
        `${where}${fix ? ', by --fix' : ''}$ ${command}`,
      ].join('\n');
    }
  }
}

function lines(evidence: readonly string[]): readonly string[] {
  return evidence.map((line) => `- ${line}`);
}
