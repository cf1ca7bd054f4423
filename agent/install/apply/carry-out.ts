import path from 'node:path';
import { note } from '../../contracts/events.js';
import type { ShimBuild } from '../../contracts/facts.js';
import { type OwnedItem, type PathState, sameContent } from '../../contracts/manifest.js';
import type { Change, Preflight } from '../../contracts/plan.js';
import { VgpuError } from '../../lib/errors.js';
import { isInStore, storeVersions } from '../../lib/paths.js';
import { findAlternative, findItem, isOurs } from '../plan/owned.js';
import { sha256, withItem } from './manifest.js';
import { isAlready, type Target } from './place.js';
import { release } from './release.js';
import { installAlternative, readGroup, removeAlternative, runLdconfig, runReload, specOf } from './tools.js';
import { keepEdited, type Work } from './transaction.js';

/** Carries out the change; returns the new items of the manifest. Throws the error of a step; undoes nothing. */
export async function carryOut(
  work: Work,
  change: Change,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const { effects, transaction } = work;
  switch (change.kind) {
    case 'make-directory':
      return makeDirectory(work, change.path, change.mode, items);
    case 'store':
      return fillStore(work, change.shim, items);
    case 'adopt':
      return withItem(items, itemOf(change.path, change.state), change.state);
    case 'write-file': {
      const content = Buffer.from(change.content);
      const target: Target = { kind: 'file', content, sha256: sha256(content), mode: change.mode };
      if (change.preflight !== undefined) await preflight(work, change.preflight);
      return put({ ...work, ...change, target }, items);
    }
    case 'copy-file': {
      const { mode, sha256 } = change;
      const content = await readWhole(work, change, 'copy a file of the package');
      return put({ ...work, ...change, target: { kind: 'file', content, sha256, mode } }, items);
    }
    case 'write-link':
      return put({ ...work, ...change, target: { kind: 'link', target: change.target } }, items);
    case 'alternative':
      return addAlternative(work, change, items);
    case 'remove-owned':
      return release(work, change.path, items);
    case 'remove-alternative':
      return dropAlternative(work, change.group, change.path, items);
    case 'remove-directory':
      return removeDirectory(work, change.path, items);
    case 'note-consumer':
      return items;
    case 'ldconfig':
      await transaction.record({ type: 'ldconfig' });
      await runLdconfig(effects, change.links);
      return items;
    case 'daemon-reload':
      await transaction.record({ type: 'daemon-reload' });
      await runReload(effects);
      return items;
    case 'remove-store':
    case 'restart':
    case 'service':
      // After the commit: release.ts, apply.ts.
      return items;
  }
}

async function makeDirectory(
  { transaction }: Work,
  directory: string,
  mode: number,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const made = await transaction.makeParents(directory);
  const owned = made.reduce((all, parent) => withDirectory(all, parent, 0o755), items);
  const { from } = await transaction.place(directory, { kind: 'directory', mode });
  // A directory that existed before does not belong to vgpu-agent.
  return from.kind === 'absent' ? withDirectory(owned, directory, mode) : owned;
}

function withDirectory(items: readonly OwnedItem[], directory: string, mode: number): readonly OwnedItem[] {
  return withItem(items, { kind: 'directory', path: directory, mode }, { kind: 'absent' });
}

async function fillStore(
  work: Work,
  shim: ShimBuild,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const directory = path.join(storeVersions, shim.id);
  // A version is named by its content, so an existing one is correct, or is being repaired; no other program writes here.
  let owned = withDirectory(await makeDirectory(work, directory, 0o755, items), directory, 0o755);
  for (const file of shim.files) {
    const content = await readWhole(work, file, 'copy the shim into the store');
    const target: Target = { kind: 'file', content, sha256: file.sha256, mode: file.mode };
    owned = await put({ ...work, path: path.join(directory, file.name), target }, owned);
  }
  for (const link of shim.links) {
    const target: Target = { kind: 'link', target: link.target };
    owned = await put({ ...work, path: path.join(directory, link.name), target }, owned);
  }
  return owned;
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

interface Put extends Work {
  readonly path: string;
  readonly target: Extract<Target, { kind: 'file' | 'link' }>;
  /** The state that the plan saw there; absent for the store's own files, which no other plan contains. */
  readonly before?: PathState;
}

async function put(work: Put, items: readonly OwnedItem[]): Promise<readonly OwnedItem[]> {
  const { effects, transaction, target } = work;
  const earlier = findItem(items, work.path);
  const found = await effects.disk.inspect(work.path);
  if (isAlready(found, target)) {
    // A user made it (it stays his), or a manifest that was lost listed it; inside the store only vgpu-agent can have
    // made it.
    if (earlier === undefined && !isInStore(work.path)) return items;
  } else if (work.before !== undefined) checkStillSo(work.path, work.before, found);
  const made = await transaction.makeParents(work.path);
  const owned = made.reduce((all, parent) => withDirectory(all, parent, 0o755), items);
  // A small installed file that a person edited: the edited text is kept when the file is written again.
  const edited = earlier?.kind === 'file' && found.kind === 'file' && !isOurs(earlier, found);
  if (edited && !isInStore(work.path) && !isAlready(found, target)) {
    await keepEdited(work, work.path, () => null);
  }
  const { from, backup } = await transaction.place(work.path, target);
  const before: PathState = isAlready(found, target) ? { kind: 'absent' } : from;
  const what = { path: work.path, before, backup };
  const item: OwnedItem =
    target.kind === 'link'
      ? { kind: 'link', target: target.target, ...what }
      : { kind: 'file', sha256: target.sha256, mode: target.mode, ...what };
  return withItem(owned, item, from);
}

/** Throws if the path has changed since the user accepted the plan. */
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

async function addAlternative(
  { effects, transaction }: Work,
  change: Extract<Change, { kind: 'alternative' }>,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const { group, path: choice, priority, link, slaves } = change;
  const present = await readGroup(effects, group);
  const previous = present === null ? null : specOf(present, choice);
  const before = present === null ? change.before : { status: present.status, value: present.value };
  await transaction.record({ type: 'alternative', group, path: choice, previous, before });
  await installAlternative(effects, { group, link, path: choice, priority, slaves });
  return withItem(items, { kind: 'alternative', group, path: choice, priority, before }, { kind: 'absent' });
}

async function dropAlternative(
  { effects, transaction }: Work,
  group: string,
  choice: string,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const owned = findAlternative(items, group, choice);
  const rest = items.filter((one) => one !== owned);
  const present = await readGroup(effects, group);
  const previous = present === null ? null : specOf(present, choice);
  // Its package was purged, or a user removed the choice: nothing is left to remove.
  if (present === null || previous === null) return rest;
  const goBackTo = owned?.before ?? { status: 'auto' as const, value: '' };
  const before = { status: present.status, value: present.value };
  await transaction.record({ type: 'alternative', group, path: choice, previous, before });
  await removeAlternative(effects, group, choice, goBackTo);
  return rest;
}

async function removeDirectory(
  { effects, transaction, emit }: Work,
  directory: string,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  // The store's directories still hold the versions; release.ts removes them after the commit.
  if (isInStore(directory)) return items;
  const present = await effects.disk.inspect(directory);
  if (present.kind === 'directory') {
    if (present.empty) await transaction.place(directory, { kind: 'absent' });
    else
      note(emit, 'info', 'directory-kept', `${directory} stays: it holds files that vgpu-agent did not make`);
  }
  return items.filter((one) => one !== findItem(items, directory));
}
