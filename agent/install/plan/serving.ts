/**
 * The changes that make this machine serve GPUs, and those that undo it. Pure.
 *
 * The order: the files that the daemon needs, then the daemon, then the units that start it, then the reload of
 * systemd. No session in use ends without permission: a new program takes over by itself (`hand-over`), and a change
 * that needs a restart waits for one and says so, unless sessions may be ended.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { OwnedItem } from '../../contracts/manifest.js';
import type { Change, Plan, Refusal, Warning } from '../../contracts/plan.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../../contracts/serving.js';
import { hostConf, hostDefaults, hostd, hostSocketUnit, hostUnit } from '../../lib/paths.js';
import { plural } from '../../lib/text.js';
import { findItem, isOurs, staysEdited } from './owned.js';
import { maskRefusals } from './refusals.js';

export function planServing(facts: ServingFacts, request: ServingRequest): Plan {
  const files = facts.files.flatMap((file) => fileChange(file));
  const refusals = [...refusalsOf(facts, request), ...maskRefusals(files)];
  const warnings = [...interrupted(facts), ...told(facts, request)];
  if (refusals.length > 0) return { kind: 'refused', refusals, warnings };
  const links = facts.links.flatMap(({ path: link, target, state }): readonly Change[] =>
    state.kind === 'link' && state.target === target
      ? []
      : [
          {
            kind: 'write-link',
            path: link,
            target,
            before: state,
            ownerPackage: null,
            reason: 'starts it at boot',
          },
        ],
  );
  const made = [...files, ...links];
  const units = made.some((change) => 'path' in change && change.path.startsWith('/etc/systemd/'));
  const stale = facts.socket.needDaemonReload || facts.service.needDaemonReload;
  const reload: readonly Change[] =
    units || stale ? [{ kind: 'daemon-reload', reason: 'systemd reads its units again' }] : [];
  const run = runChanges(facts, request, new Set(files.flatMap((one) => ('path' in one ? [one.path] : []))));
  return {
    kind: 'ready',
    side: 'host',
    intent: 'install',
    profile: hostProfile,
    unit: hostUnit,
    storeId: idOf(facts.files),
    endpoint: facts.listen.join(' '),
    consumers: [{ profile: hostProfile, unit: hostUnit, links: [] }],
    changes: [...made, ...reload, ...run.changes],
    warnings: [...warnings, ...run.warnings],
  };
}

function refusalsOf(facts: ServingFacts, request: ServingRequest): readonly Refusal[] {
  const problems = facts.problems
    .filter(({ weight }) => weight === 'certain' || (weight === 'device' && !request.force))
    .map(({ code, message, remedy, weight }) => ({
      code,
      message,
      remedy: weight === 'device' ? `${remedy}; --force installs in any case` : remedy,
    }));
  const foreign = facts.files.flatMap((file): readonly Refusal[] => {
    if (file.ownerPackage === null || fileChange(file).length === 0) return [];
    return [
      {
        code: 'package-owned',
        message: `${file.path} belongs to the package ${file.ownerPackage}`,
        remedy: `remove that package, or use what it installs: systemctl enable --now ${hostSocketUnit}`,
      },
    ];
  });
  return [...problems, ...foreign, ...ownRules(facts)];
}

/** Rules that a person wrote say who may connect: to put "allow any" in their place would let others in. */
function ownRules({ files, manifest }: ServingFacts): readonly Refusal[] {
  const file = files.find((one) => one.path === hostConf);
  if (file === undefined || file.state.kind === 'absent' || fileChange(file).length === 0) return [];
  const item = findItem(manifest?.items ?? [], hostConf);
  if (item !== undefined && isOurs(item, file.state)) return [];
  return [
    {
      code: 'own-rules',
      message: `${hostConf} exists, and vgpu-agent did not write it`,
      remedy: `leave --memory and --sessions out and write limits into that file (vgpu-hostd.conf(5))`,
    },
  ];
}

function told(facts: ServingFacts, request: ServingRequest): readonly Warning[] {
  return facts.problems
    .filter(({ weight }) => weight === 'warning' || (weight === 'device' && request.force))
    .map(({ code, message, remedy }) => ({ code, message, remedy }));
}

/** Covers every file that is copied: another version of any of them gives another ID. */
function idOf(files: readonly ServingFile[]): string {
  const hash = createHash('sha256');
  for (const { path: file, wanted } of files) {
    hash.update(`${path.basename(file)}\0${wanted.kind === 'copy' ? wanted.sha256 : wanted.content}\n`);
  }
  return hash.digest('hex').slice(0, 16);
}

// The changes that remove the host from this machine and restore the former state. Pure.

export function planServingAway(facts: ServingFacts, request: Pick<ServingRequest, 'endSessions'>): Plan {
  const items = [...(facts.manifest?.items ?? [])].reverse();
  const busy = sessionsOf(facts);
  if (items.length > 0 && busy !== 0 && !request.endSessions) {
    return {
      kind: 'refused',
      refusals: [
        busy === null
          ? {
              code: 'in-use',
              message: `${hostUnit} runs and does not say whether it serves guests; their sessions would end`,
              remedy: `systemctl status ${hostUnit} shows its state; vgpu-agent host uninstall --end-sessions removes it in any case`,
            }
          : {
              code: 'in-use',
              message: `${plural(busy, 'session')} of guests ${busy === 1 ? 'is' : 'are'} open and would end`,
              remedy:
                'vgpu-hostd sessions shows them; vgpu-agent host uninstall --end-sessions ends them; or vgpu-agent uninstall in each guest first',
            },
      ],
      warnings: interrupted(facts),
    };
  }
  const placed = items.filter((item) => item.kind === 'file' || item.kind === 'link');
  const inSystemd = placed.filter((item) => item.path.startsWith('/etc/systemd/'));
  const others = placed.filter((item) => !inSystemd.includes(item));
  const back = (item: (typeof placed)[number]): Change => ({
    kind: 'remove-owned',
    path: item.path,
    restores: item.before,
    reason: item.before.kind === 'absent' ? 'nothing was here before' : 'what was here before comes back',
  });
  return {
    kind: 'ready',
    side: 'host',
    intent: 'uninstall',
    profile: hostProfile,
    unit: hostUnit,
    storeId: facts.manifest?.storeId ?? '',
    endpoint: facts.manifest?.endpoint ?? '',
    consumers: [],
    changes: [
      ...inSystemd.map(back),
      ...others.map(back),
      ...directories(items),
      ...(items.length > 0 || isLeftRunning(facts) ? stopChanges(facts) : []),
    ],
    warnings: [...interrupted(facts), ...edited(facts, items)],
  };
}

/** An uninstall that was cut short at its very end: the units run, and their files are gone. */
function isLeftRunning({ files, service, socket }: ServingFacts): boolean {
  const unit = files.find((file) => file.path === `/etc/systemd/system/${hostUnit}`);
  return (
    unit?.state.kind === 'absent' && (service.activeState === 'active' || socket.activeState === 'active')
  );
}

/** systemd still knows the units as they were: RemoveOnStop= of the socket counts. Then it forgets them. */
function stopChanges(facts: ServingFacts): readonly Change[] {
  const stops = [hostSocketUnit, hostUnit].flatMap((unit): readonly Change[] => {
    const { activeState } = unit === hostUnit ? facts.service : facts.socket;
    if (activeState === 'inactive' || activeState === 'failed') return [];
    return [{ kind: 'service', unit, action: 'stop', reason: 'this machine stops serving guests' }];
  });
  const reason = 'systemd unloads the units';
  return [...stops, { kind: 'service', unit: hostUnit, action: 'daemon-reload', reason }];
}

function directories(items: readonly OwnedItem[]): readonly Change[] {
  return items.flatMap((item): readonly Change[] =>
    item.kind === 'directory'
      ? [
          {
            kind: 'remove-directory',
            path: item.path,
            reason: 'vgpu-agent made it; it is removed if it is empty',
          },
        ]
      : [],
  );
}

function edited({ files }: ServingFacts, items: readonly OwnedItem[]): readonly Warning[] {
  return items.flatMap((item): readonly Warning[] => {
    if (item.kind !== 'file') return [];
    const state = files.find((file) => file.path === item.path)?.state;
    if (state?.kind !== 'file' || isOurs(item, state)) return [];
    const kept = staysEdited(item, state) ? 'it stays' : `the edited text is kept as ${item.path}.vgpu-save`;
    const message = `${item.path} was edited since vgpu-agent wrote it; ${kept}`;
    return [{ code: 'edited-file', message, remedy: null }];
  });
}

// The commands that start, restart or notify the daemon once the files of the host are there. Pure.

interface Running {
  readonly changes: readonly Change[];
  readonly warnings: readonly Warning[];
}

function runChanges(
  facts: ServingFacts,
  { endSessions }: Pick<ServingRequest, 'endSessions'>,
  written: ReadonlySet<string>,
): Running {
  const unit = (name: string): string => `/etc/systemd/system/${name}`;
  const act = (of: string, action: 'start' | 'restart' | 'stop', reason: string): Change => ({
    kind: 'service',
    unit: of,
    action,
    reason,
  });
  const socketActive = facts.socket.activeState === 'active';
  if (facts.service.activeState !== 'active') {
    const moved = socketActive && written.has(unit(hostSocketUnit));
    const socket = moved
      ? [act(hostSocketUnit, 'restart', 'its addresses have changed')]
      : socketActive
        ? []
        : [act(hostSocketUnit, 'start', 'guests can connect from now on')];
    return { changes: [...socket, act(hostUnit, 'start', 'it serves them')], warnings: [] };
  }
  const why = [
    ...(written.has(unit(hostSocketUnit)) ? ['the addresses'] : []),
    ...(written.has(unit(hostUnit)) ? ['its unit'] : []),
    ...(written.has(hostDefaults) ? ['the device'] : []),
  ];
  const replaced = written.has(hostd) || facts.outdated;
  const busy = sessionsOf(facts);
  if (why.length > 0 && (busy === 0 || endSessions)) {
    const reason = `${why.join(' and ')} changed`;
    // A socket cannot be restarted while its service runs.
    const changes = written.has(unit(hostSocketUnit))
      ? [
          act(hostUnit, 'stop', reason),
          act(hostSocketUnit, 'restart', reason),
          act(hostUnit, 'start', reason),
        ]
      : [act(hostUnit, 'restart', reason)];
    return { changes, warnings: [] };
  }
  const restart = written.has(unit(hostSocketUnit))
    ? `systemctl stop ${hostUnit} && systemctl restart ${hostSocketUnit} && systemctl start ${hostUnit}`
    : `systemctl restart ${hostUnit}`;
  const warnings: readonly Warning[] =
    why.length === 0
      ? []
      : [
          {
            code: 'restart-due',
            message: `${why.join(' and ')} changed; that applies from its next start, which ends ${busy === null ? 'the sessions of guests, and the daemon does not say how many there are' : plural(busy, 'session')}`,
            remedy: `when the guests do not need it: ${restart}; or now, with --end-sessions`,
          },
        ];
  const word = (action: 'hand-over' | 'reload', reason: string): Change => ({
    kind: 'service',
    unit: hostUnit,
    action,
    reason,
  });
  const changes = replaced
    ? [word('hand-over', 'the new program takes new sessions; the old one ends after its last session')]
    : written.has(hostConf)
      ? [word('reload', 'the limits apply to new sessions')]
      : [];
  return { changes, warnings };
}

// One file of the host: is it written, and why? Pure.

function fileChange(file: ServingFile): readonly Change[] {
  const { wanted, state, mode, ownerPackage } = file;
  if (file.editable && !file.asked && state.kind !== 'absent') return [];
  const place = { path: file.path, mode, before: state, ownerPackage, reason: reasonOf(file.path) };
  if (wanted.kind === 'text') {
    const { content } = wanted;
    if (file.content === content && state.kind === 'file' && state.mode === mode) return [];
    return [{ kind: 'write-file', content, previousContent: file.content, ...place }];
  }
  const { source, sha256, size } = wanted;
  if (state.kind === 'file' && state.sha256 === sha256 && state.mode === mode) return [];
  return [{ kind: 'copy-file', source, sha256, size, ...place }];
}

function reasonOf(file: string): string {
  switch (file) {
    case hostd:
      return 'the daemon, and the command that asks it';
    case hostDefaults:
      return 'the device that it serves; you may edit it';
    case hostConf:
      return 'the limits of each guest; you may edit it';
    default:
      if (file.endsWith('.socket')) return 'the addresses at which it serves';
      if (file.endsWith('.service')) return 'how systemd starts it';
      if (file.endsWith('.json')) return 'a GPU that --profile can simulate';
      return 'man page';
  }
}

// The common parts of a host's plans.

/** The name of a host in the manifest: there is one on a machine. */
const hostProfile = 'host';

function interrupted(facts: ServingFacts): readonly Warning[] {
  if (!facts.interrupted) return [];
  const message = 'an earlier run was interrupted; vgpu-agent cleans up after it first';
  return [{ code: 'interrupted-run', message, remedy: null }];
}

/** Null: the daemon runs and does not say. Then there may be some, and none of them is ended without being asked to. */
function sessionsOf({ daemon, service }: ServingFacts): number | null {
  if (daemon !== null) return daemon.sessions.length;
  return service.activeState === 'inactive' || service.activeState === 'failed' ? 0 : null;
}
