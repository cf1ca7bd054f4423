/** One run of changes: each step is recorded, then done; all steps can be undone. */

import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { type Emit, note } from '../../contracts/events.js';
import type { Manifest, OwnedItem, PathState } from '../../contracts/manifest.js';
import { VgpuError } from '../../lib/errors.js';
import { syncParent } from './disk.js';
import type { ApplyEffects, Disk } from './effects.js';
import { asideFor, isAlready, place, type Target } from './place.js';
import { appendRecord, type BeginRecord, type PathRecord, type StepRecord } from './records.js';

interface Found {
  readonly from: PathState;
  readonly backup: string | null;
}

export class OpenTransaction {
  readonly #disk: Disk;
  readonly begin: BeginRecord;
  readonly #steps: StepRecord[] = [];

  private constructor(disk: Disk, begin: BeginRecord) {
    this.#disk = disk;
    this.begin = begin;
  }

  static async start(
    disk: Disk,
    intent: BeginRecord['intent'],
    manifest: Manifest | null,
    retire: readonly string[],
  ): Promise<OpenTransaction> {
    const id = randomBytes(4).toString('hex');
    await ensureDirectory(disk, disk.state.directory, 0o755);
    await ensureDirectory(disk, disk.state.backups, 0o700);
    const begin: BeginRecord = { type: 'begin', schema: 1, id, intent, manifest, retire };
    await appendRecord(disk, begin);
    return new OpenTransaction(disk, begin);
  }

  get steps(): readonly StepRecord[] {
    return this.#steps;
  }

  /** Writes a record for a step that is not a path's. The caller then does it. */
  async record(step: StepRecord): Promise<void> {
    await appendRecord(this.#disk, step);
    this.#steps.push(step);
  }

  /** Makes `file` be `target`; what was there is copied into the backup directory first. */
  async place(file: string, target: Target): Promise<Found> {
    const from = await this.#disk.inspect(file);
    if (isAlready(from, target)) return { from, backup: null };
    const backup = from.kind === 'absent' ? null : await this.#backUp(file);
    await this.record({ type: 'path', path: file, from, backup, to: contentOf(target) });
    await place(this.#disk, file, target);
    return { from, backup };
  }

  /** Creates the missing directories above `file`; returns them, the outermost first. */
  async makeParents(file: string): Promise<readonly string[]> {
    const directory = path.dirname(file);
    const present = await this.#disk.inspect(directory);
    // A link stands for the directory it leads to (/lib on a merged /usr).
    if (present.kind === 'directory' || present.kind === 'link') return [];
    if (present.kind !== 'absent') {
      throw new VgpuError(`${directory} is in the way: it is not a directory`, {
        kind: 'failed',
        operation: 'make a directory',
        path: directory,
        remedy: `move ${directory} away, then run the same command again`,
      });
    }
    const above = await this.makeParents(directory);
    await this.place(directory, { kind: 'directory', mode: 0o755 });
    return [...above, directory];
  }

  async #backUp(file: string): Promise<string> {
    const name = `${this.begin.id}-${this.#steps.length}-${path.basename(file)}`;
    const copy = path.join(this.#disk.state.backups, name);
    await this.#disk.copy(file, copy);
    await syncParent(this.#disk, copy);
    return name;
  }
}

async function ensureDirectory(disk: Disk, directory: string, mode: number): Promise<void> {
  if ((await disk.inspect(directory)).kind === 'directory') return;
  await disk.makeDirectory(directory, mode);
  await syncParent(disk, directory);
}

function contentOf(target: Target): PathRecord['to'] {
  const wanted = target.kind === 'copy' ? target.state : target;
  switch (wanted.kind) {
    case 'link':
      return { kind: 'link', target: wanted.target };
    case 'file':
      return { kind: 'file', sha256: wanted.sha256 };
    case 'other':
      throw new VgpuError(`a ${wanted.type} cannot be put back`, {
        kind: 'internal',
        operation: 'restore the former file',
      });
    default:
      return { kind: wanted.kind };
  }
}

export interface Work {
  readonly effects: ApplyEffects;
  readonly transaction: OpenTransaction;
  readonly emit: Emit;
  items: readonly OwnedItem[];
}

export async function keepEdited(
  { effects: { disk }, transaction, emit }: Work,
  file: string,
  remedy: (where: string) => string | null,
): Promise<void> {
  const state = await disk.inspect(file);
  const aside = await asideFor(disk, file, state.kind === 'file' ? state.sha256 : null);
  if (!aside.kept) await transaction.place(aside.path, { kind: 'copy', backup: file, state });
  const text = `${file} was edited since vgpu-agent wrote it; the edited text is kept as ${aside.path}`;
  note(emit, 'warning', 'edited-file-kept', text, remedy(aside.path));
}
