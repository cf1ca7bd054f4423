import path from 'node:path';
import { note } from '../../contracts/events.js';
import type { ShimBuild } from '../../contracts/facts.js';
import { type OwnedItem, type PathState, sameContent } from '../../contracts/manifest.js';
import type { Change, Preflight } from '../../contracts/plan.js';
import { VgpuError } from '../../lib/errors.js';
import { isInStore, storeVersions } from '../../lib/paths.js';
import { findAlternative, findItem } from '../plan/owned.js';
import { sha256, withItem } from './manifest.js';
import { isAlready, type Target } from './place.js';
import { release } from './release.js';
import { installAlternative, readGroup, removeAlternative, runLdconfig, runReload, specOf } from './tools.js';
import { keepEdited, type Work } from './transaction.js';

/** Carries out the change and notes in `work.items` what it made. Throws the error of a step; undoes nothing. */
export async function carryOut(work: Work, change: Change): Promise<void> {
  const { effects, transaction } = work;
  switch (change.kind) {
    case 'make-directory':
      return makeDirectory(work, change.path, change.mode);
    case 'store':
      return fillStore(work, change.shim);
    case 'adopt':
      return own(work, itemOf(change.path, change.state), change.state);
    case 'write-file': {
      const content = Buffer.from(change.content);
      if (change.preflight !== undefined) await preflight(work, change.preflight);
      const target: Target = { kind: 'file', content, sha256: sha256(content), mode: change.mode };
      return put(work, change.path, target, change.before);
    }
    case 'copy-file': {
      const { mode, sha256 } = change;
      const content = await readWhole(work, change, 'copy a file of the package');
      return put(work, change.path, { kind: 'file', content, sha256, mode }, change.before);
    }
    case 'write-link':
      return put(work, change.path, { kind: 'link', target: change.target }, change.before);
    case 'alternative':
      return addAlternative(work, change);
    case 'remove-owned':
      return release(work, change.path);
    case 'remove-alternative':
      return dropAlternative(work, change.group, change.path);
    case 'remove-directory':
      return removeDirectory(work, change.path);
    case 'ldconfig':
      await transaction.record({ type: 'ldconfig' });
      return runLdconfig(effects, change.links);
    case 'daemon-reload':
      await transaction.record({ type: 'daemon-reload' });
      return runReload(effects);
    case 'note-consumer':
      return;
    case 'remove-store':
    case 'restart':
    case 'service':
      // After the commit: release.ts, apply.ts.
      return;
  }
}

function own(work: Work, item: OwnedItem, found: PathState): void {
  work.items = withItem(work.items, item, found);
}

function ownDirectory(work: Work, directory: string, mode: number): void {
  own(work, { kind: 'directory', path: directory, mode }, { kind: 'absent' });
}

async function makeParents(work: Work, file: string): Promise<void> {
  for (const parent of await work.transaction.makeParents(file)) ownDirectory(work, parent, 0o755);
}

async function makeDirectory(work: Work, directory: string, mode: number): Promise<void> {
  await makeParents(work, directory);
  const { from } = await work.transaction.place(directory, { kind: 'directory', mode });
  // A directory that existed before does not belong to vgpu-agent.
  if (from.kind === 'absent') ownDirectory(work, directory, mode);
}

async function fillStore(work: Work, shim: ShimBuild): Promise<void> {
  const directory = path.join(storeVersions, shim.id);
  // A version is named by its content, so an existing one is correct, or is being repaired; no other program writes here.
  await makeDirectory(work, directory, 0o755);
  ownDirectory(work, directory, 0o755);
  for (const file of shim.files) {
    const content = await readWhole(work, file, 'copy the shim into the store');
    const target: Target = { kind: 'file', content, sha256: file.sha256, mode: file.mode };
    await put(work, path.join(directory, file.name), target);
  }
  for (const link of shim.links) {
    await put(work, path.join(directory, link.name), { kind: 'link', target: link.target });
  }
}

async function readWhole(
  { effects }: Work,
  file: { readonly source: string; readonly sha256: string },
  operation: string,
): Promise<Buffer> {
  const content = await effects.readSource(file.source);
  if (sha256(content) === file.sha256) return content;
  throw new VgpuError(`${file.source} changed while it was being installed`, {
    kind: 'failed',
    operation,
    path: file.source,
    remedy: 'wait until the build is over, then run the same command again',
  });
}

/** The loader continues after an unusable entry of LD_PRELOAD and prints an error for each process, so check first. */
async function preflight({ effects, emit }: Work, { user, required, inherited }: Preflight): Promise<void> {
  for (const file of required) {
    const problem = await effects.loadProblem(user, file);
    if (problem === null) continue;
    throw new VgpuError(problem, {
      kind: 'failed',
      operation: 'try to load the shim as the user of the service',
      path: file,
      remedy: 'make the path readable for that user (namei -l shows it), then run the same command again',
    });
  }
  for (const file of inherited) {
    const problem = await effects.loadProblem(user, file);
    if (problem === null) continue;
    const text = `the unit had this in LD_PRELOAD before vgpu-agent, and it stays there: ${problem}`;
    note(emit, 'warning', 'preload-entry-broken', text);
  }
}

/** `planned`: the state that the plan saw there; absent for the store's own files, which no other plan contains. */
async function put(
  work: Work,
  file: string,
  target: Extract<Target, { kind: 'file' | 'link' }>,
  planned?: PathState,
): Promise<void> {
  const { effects, transaction } = work;
  const earlier = findItem(work.items, file);
  const found = await effects.disk.inspect(file);
  const already = isAlready(found, target);
  if (already) {
    // A user made it (it stays his), or a manifest that was lost listed it; inside the store only vgpu-agent can have
    // made it.
    if (earlier === undefined && !isInStore(file)) return;
  } else if (planned !== undefined) checkStillSo(file, planned, found);
  await makeParents(work, file);
  // A small installed file that a person edited: the edited text is kept when the file is written again.
  const edited = earlier?.kind === 'file' && found.kind === 'file' && !sameContent(earlier, found);
  if (edited && !isInStore(file) && !already) await keepEdited(work, file, () => null);
  const { from, backup } = await transaction.place(file, target);
  const what = { path: file, before: already ? ({ kind: 'absent' } as const) : from, backup };
  const item: OwnedItem =
    target.kind === 'link'
      ? { kind: 'link', target: target.target, ...what }
      : { kind: 'file', sha256: target.sha256, mode: target.mode, ...what };
  own(work, item, from);
}

function checkStillSo(file: string, planned: PathState, found: PathState): void {
  if (sameContent(planned, found)) return;
  throw new VgpuError(`${file} changed after the plan was made`, {
    kind: 'failed',
    operation: 'carry out the plan',
    path: file,
    remedy: 'run the same command again; it makes a new plan',
  });
}

function itemOf(file: string, state: PathState): OwnedItem {
  const unknown = { before: { kind: 'absent' }, backup: null } as const;
  switch (state.kind) {
    case 'file':
      return { kind: 'file', path: file, sha256: state.sha256, mode: state.mode, ...unknown };
    case 'link':
      return { kind: 'link', path: file, target: state.target, ...unknown };
    case 'directory':
      return { kind: 'directory', path: file, mode: state.mode };
    case 'absent':
    case 'other':
      throw new VgpuError(`${file} cannot be adopted: it is ${state.kind}`, {
        kind: 'internal',
        operation: 'adopt a file that a lost manifest owned',
        path: file,
      });
  }
}

async function addAlternative(work: Work, change: Extract<Change, { kind: 'alternative' }>): Promise<void> {
  const { effects, transaction } = work;
  const { group, path: choice, priority, link, slaves } = change;
  const present = await readGroup(effects, group);
  const previous = present === null ? null : specOf(present, choice);
  const before = present === null ? change.before : { status: present.status, value: present.value };
  await transaction.record({ type: 'alternative', group, path: choice, previous, before });
  await installAlternative(effects, { group, link, path: choice, priority, slaves });
  own(work, { kind: 'alternative', group, path: choice, priority, before }, { kind: 'absent' });
}

async function dropAlternative(work: Work, group: string, choice: string): Promise<void> {
  const { effects, transaction } = work;
  const owned = findAlternative(work.items, group, choice);
  work.items = work.items.filter((one) => one !== owned);
  const present = await readGroup(effects, group);
  const previous = present === null ? null : specOf(present, choice);
  // Its package was purged, or a user removed the choice: nothing is left to remove.
  if (present === null || previous === null) return;
  const goBackTo = owned?.before ?? { status: 'auto' as const, value: '' };
  const before = { status: present.status, value: present.value };
  await transaction.record({ type: 'alternative', group, path: choice, previous, before });
  await removeAlternative(effects, group, choice, goBackTo);
}

async function removeDirectory(work: Work, directory: string): Promise<void> {
  const { effects, transaction, emit } = work;
  // The store's directories still hold the versions; release.ts removes them after the commit.
  if (isInStore(directory)) return;
  const present = await effects.disk.inspect(directory);
  if (present.kind === 'directory') {
    if (present.empty) await transaction.place(directory, { kind: 'absent' });
    else
      note(emit, 'info', 'directory-kept', `${directory} stays: it holds files that vgpu-agent did not make`);
  }
  work.items = work.items.filter((one) => one !== findItem(work.items, directory));
}
