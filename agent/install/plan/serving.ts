/**
 * The order: the files that the daemon needs, then the daemon, then the units that start it, then the reload of
 * systemd. Without `--end-sessions` no session ends: the old daemon hands over to a new program (`hand-over`).
 */
import { type Change, type Plan, type Refusal, told, type Warning } from '../../contracts/plan.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../../contracts/serving.js';
import { hostConf, hostDefaults, hostd, hostSocketUnit, hostUnit, systemdUnits } from '../../lib/paths.js';
import { plural } from '../../lib/text.js';
import { interruptedWarning } from './install.js';
import { isOurs, ownedAt, removeDirectories } from './owned.js';
import { maskRefusals } from './refusals.js';
import { unitChange } from './restart.js';
import { backReason, editWarnings, giveBack } from './uninstall.js';

/** The name of a host in the manifest: there is one on a machine. */
const host = { side: 'host', profile: 'host', unit: hostUnit } as const;

export function planServing(facts: ServingFacts, request: ServingRequest): Plan {
  const { problems, listen } = facts;
  const placed = facts.files.flatMap(fileChange);
  const refused = problems.filter(
    ({ weight }) => weight === 'certain' || (weight === 'device' && !request.force),
  );
  const refusals = [
    ...refused.map(({ code, message, remedy, weight }) => ({
      code,
      message,
      remedy: weight === 'device' ? `${remedy}; --force installs in any case` : remedy,
    })),
    ...packageRefusals(facts),
    ...ownRules(facts),
    ...maskRefusals(placed),
  ];
  const told = problems.filter((one) => !refused.includes(one));
  const warnings = [
    ...interruptedWarning(facts),
    ...told.map(({ code, message, remedy }) => ({ code, message, remedy })),
  ];
  if (refusals.length > 0) return { kind: 'refused', refusals, warnings };
  const written = new Set(placed.flatMap((change) => ('path' in change ? [change.path] : [])));
  const stale = facts.socket.needDaemonReload || facts.service.needDaemonReload;
  const reload: readonly Change[] =
    stale || [...written].some((file) => file.startsWith('/etc/systemd/'))
      ? [{ kind: 'daemon-reload', reason: 'systemd reads its units again' }]
      : [];
  const run = runChanges(facts, request, written);
  return {
    kind: 'ready',
    ...host,
    intent: 'install',
    storeId: programId(facts),
    endpoint: listen.join(' '),
    consumers: [{ profile: host.profile, unit: hostUnit, links: [] }],
    changes: [...placed, ...reload, ...run.changes],
    warnings: [...warnings, ...run.warnings],
  };
}

/** The first 16 hex digits of the sha256 of vgpu-hostd, as the id of a guest's store is made. */
function programId({ files }: ServingFacts): string {
  const program = files.find(({ path }) => path === hostd)?.wanted;
  return program?.kind === 'copy' ? program.sha256.slice(0, 16) : '';
}

function fileChange(file: ServingFile): readonly Change[] {
  const { wanted, state, mode, content, reason } = file;
  if (file.editable && !file.asked && state.kind !== 'absent') return [];
  const place = { path: file.path, before: state, reason };
  switch (wanted.kind) {
    case 'text':
      return content === wanted.content && state.kind === 'file' && state.mode === mode
        ? []
        : [{ kind: 'write-file', content: wanted.content, previousContent: content, mode, ...place }];
    case 'copy':
      return state.kind === 'file' && state.sha256 === wanted.sha256 && state.mode === mode
        ? []
        : [{ ...wanted, kind: 'copy-file', mode, ...place }];
    case 'link':
      return state.kind === 'link' && state.target === wanted.target
        ? []
        : [{ kind: 'write-link', target: wanted.target, ...place }];
  }
}

function packageRefusals({ files }: ServingFacts): readonly Refusal[] {
  return files
    .filter((file) => file.ownerPackage !== null && fileChange(file).length > 0)
    .map((file) => ({
      code: 'package-owned',
      message: `${file.path} belongs to the package ${file.ownerPackage}`,
      remedy: `remove that package, or use what it installs: systemctl enable --now ${hostSocketUnit}`,
    }));
}

/** Rules that a person wrote say who may connect: to put "allow any" in their place would let others in. */
function ownRules({ files, manifest }: ServingFacts): readonly Refusal[] {
  const file = files.find((one) => one.path === hostConf);
  if (file === undefined || file.state.kind === 'absent' || fileChange(file).length === 0) return [];
  const item = ownedAt(manifest, hostConf);
  if (item !== undefined && isOurs(item, file.state)) return [];
  return told(
    'own-rules',
    `${hostConf} exists, and vgpu-agent did not write it`,
    `leave --memory and --sessions out and write limits into that file (vgpu-hostd.conf(5))`,
  );
}

function runChanges(
  facts: ServingFacts,
  { endSessions }: Pick<ServingRequest, 'endSessions'>,
  written: ReadonlySet<string>,
): { readonly changes: readonly Change[]; readonly warnings: readonly Warning[] } {
  const moved = written.has(`${systemdUnits}/${hostSocketUnit}`);
  if (facts.service.activeState !== 'active') {
    const listens = facts.socket.activeState === 'active';
    const socket = !listens
      ? [unitChange(hostSocketUnit, 'start', 'guests can connect from now on')]
      : moved
        ? [unitChange(hostSocketUnit, 'restart', 'its addresses have changed')]
        : [];
    return { changes: [...socket, unitChange(hostUnit, 'start', 'it serves them')], warnings: [] };
  }
  const why = [
    ...(moved ? ['the addresses'] : []),
    ...(written.has(`${systemdUnits}/${hostUnit}`) ? ['its unit'] : []),
    ...(written.has(hostDefaults) ? ['the device'] : []),
  ].join(' and ');
  const reason = `${why} changed`;
  // A socket cannot be restarted while its service runs.
  const restart = moved
    ? [
        unitChange(hostUnit, 'stop', reason),
        unitChange(hostSocketUnit, 'restart', reason),
        unitChange(hostUnit, 'start', reason),
      ]
    : [unitChange(hostUnit, 'restart', reason)];
  const busy = sessionsOf(facts);
  if (why !== '' && (busy === 0 || endSessions)) return { changes: restart, warnings: [] };
  const changes =
    written.has(hostd) || facts.outdated
      ? [
          unitChange(
            hostUnit,
            'hand-over',
            'the new program takes new sessions; the old one ends after its last session',
          ),
        ]
      : written.has(hostConf)
        ? [unitChange(hostUnit, 'reload', 'the limits apply to new sessions')]
        : [];
  if (why === '') return { changes, warnings: [] };
  const ends =
    busy === null
      ? 'the sessions of guests, and the daemon does not say how many there are'
      : plural(busy, 'session');
  const commands = restart.map(({ action, unit }) => `systemctl ${action} ${unit}`).join(' && ');
  const warning = {
    code: 'restart-due',
    message: `${reason}; that applies from its next start, which ends ${ends}`,
    remedy: `when the guests do not need it: ${commands}; or now, with --end-sessions`,
  };
  return { changes, warnings: [warning] };
}

export function planServingAway(facts: ServingFacts, request: Pick<ServingRequest, 'endSessions'>): Plan {
  const { files, manifest } = facts;
  const items = [...(manifest?.items ?? [])].reverse();
  const busy = sessionsOf(facts);
  const warnings = interruptedWarning(facts);
  if (items.length > 0 && busy !== 0 && !request.endSessions) {
    return { kind: 'refused', refusals: [inUse(busy)], warnings };
  }
  const placed = items.filter((item) => item.kind === 'file' || item.kind === 'link');
  const inSystemd = placed.filter((item) => item.path.startsWith('/etc/systemd/'));
  const others = placed.filter((item) => !inSystemd.includes(item));
  return {
    kind: 'ready',
    ...host,
    intent: 'uninstall',
    storeId: manifest?.storeId ?? '',
    endpoint: manifest?.endpoint ?? '',
    consumers: [],
    changes: [
      ...[...inSystemd, ...others].map((item) => giveBack(item, backReason(item))),
      ...removeDirectories(items),
      ...(items.length > 0 || isLeftRunning(facts) ? stopChanges(facts) : []),
    ],
    warnings: [...warnings, ...editWarnings(files, items)],
  };
}

function inUse(busy: number | null): Refusal {
  const code = 'in-use';
  if (busy === null) {
    return {
      code,
      message: `${hostUnit} runs and does not say whether it serves guests; their sessions would end`,
      remedy: `systemctl status ${hostUnit} shows its state; vgpu-agent host uninstall --end-sessions removes it in any case`,
    };
  }
  return {
    code,
    message: `${plural(busy, 'session')} of guests ${busy === 1 ? 'is' : 'are'} open and would end`,
    remedy:
      'vgpu-hostd sessions shows them; vgpu-agent host uninstall --end-sessions ends them; or vgpu-agent uninstall in each guest first',
  };
}

/** An uninstall that was cut short at its end: the units run, and their files are gone. */
function isLeftRunning({ files, service, socket }: ServingFacts): boolean {
  const unit = files.find((file) => file.path === `${systemdUnits}/${hostUnit}`);
  return (
    unit?.state.kind === 'absent' && (service.activeState === 'active' || socket.activeState === 'active')
  );
}

/** systemd still has the units loaded: RemoveOnStop= of the socket applies. Then it unloads them. */
function stopChanges({ service, socket }: ServingFacts): readonly Change[] {
  const units = [
    [hostSocketUnit, socket],
    [hostUnit, service],
  ] as const;
  return [
    ...units
      .filter(([, { activeState }]) => activeState !== 'inactive' && activeState !== 'failed')
      .map(([unit]) => unitChange(unit, 'stop', 'this machine stops serving guests')),
    unitChange(hostUnit, 'daemon-reload', 'systemd unloads the units'),
  ];
}

/** Null: the daemon runs and does not report them. There may be some, and none is ended without permission. */
function sessionsOf({ daemon, service }: ServingFacts): number | null {
  if (daemon !== null) return daemon.sessions.length;
  return service.activeState === 'inactive' || service.activeState === 'failed' ? 0 : null;
}
