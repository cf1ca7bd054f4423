/** The service of ours on this machine: its files as they are and as this version would write them. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Distribution, ServiceFacts, ServiceFile } from '../contracts/facts.js';
import { VgpuError } from '../errors.js';
import {
  agentConf,
  agentUnit,
  agentUnitFile,
  agentUnitLink,
  busPolicyFile,
  catalogFile,
  completions,
  manDirectory,
  manPages,
  packageRoot,
  polkitFile,
} from '../paths.js';
import type { Profile } from '../profile/types.js';
import { expandVariables } from '../profile/variables.js';
import type { Manager } from '../systemd/types.js';
import { changeableByOthers } from '../trust/files.js';
import type { ContentCache } from './files/content.js';
import { ownedFile, pathState } from './files/path-state.js';
import type { Root } from './files/root.js';
import { defaultShimDirectory, shimFiles } from './shim/shim-build.js';

/** A consumer as the service's unit has to know it; null: its profile cannot be read any more. */
export interface ServedConsumer {
  readonly unit: string;
  readonly profile: Profile | null;
}

export interface ServiceQuestion {
  /** All consumers, and all but the one that is looked at. */
  readonly consumers: readonly ServedConsumer[];
  readonly without: readonly ServedConsumer[];
  readonly distribution: Distribution;
  /** What agent.json is to say of the host; null: as installed. */
  readonly endpoint: string | null;
}

/** Throws a VgpuError (`failed`) when files of the package are missing. */
export async function readService(
  root: Root,
  contents: ContentCache,
  manager: Pick<Manager, 'unit'>,
  question: ServiceQuestion,
): Promise<ServiceFacts> {
  const { consumers, without, distribution, endpoint } = question;
  const unitFor = (served: readonly ServedConsumer[]): string => unitText(root, served, distribution);
  const wanted: readonly (readonly [path: string, content: string, editable: boolean, without?: string])[] = [
    [agentConf, configText(endpoint), true],
    [busPolicyFile, template('org.vgpu.Agent1.conf'), false],
    [catalogFile, template('vgpu-agent.catalog'), false],
    // Where there is no polkit, root alone may act.
    ...(root.realDirectory(path.dirname(polkitFile)) === null
      ? []
      : [[polkitFile, template('org.vgpu.Agent1.policy'), false] as const]),
    ...helpFiles(root),
    [agentUnitFile, unitFor(consumers), false, unitFor(without)],
  ];
  const [files, link, unit] = await Promise.all([
    Promise.all(
      wanted.map(
        async ([file, content, editable, others]): Promise<ServiceFile> => ({
          present: await ownedFile(root, file, contents),
          content,
          editable,
          ...(others === undefined ? {} : { without: others }),
        }),
      ),
    ),
    pathState(root, agentUnitLink, contents),
    manager.unit(agentUnit),
  ]);
  return {
    unit: agentUnit,
    files,
    link: { path: agentUnitLink, target: agentUnitFile, state: link },
    activeState: unit.kind === 'loaded' ? unit.activeState : 'inactive',
    changeable: changeable(),
  };
}

/** Pages for man(1) and completions for those shells that are here: where their directory is, they look for it. */
function helpFiles(root: Root): readonly (readonly [path: string, content: string, editable: false])[] {
  return [
    ...manPages.map((page) => [
      `${manDirectory}/man${page.slice(-1)}/${page}`,
      path.join('docs', 'man', page),
    ]),
    ...completions.map(([to, from]) => [to, path.join('dist', 'bundle', 'completions', from)]),
  ].flatMap(([to = '', from = '']) =>
    root.realDirectory(path.dirname(to)) === null ? [] : [[to, packaged(from), false] as const],
  );
}

/** Everything that root's service executes, and what it installs for others. */
function changeable(): string | null {
  const directory = packageRoot();
  const bundle = path.join(directory, 'dist', 'bundle');
  const addon = path.join(directory, 'node_modules', 'systemd-journald');
  const executed = [
    process.execPath,
    path.join(defaultShimDirectory(), 'vgpu-watch'),
    ...shimFiles
      .map(({ name }) => path.join(defaultShimDirectory(), name))
      .filter((file) => existsSync(file)),
    ...(existsSync(bundle) ? readdirSync(bundle) : []).map((name) => path.join(bundle, name)),
    ...['profiles', 'units', path.join('dist', 'agent', 'schemas')].map((name) => path.join(directory, name)),
    ...[addon, path.join(addon, 'build', 'Release', 'journal_send.node')].filter((file) => existsSync(file)),
  ];
  for (const file of executed) {
    const found = changeableByOthers(file);
    if (found !== null) return found;
  }
  return null;
}

function template(name: string): string {
  return packaged(path.join('units', name));
}

function packaged(name: string): string {
  const file = path.join(packageRoot(), name);
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new VgpuError(`the service cannot be installed: ${file} is missing`, {
      kind: 'failed',
      operation: 'read the unit of the service',
      path: file,
      remedy: 'install vgpu-agent again; files of it are missing',
      cause,
    });
  }
}

/** What the service keeps true where nobody has said otherwise: all that `install` was told. */
function configText(endpoint: string | null): string {
  return `${JSON.stringify({ schema: 1, consumers: 'installed', host: endpoint }, null, 2)}\n`;
}

/**
 * Options that keep the service small, all of them in Node's own documentation and known to Node 20, 22 and 24:
 * V8's other flags come and go, and a Node that does not know one does not start. --jitless: no writable and
 * executable memory is needed (MemoryDenyWriteExecute=), and no WebAssembly is there; --expose-gc lets the service
 * collect when it has nothing to do.
 */
const nodeFlags = [
  '--jitless',
  '--expose-gc',
  '--max-semi-space-size=1',
  '--max-old-space-size=64',
  '--v8-pool-size=1',
];

/** units/vgpu-agent.service with what differs from machine to machine. */
function unitText(root: Root, consumers: readonly ServedConsumer[], distribution: Distribution): string {
  const main = path.join(packageRoot(), 'dist', 'bundle', 'daemon.cjs');
  const watch = path.join(defaultShimDirectory(), 'vgpu-watch');
  const command = [watch, '--', process.execPath, ...nodeFlags, main];
  const inHome = [process.execPath, main].some((file) => /^\/(home|root|run\/user)\//.test(file));
  const values: Readonly<Record<string, string>> = {
    COMMAND: command.map(quoted).join(' '),
    // In one order, whichever of them is looked at.
    CONSUMER: consumers
      .map((one) => one.unit)
      .toSorted()
      .join(' '),
    PROTECT_HOME: inHome ? 'read-only' : 'yes',
    // PrivateTmp= would hide a checkout that lies there.
    KEPT_IN_TMP: /^\/(var\/)?tmp\//.test(packageRoot()) ? quoted(packageRoot()) : '',
    LIBRARIES: [
      ...new Set(consumers.flatMap(({ profile }) => libraryDirectories(root, profile, distribution))),
    ]
      .toSorted()
      .map((directory) => `-${directory}`)
      .join(' '),
  };
  return template('vgpu-agent.service').replace(
    /@([A-Z_]+)@/g,
    (whole, name: string) => values[name] ?? whole,
  );
}

/** A word of ExecStart= (systemd.service(5)). */
function quoted(word: string): string {
  const escaped = word.replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /[\s"'\\]/.test(escaped) ? `"${escaped.replaceAll(/["\\]/g, '\\$&')}"` : escaped;
}

/** Directories of public links, by their real names: `/lib` is `/usr/lib` on merged-usr systems. */
function libraryDirectories(
  root: Root,
  profile: Profile | null,
  distribution: Distribution,
): readonly string[] {
  if (profile === null) return [];
  const { directories } = profile.publicLinks;
  const found = (directories[distribution.family] ?? directories.unknown ?? []).flatMap(({ path: text }) => {
    const directory = expandVariables(text, { multiarch: distribution.multiarch });
    return directory === null ? [] : [root.realDirectory(directory) ?? directory];
  });
  return [...new Set(found)];
}
