/**
 * The order: the files that the daemon needs, then the daemon, then the units that start it, then the reload of
 * systemd. Without `--end-sessions` no session ends: the old daemon hands over to a new program (`hand-over`).
 */
import { sameContent } from '../../contracts/manifest.js';
import { type Change, type Plan, type Refusal, told, type Warning } from '../../contracts/plan.js';
import type {
  ServedFacts,
  ServingFacts,
  ServingFile,
  ServingRequest,
  ServingUnit,
} from '../../contracts/serving.js';
import { hostConf, hostDefaults, hostd, hostSocketUnit, hostUnit, systemdUnits } from '../../lib/paths.js';
import { plural } from '../../lib/text.js';
import { interruptedWarning } from './install.js';
import { writeChange } from './our-files.js';
import { ownedAt, removeDirectories } from './owned.js';
import { maskRefusals } from './refusals.js';
import { unitChange } from './restart.js';
import { backReason, editWarnings, giveBack } from './uninstall.js';

/** The name of a host in the manifest: there is one on a machine. */
const host = { side: 'host', profile: 'host', unit: hostUnit } as const;

export function planServing(facts: ServingFacts, request: ServingRequest): Plan {
  const placed = facts.files.flatMap(fileChange);
  const refusals = [
    ...facts.refusals,
    ...packageRefusals(facts),
    ...ownRules(facts),
    ...maskRefusals(placed),
  ];
  const warnings = [...interruptedWarning(facts), ...facts.warnings];
  if (refusals.length > 0) return { kind: 'refused', refusals, warnings };
  const written = new Set(placed.flatMap((change) => ('path' in change ? [change.path] : [])));
  const stale = facts.socket.needDaemonReload || facts.service.needDaemonReload;
  const reload: readonly Change[] =
    stale || [...written].some((file) => file.startsWith('/etc/systemd/'))
      ? [{ kind: 'daemon-reload', reason: 'systemd reads its units again' }]
      : [];
  const run = runChanges(facts, request.endSessions, written);
  return {
    kind: 'ready',
    ...host,
    intent: 'install',
    storeId: programId(facts),
    endpoint: facts.listen.join(' '),
    consumers: [{ profile: host.profile, unit: hostUnit, links: [] }],
    changes: [...placed, ...reload, ...run.changes],
    warnings: [...warnings, ...run.warnings],
  };
}

/** A host has no store. Its manifest has the beginning of the hash of vgpu-hostd for the id of one. */
function programId({ files }: ServingFacts): string {
  const program = files.find(({ path }) => path === hostd)?.wanted;
  return program?.kind === 'copy' ? program.sha256.slice(0, 16) : '';
}

function fileChange(file: ServingFile): readonly Change[] {
  const { wanted, state, reason, path } = file;
  if (file.keep && state.kind !== 'absent') return [];
  if (wanted.kind === 'link') {
    const same = state.kind === 'link' && state.target === wanted.target;
    return same ? [] : [{ kind: 'write-link', target: wanted.target, path, before: state, reason }];
  }
  if (wanted.kind === 'copy') {
    const same = state.kind === 'file' && state.sha256 === wanted.sha256 && state.mode === wanted.mode;
    return same ? [] : [{ ...wanted, kind: 'copy-file', path, before: state, reason }];
  }
  const same = state.kind === 'file' && file.content === wanted.content && state.mode === 0o644;
  return same ? [] : [writeChange(file, wanted.content, reason)];
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
  if (item !== undefined && sameContent(item, file.state)) return [];
  return told(
    'own-rules',
    `${hostConf} exists, and vgpu-agent did not write it`,
    `leave --memory and --sessions out and write limits into that file (vgpu-hostd.conf(5))`,
  );
}

function runChanges(
  facts: ServingFacts,
  endSessions: boolean,
  written: ReadonlySet<string>,
): { readonly changes: readonly Change[]; readonly warnings: readonly Warning[] } {
  const moved = written.has(`${systemdUnits}/${hostSocketUnit}`);
  if (facts.service.activeState !== 'active') {
    const socket =
      facts.socket.activeState !== 'active'
        ? [unitChange(hostSocketUnit, 'start', 'guests can connect from now on')]
        : moved
          ? [unitChange(hostSocketUnit, 'restart', 'its addresses have changed')]
          : [];
    return {
      changes: [...socket, unitChange(hostUnit, 'start', 'it serves the guests that connect')],
      warnings: [],
    };
  }
  const changed = [
    ...(moved ? ['the addresses'] : []),
    ...(written.has(`${systemdUnits}/${hostUnit}`) ? ['its unit'] : []),
    ...(written.has(hostDefaults) ? ['the device'] : []),
  ];
  const reason = `${changed.join(' and ')} changed`;
  // A socket cannot be restarted while its service runs.
  const restart = moved
    ? [
        unitChange(hostUnit, 'stop', reason),
        unitChange(hostSocketUnit, 'restart', reason),
        unitChange(hostUnit, 'start', reason),
      ]
    : [unitChange(hostUnit, 'restart', reason)];
  const busy = sessionsOf(facts);
  if (changed.length > 0 && (busy === 0 || endSessions)) return { changes: restart, warnings: [] };
  const handOver = 'the new program takes new sessions; the old one ends after its last session';
  const changes =
    written.has(hostd) || facts.outdated
      ? [unitChange(hostUnit, 'hand-over', handOver)]
      : written.has(hostConf)
        ? [unitChange(hostUnit, 'reload', 'the limits apply to new sessions')]
        : [];
  if (changed.length === 0) return { changes, warnings: [] };
  const ends =
    busy === null
      ? 'all sessions of guests (vgpu-hostd status does not report their number)'
      : plural(busy, 'session');
  const commands = restart.map(({ action, unit }) => `systemctl ${action} ${unit}`).join(' && ');
  const message = `${reason}; that applies after a restart of ${hostUnit}, which ends ${ends}`;
  const remedy = `when the guests do not need it: ${commands}; or now, with --end-sessions`;
  return { changes, warnings: [{ code: 'restart-due', message, remedy }] };
}

export function planServingAway(facts: ServedFacts, request: Pick<ServingRequest, 'endSessions'>): Plan {
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
      ...stopChanges(facts, items.length > 0),
    ],
    warnings: [...warnings, ...editWarnings(files, items)],
  };
}

function inUse(busy: number | null): Refusal {
  const message =
    busy === null
      ? `${hostUnit} runs and does not say whether it serves guests; their sessions would end`
      : `${plural(busy, 'session')} of guests ${busy === 1 ? 'is' : 'are'} open and would end`;
  const remedy =
    busy === null
      ? `systemctl status ${hostUnit} shows its state; vgpu-agent host uninstall --end-sessions removes it in any case`
      : 'vgpu-hostd sessions shows them; vgpu-agent host uninstall --end-sessions ends them; or vgpu-agent uninstall in each guest first';
  return { code: 'in-use', message, remedy };
}

/** Also of an uninstall that was cut short at its end: systemd still has the units, and their files are gone. */
function stopChanges({ files, service, socket }: ServedFacts, installed: boolean): readonly Change[] {
  const states = new Map(files.map(({ path, state }) => [path, state.kind]));
  const running = Object.entries({ [hostSocketUnit]: socket, [hostUnit]: service }).filter(
    // Stopping resets a failed unit, which systemd would keep.
    ([, unit]) => unit.activeState !== 'inactive' && (installed || states.get(unit.fragment) === 'absent'),
  );
  if (!installed && running.length === 0) return [];
  // RemoveOnStop= of the socket applies, because systemd still has the units loaded. The reload unloads them.
  return [
    ...running.map(([name]) => unitChange(name, 'stop', 'this machine stops serving guests')),
    unitChange(hostUnit, 'daemon-reload', 'systemd unloads the units'),
  ];
}

/** Null: the daemon runs and does not report them. There may be some, and none is ended without permission. */
function sessionsOf({ daemon, service }: ServedFacts): number | null {
  if (daemon !== null) return daemon.sessions.length;
  return isDown(service) ? 0 : null;
}

function isDown({ activeState }: ServingUnit): boolean {
  return activeState === 'inactive' || activeState === 'failed';
}
