import { containerOf, editCommand } from '../../../containers/container-unit.js';
import { kindOf } from '../../../contracts/path-state.js';
import type { Change } from '../../../contracts/plan.js';
import type { LoadedUnit } from '../../../contracts/unit.js';
import { deliveryOf } from '../../../install/plan/container.js';
import { ourDropIns } from '../../../install/plan/unit/drop-in.js';
import {
  broken,
  byHand,
  changeEvidence,
  fixes,
  notApplicable,
  ok,
  plannedChanges,
  unknown,
} from '../finding.js';
import type { Check, DoctorFacts, Trouble } from '../types.js';

/** The environment that the service is given: its file, and whether systemd has read it. */
export const dropIn: Check = {
  id: 'drop-in',
  title: "vgpu-agent's drop-in is complete and loaded",
  looksAt:
    "vgpu-agent's drop-ins of the unit, byte for byte, and the unit's environment as systemd has loaded it",
  explains: [],
  examine(facts) {
    const { unit, manifest, dropIn: file } = facts.machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (manifest === null) return notApplicable('nothing is installed');
    const quadlet = facts.machine.containers?.dropIn ?? null;
    const paths = new Set([...ourDropIns(unit.name), ...(quadlet === null ? [] : [quadlet.path])]);
    const planned = plannedChanges(facts);
    const files = planned.filter((change) => 'path' in change && paths.has(change.path));
    if (files.length > 0) {
      return broken({
        cause: `The drop-in ${whatHappened(facts)}: ${unit.name} does not get the right path of the shim.`,
        evidence: files.flatMap(differences),
        remedy: fixes(facts, 'write it again, have systemd read it, and restart the service'),
      });
    }
    const reload = planned.find((change) => change.kind === 'daemon-reload');
    if (reload !== undefined) {
      const stale = unit.needDaemonReload ? ['NeedDaemonReload=yes'] : [];
      return broken({
        cause: `The drop-in is there, but systemd has not read it: the next start of ${unit.name} does not use it.`,
        evidence: [changeEvidence(reload), ...stale],
        remedy: fixes(facts, 'have systemd read it, and restart the service'),
      });
    }
    const delivery = deliveryOf(facts.machine, unit);
    const container = containerOf(unit);
    if (delivery?.kind === 'own') {
      const asks =
        container?.command === 'compose' ? `container ${container.name}` : `command of ${unit.name}`;
      return ok(`the ${asks} asks for the device itself`);
    }
    if (container?.command === 'compose' && container.name === null)
      return unknown('the unit starts containers of a compose file: see there whether it asks for the GPU');
    if (delivery?.kind === 'by-hand') return broken(withoutDevice(delivery, unit));
    return ok(`${(quadlet ?? file).path} is in force`);
  },
};

function withoutDevice({ message, remedy }: { message: string; remedy: string }, unit: LoadedUnit): Trouble {
  return {
    cause: `The container does not get the GPU: ${message}.`,
    evidence: [message],
    remedy: byHand(remedy, `sudo ${editCommand(unit)}`),
  };
}

function whatHappened({ machine: { dropIn: file, manifest } }: DoctorFacts): string {
  const { state } = file;
  if (state.kind !== 'file')
    return state.kind === 'absent' ? 'is missing' : `was replaced by ${kindOf(state)}`;
  const item = manifest?.items.find((one) => one.kind === 'file' && one.path === file.path);
  return item?.kind === 'file' && item.sha256 === state.sha256
    ? 'is unchanged, but a newer setting of the unit conflicts with it'
    : 'was changed';
}

/** Lines that are missing from an installed file, and lines that it has beyond them. */
function differences(change: Change): readonly string[] {
  if (change.kind !== 'write-file') return [changeEvidence(change)];
  const { path, content, previousContent } = change;
  if (previousContent === null) return [`${path} is not there`];
  const wanted = settingsOf(content);
  const present = settingsOf(previousContent);
  const lines = [
    ...wanted.filter((line) => !present.includes(line)).map((line) => `${path} lacks ${line}`),
    ...present.filter((line) => !wanted.includes(line)).map((line) => `${path} has ${line}`),
  ];
  return lines.length > 0 ? lines : [`${path} differs in its comments or the order of its lines`];
}

function settingsOf(text: string): readonly string[] {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}
