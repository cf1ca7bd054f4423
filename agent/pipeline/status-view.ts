/** What `status` shows, made from facts and verdict; the service keeps the same view on the bus. */
import type { Manifest } from '../apply/types.js';
import type { Verdict } from '../confirm/types.js';
import type { MachineFacts, UnitFacts } from '../machine/types.js';
import { changeTitle } from '../output/plan-text.js';
import type { StatusView } from '../output/status-text.js';
import type { Change, Plan } from '../plan/types.js';

/** `plan` is what install would do now to what is installed (null: nothing is). */
export function statusView(facts: MachineFacts, plan: Plan | null, verdict: Verdict | null): StatusView {
  const { manifest } = facts;
  return {
    installed: manifest === null ? null : installedOf(manifest),
    interrupted: facts.interrupted,
    drift: driftOf(plan).map((change) => ({ change: changeTitle(change), reason: change.reason })),
    unit: unitOf(facts.unit),
    host: facts.host,
    verdict,
  };
}

/** What would mend it: no restart is drift, nor is it one that the service does not run. */
export function driftOf(plan: Plan | null): readonly Change[] {
  if (plan?.kind !== 'ready') return [];
  return plan.changes.filter((change) => change.kind !== 'restart' && change.kind !== 'service');
}

function installedOf({ agent, profile, unit, storeId, endpoint, items }: Manifest): StatusView['installed'] {
  return { agent, profile, unit, storeId, endpoint, items: items.length };
}

function unitOf(unit: UnitFacts): StatusView['unit'] {
  if (unit.kind !== 'loaded') {
    return { name: unit.name, load: unit.kind, active: null, invocationId: null, restarts: null };
  }
  const { name, activeState, subState, invocationId, restarts } = unit;
  return { name, load: 'loaded', active: `${activeState} (${subState})`, invocationId, restarts };
}
