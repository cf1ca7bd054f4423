/** Undoes a transaction, last step first. Can be interrupted and repeated at any point. */
import path from 'node:path';
import { type Emit, note } from '../../contracts/events.js';
import { sameContent } from '../../contracts/manifest.js';
import { guestConf, storeRoot } from '../../lib/paths.js';
import type { ApplyEffects } from './effects.js';
import { failureOf } from './failures.js';
import { asideFor, clear, place, sameState, temporaryFor } from './place.js';
import type { PathRecord, StepRecord } from './records.js';
import { runLdconfig, runReload, undoAlternative } from './tools.js';

const unread = ['/usr/bin', '/usr/share', '/etc/default'];

type Reader = 'systemd' | 'loader' | 'nobody';

/**
 * Undoes the steps. systemd and the loader cache are reloaded as soon as the last of their files is restored, *before*
 * the store is removed: a consumer that starts in between finds the files that its unit names. Throws the system's error
 * if a path cannot be restored; a failed tool is only recorded, because it can run again.
 */
export async function undoSteps(
  effects: ApplyEffects,
  steps: readonly StepRecord[],
  emit: Emit,
): Promise<void> {
  let pending: Reader = 'nobody';
  const tell = async (next: Reader): Promise<void> => {
    if (pending === next || pending === 'nobody') return;
    await noteFailure(emit, () => (pending === 'systemd' ? runReload(effects) : runLdconfig(effects, false)));
    pending = 'nobody';
  };
  for (const step of [...steps].reverse()) {
    const reader = readerOf(effects, step);
    await tell(reader);
    const changed = await undoStep(effects, step, emit);
    if (changed) pending = reader;
  }
  await tell('nobody');
}

function readerOf({ disk }: ApplyEffects, step: StepRecord): Reader {
  switch (step.type) {
    case 'daemon-reload':
      return 'systemd';
    case 'ldconfig':
    case 'alternative':
      return 'loader';
    case 'path':
      if (step.path.startsWith('/etc/systemd/')) return 'systemd';
      for (const root of [storeRoot, disk.state.directory, path.dirname(guestConf), ...unread]) {
        if (step.path === root || step.path.startsWith(`${root}/`)) return 'nobody';
      }
      return 'loader';
  }
}

async function undoStep(effects: ApplyEffects, step: StepRecord, emit: Emit): Promise<boolean> {
  switch (step.type) {
    case 'ldconfig':
    case 'daemon-reload':
      return true;
    case 'alternative':
      await undoAlternative(effects, step);
      return true;
    case 'path':
      return undoPath(effects, step, emit);
  }
}

async function undoPath({ disk }: ApplyEffects, step: PathRecord, emit: Emit): Promise<boolean> {
  await clear(disk, temporaryFor(step.path));
  const present = await disk.inspect(step.path);
  if (sameState(present, step.from)) return false;
  if (present.kind === 'directory' && step.to.kind === 'directory' && !present.empty) {
    note(emit, 'warning', 'directory-kept', `${step.path} stays: another program has put a file into it`);
    return false;
  }
  const backup = step.backup === null ? null : path.join(disk.state.backups, step.backup);
  const keepAside = async (copy: string): Promise<string> => {
    const aside = await asideFor(disk, step.path, step.from.kind === 'file' ? step.from.sha256 : null);
    if (!aside.kept) await place(disk, aside.path, { kind: 'copy', backup: copy, state: step.from });
    return aside.path;
  };
  // Absent counts: between a directory and a link in its place there is a moment with neither.
  if (present.kind !== 'absent' && !sameContent(present, step.to)) {
    const text = `${step.path} was changed by another program in the meantime and stays as it is`;
    const former = backup === null ? '' : `; what was there before is kept as ${await keepAside(backup)}`;
    note(emit, 'warning', 'changed-meanwhile', text + former);
    return false;
  }
  await place(
    disk,
    step.path,
    backup === null ? { kind: 'absent' } : { kind: 'copy', backup, state: step.from },
  );
  return true;
}

async function noteFailure(emit: Emit, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const { text, remedy } = failureOf(error);
    note(emit, 'warning', 'tool-failed-in-undo', text, remedy);
  }
}
