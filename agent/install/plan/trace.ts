import { containerOf } from '../../containers/container-unit.js';
import type { MachineFacts } from '../../contracts/facts.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { storeVersions, traceDirectory, traceDropInPath, traceFile, tracerName } from '../../lib/paths.js';
import {
  environmentLine,
  escapeSpecifiers,
  tracer,
  tracerVariables,
} from '../../systemd/unit-environment.js';
import { ownedAt } from './owned.js';

/** A start of a service with 400 symbols a process takes some 100 kB. */
export const traceLimitBytes = 16 * 1024 * 1024;

export interface TracePlan {
  readonly unit: string;
  readonly dropIn: { readonly path: string; readonly content: string };
  /** The user who may write the events; null: every user, when the user is not known in advance or may change. */
  readonly writer: { readonly uid: number; readonly gid: number } | null;
}

/** Text: why the unit cannot be traced, a clause without a full stop. */
export function planTrace(facts: MachineFacts): TracePlan | string {
  const { unit, manifest } = facts;
  if (unit.kind !== 'loaded') return `${unit.name} is ${unit.kind}`;
  if (manifest === null) return 'nothing is installed: sudo vgpu-agent install';
  if (containerOf(unit) !== null)
    return `${unit.name} runs a container, which does not get the variables of the unit`;
  const { architecture } = facts.distribution;
  if (architecture !== 'x86_64') return `the tracer is made for x86_64, and this machine is ${architecture}`;
  if (ownedAt(manifest, `${storeVersions}/${manifest.storeId}/${tracerName}`) === undefined)
    return `the version that is installed has no ${tracerName}: sudo vgpu-agent install brings it`;
  if (unit.activeState === 'inactive') return `${unit.name} does not run: sudo systemctl start ${unit.name}`;
  // A reload that is not the trace's own must not bring in changes that were never tried.
  if (unit.needDaemonReload)
    return `systemd has not read the files of ${unit.name}: sudo systemctl daemon-reload`;
  const { rootDirectory } = unit.sandbox;
  if (rootDirectory !== '' && rootDirectory !== '/')
    return `${unit.name} has its own root directory (RootDirectory=${rootDirectory}), without the tracer`;
  return { unit: unit.name, dropIn: dropInOf(unit), writer: writerOf(facts, unit) };
}

/** Environment= replaces a variable whole: what the unit has in force follows the tracer. */
function dropInOf(unit: LoadedUnit): TracePlan['dropIn'] {
  const preload = [tracer, ...[unit.environment['LD_PRELOAD'] ?? ''].filter((value) => value !== '')].join(
    ':',
  );
  const lines = [
    '# Written by vgpu-agent doctor --trace, for one start. If that was killed, the next vgpu-agent removes it.',
    '[Service]',
    environmentLine('LD_PRELOAD', escapeSpecifiers(preload)),
    environmentLine(tracerVariables.file, traceFile),
    environmentLine(tracerVariables.limit, String(traceLimitBytes)),
    // `-`: the service starts without the directory, too.
    `ReadWritePaths=-${traceDirectory}`,
  ];
  return { path: traceDropInPath(unit.name), content: `${lines.join('\n')}\n` };
}

/** Root may become another user by itself, and a dynamic user has no number before the start. */
function writerOf({ serviceUser }: MachineFacts, unit: LoadedUnit): TracePlan['writer'] {
  if (unit.dynamicUser || serviceUser === null || serviceUser.uid === 0) return null;
  return { uid: serviceUser.uid, gid: serviceUser.gid };
}
