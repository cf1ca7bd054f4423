/** vgpu-agent's service on this machine: its files as they are and as the package has them. */

import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Distribution, ServedConsumer, ServiceFacts, ServiceFile } from '../contracts/facts.js';
import { packagedText, readBuildInfo } from '../lib/build-info.js';
import {
  agentConf,
  agentUnit,
  agentUnitFile,
  agentUnitLink,
  busPolicyFile,
  catalogFile,
  cockpitDirectory,
  cockpitFiles,
  cockpitPage,
  completions,
  manDirectory,
  manPages,
  packageRoot,
  polkitFile,
} from '../lib/paths.js';
import { changeableByOthers } from '../lib/trust/files.js';
import type { Profile } from '../profile/types.js';
import type { Manager } from '../systemd/types.js';
import { type ContentCache, ownedFile, pathState } from './files/content.js';
import type { Root } from './files/root.js';
import { publicDirectories } from './libraries/candidates.js';
import { defaultShimDirectory, shimFiles } from './shim/store.js';

interface InstalledConsumer {
  readonly unit: string;
  readonly profile: Profile | null;
}

export async function readService(
  root: Root,
  contents: ContentCache,
  manager: Pick<Manager, 'unit'>,
  installed: readonly InstalledConsumer[],
  distribution: Distribution,
  confProblem: () => string | null,
): Promise<ServiceFacts> {
  const wanted: readonly Wanted[] = [
    [agentConf, '', true],
    ...(readBuildInfo()?.packaged === 'deb' ? [] : commonFiles(root)),
    [agentUnitFile, template('vgpu-agent.service'), false],
  ];
  const [files, link, unit] = await Promise.all([
    Promise.all(
      wanted.map(async ([file, packaged, editable]): Promise<ServiceFile> => {
        return { present: await ownedFile(root, file, contents), packaged, editable };
      }),
    ),
    pathState(root, agentUnitLink, contents),
    manager.unit(agentUnit),
  ]);
  return {
    unit: agentUnit,
    files,
    link: { path: agentUnitLink, target: agentUnitFile, state: link },
    activeState: unit.kind === 'loaded' ? unit.activeState : 'inactive',
    program: {
      node: process.execPath,
      watch: path.join(defaultShimDirectory(), 'vgpu-watch'),
      package: packageRoot(),
    },
    consumers: installed.map((one): ServedConsumer => {
      const libraries = libraryDirectories(root, one.profile, distribution);
      return { unit: one.unit, libraryDirectories: libraries };
    }),
    changeable: changeable(),
    confProblem: confProblem(),
  };
}

type Wanted = readonly [path: string, packaged: string, editable: boolean];

/** The files that are the same on every machine. A Debian package may have brought them, and dpkg then owns them. */
function commonFiles(root: Root): readonly Wanted[] {
  return [
    [busPolicyFile, template('org.vgpu.Agent1.conf'), false],
    [catalogFile, template('vgpu-agent.catalog'), false],
    // Where there is no polkit, root alone may act.
    ...(root.realDirectory(path.dirname(polkitFile)) === null
      ? []
      : [[polkitFile, template('org.vgpu.Agent1.policy'), false] as const]),
    ...helpFiles(root),
    ...cockpitPageFiles(root),
  ];
}

function cockpitPageFiles(root: Root): readonly Wanted[] {
  if (root.realDirectory(cockpitDirectory) === null) return [];
  return cockpitFiles.map((name) => [`${cockpitPage}/${name}`, template(path.join('cockpit', name)), false]);
}

/** Pages for man(1) and completions for those shells that are here: where their directory is, they look for it. */
function helpFiles(root: Root): readonly Wanted[] {
  return [
    ...manPages.map((page) => [
      `${manDirectory}/man${page.slice(-1)}/${page}`,
      path.join('docs', 'man', page),
    ]),
    ...completions.map(([to, from]) => [to, path.join('dist', 'bundle', 'completions', from)]),
  ].flatMap(([to = '', from = '']) =>
    root.realDirectory(path.dirname(to)) === null
      ? []
      : [[to, packagedText('the service', from), false] as const],
  );
}

/** Everything that root's service executes, and what it installs for others. */
function changeable(): string | null {
  const directory = packageRoot();
  const bundle = path.join(directory, 'dist', 'bundle');
  const addon = path.join(directory, 'node_modules', 'systemd-journald');
  return changeableByOthers(
    process.execPath,
    path.join(defaultShimDirectory(), 'vgpu-watch'),
    ...shimFiles
      .map(({ name }) => path.join(defaultShimDirectory(), name))
      .filter((file) => existsSync(file)),
    ...(existsSync(bundle) ? readdirSync(bundle) : []).map((name) => path.join(bundle, name)),
    ...['profiles', 'units', path.join('dist', 'agent', 'schemas')].map((name) => path.join(directory, name)),
    ...[addon, path.join(addon, 'build', 'Release', 'journal_send.node')].filter((file) => existsSync(file)),
  );
}

function template(name: string): string {
  return packagedText('the service', 'units', name);
}

/** Directories of public links, by their real names: `/lib` is `/usr/lib` on merged-usr systems. */
function libraryDirectories(
  root: Root,
  profile: Profile | null,
  distribution: Distribution,
): readonly string[] {
  if (profile === null) return [];
  const directories = publicDirectories(profile, distribution);
  return [...new Set(directories.map((one) => root.realDirectory(one.path) ?? one.path))];
}
