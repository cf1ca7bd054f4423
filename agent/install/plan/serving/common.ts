/** The common parts of a host's plans. */
import type { Warning } from '../../../contracts/plan.js';
import type { ServingFacts } from '../../../contracts/serving.js';

/** The name of a host in the manifest: there is one on a machine. */
export const hostProfile = 'host';

export function interrupted(facts: ServingFacts): readonly Warning[] {
  if (!facts.interrupted) return [];
  const message = 'an earlier run was interrupted; vgpu-agent cleans up after it first';
  return [{ code: 'interrupted-run', message, remedy: null }];
}

/** Null: the daemon runs and does not say. Then there may be some, and none of them is ended without being asked to. */
export function sessionsOf({ daemon, service }: ServingFacts): number | null {
  if (daemon !== null) return daemon.sessions.length;
  return service.activeState === 'inactive' || service.activeState === 'failed' ? 0 : null;
}
