import type { AlternativeGroup } from '../../contracts/facts.js';
import { parseAlternative } from '../../guest/libraries/alternatives.js';
import { VgpuError } from '../../lib/errors.js';
import { own } from '../../lib/json.js';
import { ldconfig } from '../../lib/paths.js';
import { syncParent } from './disk.js';
import { type ApplyEffects, checkpoint } from './effects.js';
import type { AlternativeRecord, AlternativeSpec } from './records.js';

const ldconfigTimeoutMs = 120_000;
const cache = '/etc/ld.so.cache';
/** The name under which ldconfig writes the new cache; it leaves it there when the disk is full. */
const unfinishedCache = '/etc/ld.so.cache~';

/** Without `links`: -X, so that ldconfig changes nothing that the plan does not list. */
export async function runLdconfig(
  effects: Pick<ApplyEffects, 'runner' | 'disk'>,
  links: boolean,
): Promise<void> {
  const args = links ? [] : ['-X'];
  const result = await effects.runner.run(ldconfig, args, { timeoutMs: ldconfigTimeoutMs });
  if (result.code !== 0) {
    await clearUnfinished(effects);
    const why = result.timedOut
      ? `no end after ${ldconfigTimeoutMs / 1000} s`
      : result.stderr.toString().trim();
    throw new VgpuError(`ldconfig failed: ${why}`, {
      kind: 'failed',
      operation: 'rebuild the loader cache',
      path: cache,
      remedy: 'run ldconfig by hand to see why, then run the same command again',
    });
  }
  // ldconfig syncs the new file, not its name.
  await syncParent(effects.disk, cache);
  checkpoint('ldconfig');
}

export async function runReload(effects: Pick<ApplyEffects, 'manager'>): Promise<void> {
  await effects.manager.reload();
  checkpoint('daemon-reload');
}

async function clearUnfinished({ disk }: Pick<ApplyEffects, 'disk'>): Promise<void> {
  try {
    if ((await disk.inspect(unfinishedCache)).kind === 'file') await disk.unlink(unfinishedCache);
  } catch {
    // Report why ldconfig failed; if the file cannot be removed either, that has the same cause.
  }
}

// Debian's alternatives: read from dpkg's record, changed by update-alternatives(1) only.

type Tools = Pick<ApplyEffects, 'disk' | 'runner'>;

export async function readGroup(tools: Pick<Tools, 'disk'>, name: string): Promise<AlternativeGroup | null> {
  const record = await tools.disk.read(`/var/lib/dpkg/alternatives/${name}`);
  if (record === null) return null;
  const link = await tools.disk.inspect(`/etc/alternatives/${name}`);
  return parseAlternative(name, record.toString('utf8'), link.kind === 'link' ? link.target : 'none');
}

/** The choice `path` of the group, as `--install` would take it again. */
export function specOf(group: AlternativeGroup, path: string): AlternativeSpec | null {
  const choice = group.choices.find((other) => other.path === path);
  if (choice === undefined) return null;
  const slaves = group.slaves.flatMap(({ name, link }) => {
    const file = own(choice.slaves, name);
    return file === undefined ? [] : [{ name, link, path: file }];
  });
  return { group: group.name, link: group.link, path, priority: choice.priority, slaves };
}

/** Adds the choice and makes it the one in use, in automatic and in manual mode. */
export async function installAlternative(tools: Tools, spec: AlternativeSpec): Promise<void> {
  await update(tools, installArguments(spec));
  const group = await readGroup(tools, spec.group);
  if (group?.value !== spec.path) await update(tools, ['--set', spec.group, spec.path]);
}

/** Removes the choice; a group that was in manual mode before returns to its former choice. */
export async function removeAlternative(
  tools: Tools,
  group: string,
  path: string,
  before: { readonly status: 'auto' | 'manual'; readonly value: string },
): Promise<void> {
  const present = await readGroup(tools, group);
  if (present === null || !present.choices.some((choice) => choice.path === path)) return;
  // Someone who has chosen another since then keeps it.
  if (present.value === path && before.status === 'manual') {
    if (before.value !== path && present.choices.some((choice) => choice.path === before.value)) {
      await update(tools, ['--set', group, before.value]);
    }
  }
  await update(tools, ['--remove', group, path]);
}

export async function undoAlternative(tools: Tools, record: AlternativeRecord): Promise<void> {
  await undoChoice(tools, record);
  await clearTemporaries(tools, record.group);
}

/** update-alternatives makes its links under such names first, and leaves them there when it fails or is killed. */
async function clearTemporaries({ disk }: Tools, name: string): Promise<void> {
  const group = await readGroup({ disk }, name);
  if (group === null) return;
  const names = [name, ...group.slaves.map((slave) => slave.name)];
  const links = [group.link, ...group.slaves.map((slave) => slave.link)];
  for (const file of [...names.map((one) => `/etc/alternatives/${one}`), ...links]) {
    const temporary = `${file}.dpkg-tmp`;
    if ((await disk.inspect(temporary)).kind === 'link') await disk.unlink(temporary);
  }
}

async function undoChoice(tools: Tools, record: AlternativeRecord): Promise<void> {
  const { group, path, previous, before } = record;
  if (previous === null) {
    await removeAlternative(tools, group, path, before);
    return;
  }
  await update(tools, installArguments(previous));
  const present = await readGroup(tools, group);
  if (before.status === 'manual') {
    if (present?.value !== before.value || present.status !== 'manual') {
      await update(tools, ['--set', group, before.value]);
    }
  } else if (present?.status !== 'auto') {
    await update(tools, ['--auto', group]);
  }
}

function installArguments(spec: AlternativeSpec): string[] {
  return [
    '--install',
    spec.link,
    spec.group,
    spec.path,
    String(spec.priority),
    ...spec.slaves.flatMap((slave) => ['--slave', slave.link, slave.name, slave.path]),
  ];
}

async function update(tools: Tools, args: readonly string[]): Promise<void> {
  const result = await tools.runner.run('update-alternatives', args);
  if (result.code !== 0) {
    const said = result.stderr.toString().trim();
    throw new VgpuError(
      `update-alternatives ${args[0] ?? ''} ${args[1] ?? ''} failed (${exitText(result)}): ${said}`,
      {
        kind: 'failed',
        operation: 'change the alternatives',
        remedy: `run by hand to see why: update-alternatives ${args.join(' ')}`,
      },
    );
  }
  checkpoint(`update-alternatives ${args[0] ?? ''}`);
}

function exitText(result: { readonly code: number | null; readonly signal: string | null }): string {
  return result.code === null ? `signal ${result.signal ?? 'unknown'}` : `exit ${result.code}`;
}
