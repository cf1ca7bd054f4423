/**
 * The write-ahead log: one JSON line per record, on the disk before its step begins. Only the last line can be
 * incomplete after a crash, and its step has not begun.
 *
 * After a crash (`recover` in apply.ts): without a `commit` record everything is undone; with it, only the removal of
 * backups is finished. Undoing suits both install and uninstall: each returns to a state where the consumer starts, and the next
 * command makes a new plan.
 *
 * After an append has failed, it is unknown whether the record is on the disk, so no later change depends on that. The
 * record of a step: everything is undone in either case. A `commit` or `rollback` that reads as written although its fsync
 * failed: nothing more is changed, the failure is reported, and `recover` decides from the file. A record that reads as
 * missing was never written (a failed fsync(2) loses pages, but adds none).
 */

import {
  backup,
  definitions,
  groupBefore,
  hash,
  items,
  nonEmpty,
  path,
  pathState,
} from '../../contracts/manifest.js';
import { VgpuError } from '../../lib/errors.js';
import { jsonIn } from '../../lib/json.js';
import {
  anyOf,
  constant,
  type Described,
  describing,
  firstProblem,
  integer,
  list,
  object,
  oneOf,
  orNull,
  type SchemaCheck,
  schemaCheck,
} from '../../lib/schema.js';
import { syncParent } from './disk.js';
import type { Disk } from './effects.js';
import { sha256 } from './manifest.js';
import { place } from './place.js';

// A record of the transaction log as a JSON Schema. `dist/` has it compiled (scripts/compile-schemas.ts).

/** The state that the step left: by it the undo tells our work from another program's. */
const left = oneOf(
  'kind',
  object({ kind: constant('absent') }),
  object({ kind: constant('link'), target: nonEmpty }),
  object({ kind: constant('file'), sha256: hash }),
  object({ kind: constant('directory') }),
);
const pathRecord = object({ type: constant('path'), path, from: pathState, backup, to: left });
export type PathRecord = Described<typeof pathRecord>;

const alternative = object({
  group: nonEmpty,
  link: path,
  path,
  priority: integer,
  slaves: list(object({ link: path, name: nonEmpty, path })),
});
export type AlternativeSpec = Described<typeof alternative>;

const alternativeRecord = object({
  type: constant('alternative'),
  group: nonEmpty,
  path,
  previous: orNull(alternative),
  before: groupBefore,
});
export type AlternativeRecord = Described<typeof alternativeRecord>;

const begin = object({
  type: constant('begin'),
  schema: constant(1),
  /** Begins the name of every backup of this run. */
  id: describing<string>({ type: 'string', pattern: '^[0-9a-f]{8}$' }),
  intent: anyOf('install', 'uninstall'),
  manifest: orNull(object({ items })),
  retire: list(nonEmpty),
});

const record = oneOf(
  'type',
  begin,
  pathRecord,
  alternativeRecord,
  object({ type: constant('ldconfig') }),
  object({ type: constant('daemon-reload') }),
  object({ type: constant('commit') }),
  /** After a commit: the transaction is being undone (a failed confirmation). */
  object({ type: constant('rollback') }),
);
type TransactionRecord = Described<typeof record>;
export type BeginRecord = Extract<TransactionRecord, { type: 'begin' }>;
export type StepRecord = Exclude<TransactionRecord, { type: 'begin' | 'commit' | 'rollback' }>;
export const recordSchema = { ...record, $defs: definitions };

export interface Transaction {
  readonly begin: BeginRecord;
  readonly steps: readonly StepRecord[];
  readonly state: 'open' | 'committed';
}

/** Writes a record; it is on the disk when this returns. Throws the system's error. */
export async function appendRecord(disk: Disk, record: TransactionRecord): Promise<void> {
  const { transaction } = disk.state;
  await disk.append(transaction, Buffer.from(`${JSON.stringify(record)}\n`));
  if (record.type === 'begin') await syncParent(disk, transaction);
}

/** Null: there is no complete first record, so nothing was changed. Throws `failed` when damaged otherwise. */
export async function readTransaction(disk: Disk): Promise<Transaction | null> {
  const log = disk.state.transaction;
  const content = await disk.read(log);
  if (content === null) return null;
  const lines = content.toString('utf8').split('\n');
  // After the last newline there is either nothing or a record that was cut off.
  lines.pop();
  if (lines.length === 0) return null;
  const check = schemaCheck(recordSchema);
  const [begin, ...rest] = lines.map((line, index) => parseRecord(log, line, index + 1, check));
  if (begin?.type !== 'begin') throw damaged(log, 1, 'it does not begin a transaction');
  let state: Transaction['state'] = 'open';
  const steps: StepRecord[] = [];
  for (const record of rest) {
    if (record.type === 'commit') state = 'committed';
    else if (record.type === 'rollback') state = 'open';
    else if (record.type !== 'begin') steps.push(record);
  }
  return { begin, steps, state };
}

/**
 * Copies the complete records into a new file that replaces the log, before any step that depends on them. The fsync of a
 * record that reads as written may have failed, and a later fsync of the same file would report success without it.
 */
export async function secureLog(disk: Disk): Promise<void> {
  const { transaction } = disk.state;
  const content = await disk.read(transaction);
  if (content === null) return;
  const whole = content.subarray(0, content.lastIndexOf(10) + 1);
  await place(disk, transaction, { kind: 'file', content: whole, sha256: sha256(whole), mode: 0o600 });
}

function parseRecord(
  log: string,
  line: string,
  number: number,
  check: SchemaCheck<TransactionRecord>,
): TransactionRecord {
  const value = jsonIn(line);
  if (value === undefined) throw damaged(log, number, `it is not JSON: ${JSON.stringify(line.slice(0, 80))}`);
  const checked = check(value);
  if (checked.kind === 'wrong') throw damaged(log, number, firstProblem(checked.errors));
  return checked.value;
}

function damaged(log: string, line: number, problem: string): VgpuError {
  return new VgpuError(`line ${line} of ${log} cannot be read: ${problem}`, {
    kind: 'failed',
    operation: 'read the transaction log',
    path: log,
    remedy: `look at ${log}: it lists the changes that an interrupted run had begun; undo them by hand, then remove it`,
  });
}
