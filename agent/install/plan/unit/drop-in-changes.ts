/** Our drop-ins of the unit, written, set right or taken away. Pure. */
import { createHash } from 'node:crypto';
import type { MachineFacts, OwnedFileFacts } from '../../../contracts/facts.js';
import type { Change } from '../../../contracts/plan.js';
import type { LoadedUnit } from '../../../contracts/unit.js';
import { dropInPath } from '../../../lib/paths.js';
import type { Profile } from '../../../profile/types.js';
import { readableChange, writeChange } from '../our-files.js';
import { lastDropInPath, type WantedVariable, wantedDropIns } from './drop-in.js';

export function dropInChanges(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): readonly Change[] {
  const wanted = wantedDropIns(profile, unit, variables);
  const libraries = variables.filter((variable) => variable.preflight === 'library');
  const preflight = {
    user: facts.serviceUser,
    required: libraries.flatMap((variable) => variable.entries),
    inherited: libraries
      // The loader splits LD_PRELOAD at blanks too.
      .flatMap((variable) => variable.inherited.flatMap((entry) => entry.split(' ')))
      .filter((entry) => entry.startsWith('/') && !entry.includes('%') && !entry.includes('$')),
  };
  const changes: Change[] = [];
  for (const { path, content, reason } of wanted) {
    const present = presentDropIn(facts, unit, path);
    if (present.content === content) changes.push(...readableChange(present, 'tools of every user read it'));
    else changes.push(writeChange(present, content, reason, preflight));
  }
  const last = lastDropInPath(unit.name);
  const owned = facts.manifest?.items.find((item) => item.kind === 'file' && item.path === last);
  if (owned?.kind === 'file' && !wanted.some((one) => one.path === last)) {
    const reason = 'no other drop-in sets the same variables any more';
    changes.push({ kind: 'remove-owned', path: last, restores: owned.before, reason });
  }
  return changes;
}

/** The facts list the first drop-in by itself; another is known from what systemd has read. */
export function presentDropIn(facts: MachineFacts, unit: LoadedUnit, path: string): OwnedFileFacts {
  if (path === dropInPath(unit.name)) return facts.dropIn;
  const loaded = unit.dropIns.find((dropIn) => dropIn.path === path);
  if (loaded === undefined) return { path, state: { kind: 'absent' }, content: null };
  const { content } = loaded;
  const sha256 = createHash('sha256').update(content).digest('hex');
  const owner = { uid: 0, gid: 0, mtimeNs: '0' };
  const state = { kind: 'file' as const, size: Buffer.byteLength(content), sha256, mode: 0o644, ...owner };
  return { path, state, content };
}
