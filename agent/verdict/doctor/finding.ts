/** Findings in few words, and the remedies that many checks share. */

import { editCommand } from '../../containers/container-unit.js';
import type { Change } from '../../contracts/plan.js';
import type { UnitFacts } from '../../contracts/unit.js';
import { changeTitle } from '../../install/plan/change-title.js';
import { containerLibraryDirectories } from '../../lib/paths.js';
import { choiceOf } from '../../profile/instance.js';
import type { DoctorFacts, Finding, Remedy, Trouble } from './types.js';

export function ok(...evidence: readonly string[]): Finding {
  return { kind: 'ok', evidence };
}

export function notApplicable(why: string): Finding {
  return { kind: 'not-applicable', why };
}

export function unknown(why: string, ...evidence: readonly string[]): Finding {
  return { kind: 'unknown', why, evidence };
}

export function broken(trouble: Trouble): Finding {
  return { kind: 'broken', ...trouble };
}

export function warning(trouble: Trouble): Finding {
  return { kind: 'warning', ...trouble };
}

/** Ours to repair: install's plan does it, and so does `--fix`. */
export function fixes({ profile }: DoctorFacts, text: string): Remedy {
  return {
    text,
    command: `sudo vgpu-agent doctor --fix ${choiceOf(profile)}`,
    where: 'guest',
    fix: true,
  };
}

/** For a person to do. */
export function byHand(text: string, command: string): Remedy {
  return { text, command, where: 'guest', fix: false };
}

/** For a person to do on the other machine, where this command would find nothing here. */
export function onTheHost(text: string, command: string): Remedy {
  return { text, command, where: 'host', fix: false };
}

/** A setting of the unit to be changed in a drop-in of the person's own. */
export function editUnit({ profile, machine }: DoctorFacts, text: string): Remedy {
  return byHand(
    `${text}, then start it again`,
    `sudo ${editCommand(machine.unit)} && sudo systemctl restart ${profile.unit}`,
  );
}

/** A driver of the image's own comes first: the shim's directory in the container has to come before it. */
export function shimFirst(facts: DoctorFacts): Remedy {
  const [directory] = containerLibraryDirectories;
  return editUnit(facts, `give the container LD_LIBRARY_PATH=${directory}, where its device has the shim`);
}

/** Variables out of the place that sets each: its environment file, or the unit and its drop-ins. */
export function takeOut(
  unit: UnitFacts,
  hits: readonly { readonly variable: string; readonly file: string | null }[],
): Remedy {
  const files = [...new Set(hits.map(({ file }) => file))];
  const named = files.map((file) => {
    const names = new Set(hits.filter((hit) => hit.file === file).map(({ variable }) => variable));
    return `${[...names].join(' and ')} out${file === null ? '' : ` of ${file}`}`;
  });
  const edits = files.map((file) => (file === null ? `sudo ${editCommand(unit)}` : `sudoedit ${file}`));
  return byHand(
    `take ${named.join(' and ')}, then start it again`,
    [...edits, `sudo systemctl restart ${unit.name}`].join(' && '),
  );
}

/** The changes that install would make; nothing when the plan is refused. */
export function plannedChanges({ plan }: DoctorFacts): readonly Change[] {
  return plan.kind === 'ready' ? plan.changes : [];
}

/** A planned change as a line of evidence: what would be changed, and why. */
export function changeEvidence(change: Change): string {
  return `${changeTitle(change)}: ${change.reason}`;
}
