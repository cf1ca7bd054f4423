/** The commands that make changes take effect: systemd reads its files, and the consumer is restarted. Pure. */
import type { MachineFacts } from '../../contracts/facts.js';
import type { Change, PlanOptions } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { outdatedReason } from './restart.js';
import type { WantedVariable } from './unit/drop-in.js';

export function reloadChange(
  inForce: boolean,
  dropIns: readonly Change[],
  service: boolean,
): readonly Change[] {
  if (dropIns.some((change) => change.kind === 'write-file' || change.kind === 'remove-owned')) {
    return [{ kind: 'daemon-reload', reason: 'systemd reads drop-ins only when it reloads' }];
  }
  if (service) return [{ kind: 'daemon-reload', reason: 'systemd reads unit files only when it reloads' }];
  if (inForce) return [];
  return [{ kind: 'daemon-reload', reason: 'the drop-in is there, but systemd has not read it yet' }];
}

export function restartChange(
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
  options: PlanOptions,
  changes: readonly Change[],
): readonly Change[] {
  if (!options.restart) return [];
  const reason = changes.some((change) => concernsConsumer(facts, change))
    ? 'a program looks for GPUs only once, when it starts'
    : outdatedReason(facts, unit, variables);
  return reason === null ? [] : [{ kind: 'restart', unit: unit.name, reason }];
}

/** Would a start now go differently from one before? */
function concernsConsumer({ store, shim }: MachineFacts, change: Change): boolean {
  switch (change.kind) {
    case 'write-file':
      // Only its mode is corrected: the running process has read the same content.
      return change.content !== change.previousContent;
    case 'write-link':
      // A name for linkers where there was none: a running program found the library by its other name, or did not find it.
      return !(change.before.kind === 'absent' && change.path.endsWith('.so'));
    case 'alternative':
    case 'remove-owned':
      return true;
    case 'store':
      return !store.versions.some((version) => version.id === shim.id && version.intact);
    default:
      return false;
  }
}
