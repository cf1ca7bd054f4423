/** Whether the running consumer is of the state that the plan leaves behind. Pure. */
import { isOurDevice } from '../../containers/cdi.js';
import { containerOf } from '../../containers/container-unit.js';
import type { MachineFacts, ProcessFacts } from '../../contracts/facts.js';
import type { Change, PlanOptions } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { own } from '../../lib/json.js';
import { cdiVariable, isInStore, storeVersions } from '../../lib/paths.js';
import { hasEntries, type WantedVariable } from './drop-in.js';

/** Why it has to be started again although nothing on the disk changes; null: it is up to date. */
export function outdatedReason(
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): string | null {
  if (unit.activeState === 'inactive')
    return `${unit.name} does not run; it is started to see whether it finds the GPU`;
  if (unit.activeState === 'failed') {
    return `${unit.name} has failed (${unit.result}); it is started again to see whether it finds the GPU`;
  }
  for (const process of facts.processes) {
    const old = oldLibrary(process, facts.shim.id);
    if (old !== null) return `process ${process.pid} (${process.name}) still uses ${old}`;
  }
  if (containerOf(unit)?.devices.some(isOurDevice)) return startedWithoutDevice(facts);
  const lacking = mainWithout(facts, unit, variables);
  // After a restart it would lack them again.
  if (lacking === null || lacking.main.environmentCleared) return null;
  const { main, variable } = lacking;
  return `process ${main.pid} (${main.name}) was started before ${variable} was set for it`;
}

/** A wrapper takes the variables away: which process lacks which one; null: none does. */
export function takenAwayFrom(
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): string | null {
  const lacking = mainWithout(facts, unit, variables);
  if (lacking?.main.environmentCleared !== true) return null;
  return `process ${lacking.main.pid} (${lacking.main.name}) lacks ${lacking.variable}, and INVOCATION_ID, which systemd gives to every service`;
}

/** The main process, and the first of the loader's variables that it should have and has not. */
function mainWithout(
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): { readonly main: ProcessFacts; readonly variable: string } | null {
  const main = facts.processes.find((process) => process.pid === unit.mainPid);
  if (main === undefined || main.unreadable?.includes('environ')) return null;
  const missing = variables.find(
    (variable) =>
      variable.overridden === null &&
      // Only these are read from /proc/PID/environ.
      ['LD_PRELOAD', 'LD_LIBRARY_PATH'].includes(variable.name) &&
      !hasEntries(own(main.loaderEnvironment, variable.name), variable),
  );
  return missing === undefined ? null : { main, variable: missing.name };
}

/** The device sets a variable. A container without this variable started before the device was added. */
function startedWithoutDevice({ processes }: MachineFacts): string | null {
  const first = processes.find(({ namespacePid }) => namespacePid === 1);
  if (first === undefined || first.unreadable?.includes('environ')) return null;
  if (first.loaderEnvironment[cdiVariable] !== undefined) return null;
  return `process ${first.pid} (${first.name}) was started before its container was given the device`;
}

/** A shim of another version, or one that has been replaced under it. */
function oldLibrary(process: ProcessFacts, id: string): string | null {
  const old = process.libraries.find(
    (library) =>
      isInStore(library.path) && (library.deleted || !library.path.startsWith(`${storeVersions}/${id}/`)),
  );
  if (old === undefined) return null;
  return old.deleted ? `${old.path}, which has been removed` : `the former version, ${old.path}`;
}

/** Does a running process of the unit still lean on us? For uninstall. */
export function leansOnStore(facts: MachineFacts): string | null {
  for (const process of facts.processes) {
    const mapped = process.libraries.find((library) => isInStore(library.path));
    if (mapped !== undefined) return `process ${process.pid} (${process.name}) uses ${mapped.path}`;
    const named = Object.entries(process.loaderEnvironment).find(([, value]) =>
      value.split(':').some(isInStore),
    );
    if (named !== undefined)
      return `process ${process.pid} (${process.name}) has ${named[0]} set to the store`;
  }
  return null;
}

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

export function unitChange(
  unit: string,
  action: Extract<Change, { kind: 'service' }>['action'],
  reason: string,
): Extract<Change, { kind: 'service' }> {
  return { kind: 'service', unit, action, reason };
}
