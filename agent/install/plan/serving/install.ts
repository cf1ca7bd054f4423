/**
 * The changes that make this machine serve GPUs, and those that undo it. Pure.
 *
 * The order: the files that the daemon needs, then the daemon, then the units that start it, then the reload of
 * systemd. No session in use ends without permission: a new program takes over by itself (`hand-over`), and a change
 * that needs a restart waits for one and says so, unless sessions may be ended.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { Change, Plan, Refusal, Warning } from '../../../contracts/plan.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../../../contracts/serving.js';
import { hostConf, hostSocketUnit, hostUnit } from '../../../lib/paths.js';
import { findItem, isOurs } from '../owned.js';
import { maskRefusals } from '../refusals.js';
import { hostProfile, interrupted } from './common.js';
import { fileChange } from './files.js';
import { runChanges } from './run.js';

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
