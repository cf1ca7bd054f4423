/** What the plans of a host have in common. */
import type { Warning } from '../../contracts/plan.js';
import type { ServingFacts } from '../../contracts/serving.js';

/** What stands in the manifest for a host: there is one on a machine. */
export const hostProfile = 'host';

export function interrupted(facts: ServingFacts): readonly Warning[] {
  if (!facts.interrupted) return [];
  const message = 'a former run was cut short; what it left is cleared up before anything else';
  return [{ code: 'interrupted-run', message, remedy: null }];
}

export function sessionsOf({ daemon }: ServingFacts): number {
  return daemon?.sessions.length ?? 0;
}
