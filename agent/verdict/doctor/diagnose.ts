/** Facts to findings, in the order in which they explain. Pure. */
import { ExitCode } from '../../lib/errors.js';
import { checks } from './checks.js';
import type { Check, CheckResult, Diagnosis, DoctorFacts } from './types.js';

/** Every check's finding; `all` is for tests. */
export function diagnose(facts: DoctorFacts, all: readonly Check[] = checks): Diagnosis {
  const results = all.map((check): CheckResult => ({ check, finding: examine(check, facts) }));
  const { reason } = facts.verdict;
  const explains = ({ check }: CheckResult): number =>
    reason !== null && check.explains.includes(reason) ? 0 : 1;
  const broken = results
    .filter(({ finding }) => finding.kind === 'broken')
    .toSorted((a, b) => explains(a) - explains(b));
  return { results, broken, verdict: facts.verdict };
}

/** A fault in one check must not hide the findings of the others. */
function examine(check: Check, facts: DoctorFacts): CheckResult['finding'] {
  try {
    return check.examine(facts);
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    return {
      kind: 'unknown',
      why: 'the check itself failed, which is a bug in vgpu-agent',
      evidence: [said],
    };
  }
}

/** GPU mode is proven and nothing is broken. */
export function isHealthy({ broken, verdict }: Diagnosis): boolean {
  return verdict.mode === 'gpu' && broken.length === 0;
}

/** The verdict's; a GPU verdict beside something broken is degraded: the next start may go differently. */
export function exitCodeOf(diagnosis: Diagnosis): ExitCode {
  if (isHealthy(diagnosis)) return ExitCode.done;
  switch (diagnosis.verdict.mode) {
    case 'cpu':
      return ExitCode.cpu;
    case 'undetermined':
      return ExitCode.undetermined;
    case 'gpu':
    case 'degraded':
      return ExitCode.degraded;
  }
}
