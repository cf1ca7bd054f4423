/**
 * What has to be done so that this machine serves GPUs, and so that it is as before. Pure.
 *
 * The order: what the daemon needs, then the daemon, then the units that start it, then systemd is told. A session in
 * use is not ended without being told: a new program takes over by itself (`hand-over`), and what needs a restart
 * waits for one and says so, unless sessions may be ended.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { OwnedItem } from '../contracts/manifest.js';
import type { Change, Plan, Refusal, Warning } from '../contracts/plan.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../contracts/serving.js';
import { hostConf, hostDefaults, hostd, hostSocketUnit, hostUnit } from '../paths.js';
import { plural } from '../text.js';
import { findItem, isOurs } from './owned.js';

/** What stands in the manifest for a host: there is one on a machine. */
const hostProfile = 'host';

export function planServing(facts: ServingFacts, request: ServingRequest): Plan {
  const refusals = refusalsOf(facts, request);
  const warnings = [...interrupted(facts), ...told(facts, request)];
  if (refusals.length > 0) return { kind: 'refused', refusals, warnings };
  const files = facts.files.flatMap((file) => fileChange(file));
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

export function planServingAway(facts: ServingFacts, request: Pick<ServingRequest, 'endSessions'>): Plan {
  const items = [...(facts.manifest?.items ?? [])].reverse();
  const busy = sessionsOf(facts);
  if (items.length > 0 && busy > 0 && !request.endSessions) {
    return {
      kind: 'refused',
      refusals: [
        {
          code: 'in-use',
          message: `${plural(busy, 'session')} of guests ${busy === 1 ? 'is' : 'are'} served, and would end`,
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
    return [{ kind: 'service', unit, action: 'stop', reason: 'this machine serves no more' }];
  });
  const reason = 'systemd forgets the units';
  return [...stops, { kind: 'service', unit: hostUnit, action: 'daemon-reload', reason }];
}

/** What differs from what is installed: a repair would change it. */
export function servingDrift(facts: ServingFacts): readonly string[] {
  const items = facts.manifest?.items ?? [];
  return items.flatMap((item) => {
    if (item.kind !== 'file' && item.kind !== 'link') return [];
    const file = facts.files.find((one) => one.path === item.path);
    const state = file?.state ?? facts.links.find((one) => one.path === item.path)?.state;
    if (state === undefined || isOurs(item, state)) return [];
    // A person may edit it; missing it is drift all the same.
    return file?.editable === true && state.kind === 'file' ? [] : [item.path];
  });
}

function directories(items: readonly OwnedItem[]): readonly Change[] {
  return items.flatMap((item): readonly Change[] =>
    item.kind === 'directory'
      ? [{ kind: 'remove-directory', path: item.path, reason: 'we made it; it goes if it is empty' }]
      : [],
  );
}

function refusalsOf(facts: ServingFacts, request: ServingRequest): readonly Refusal[] {
  const problems = facts.problems
    .filter(({ weight }) => weight === 'certain' || (weight === 'device' && !request.force))
    .map(({ code, message, remedy, weight }) => ({
      code,
      message,
      remedy: weight === 'device' ? `${remedy}; --force installs all the same` : remedy,
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
      message: `${hostConf} is there, and somebody's own`,
      remedy: `leave --memory and --sessions out and write limits into that file (vgpu-hostd.conf(5))`,
    },
  ];
}

function interrupted(facts: ServingFacts): readonly Warning[] {
  if (!facts.interrupted) return [];
  const message = 'a former run was cut short; what it left is cleared up before anything else';
  return [{ code: 'interrupted-run', message, remedy: null }];
}

function told(facts: ServingFacts, request: ServingRequest): readonly Warning[] {
  return facts.problems
    .filter(({ weight }) => weight === 'warning' || (weight === 'device' && request.force))
    .map(({ code, message, remedy }) => ({ code, message, remedy }));
}

function edited({ files }: ServingFacts, items: readonly OwnedItem[]): readonly Warning[] {
  return items.flatMap((item): readonly Warning[] => {
    if (item.kind !== 'file') return [];
    const state = files.find((file) => file.path === item.path)?.state;
    if (state?.kind !== 'file' || isOurs(item, state)) return [];
    const message = `${item.path} was edited since vgpu-agent wrote it; the edited text is kept as ${item.path}.vgpu-save`;
    return [{ code: 'edited-file', message, remedy: null }];
  });
}

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
      return 'which device it serves; yours to edit';
    case hostConf:
      return 'how much each guest may have; yours to edit';
    default:
      if (file.endsWith('.socket')) return 'the addresses at which it serves';
      if (file.endsWith('.service')) return 'how systemd starts it';
      if (file.endsWith('.json')) return 'a GPU that --profile can simulate';
      return 'man finds it';
  }
}

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
      ? [act(hostSocketUnit, 'restart', 'it has other addresses now')]
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
            message: `${why.join(' and ')} changed; that counts from its next start, which would end ${plural(busy, 'session')}`,
            remedy: `when the guests can spare it: ${restart}; or now, with --end-sessions`,
          },
        ];
  const word = (action: 'hand-over' | 'reload', reason: string): Change => ({
    kind: 'service',
    unit: hostUnit,
    action,
    reason,
  });
  const changes = replaced
    ? [word('hand-over', 'the new program takes new sessions; the old one ends with its last')]
    : written.has(hostConf)
      ? [word('reload', 'the limits count for new sessions')]
      : [];
  return { changes, warnings };
}

function sessionsOf({ daemon }: ServingFacts): number {
  return daemon?.sessions.length ?? 0;
}

/** Of all that is copied: another version of anything is another id. */
function idOf(files: readonly ServingFile[]): string {
  const hash = createHash('sha256');
  for (const { path: file, wanted } of files) {
    hash.update(`${path.basename(file)}\0${wanted.kind === 'copy' ? wanted.sha256 : wanted.content}\n`);
  }
  return hash.digest('hex').slice(0, 16);
}
