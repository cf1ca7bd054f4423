/** The service of ours on this machine: its files as they are and as this version would write them. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { VgpuError } from '../errors.js';
import {
  agentConf,
  agentUnit,
  agentUnitFile,
  agentUnitLink,
  busPolicyFile,
  catalogFile,
  packageRoot,
  polkitFile,
} from '../paths.js';
import type { Profile } from '../profile/types.js';
import { expandVariables } from '../profile/variables.js';
import type { Manager } from '../systemd/types.js';
import type { ContentCache } from './content.js';
import { ownedFile, pathState } from './path-state.js';
import type { Root } from './root.js';
import { defaultShimDirectory } from './shim-build.js';
import type { Distribution, ServiceFacts, ServiceFile } from './types.js';

export interface ServiceQuestion {
  readonly profile: Profile;
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
  const { profile, distribution, endpoint } = question;
  const wanted: readonly (readonly [path: string, content: string, editable: boolean])[] = [
    [agentConf, configText(profile, endpoint), true],
    [busPolicyFile, template('org.vgpu.Agent1.conf'), false],
    [catalogFile, template('vgpu-agent.catalog'), false],
    // Where there is no polkit, root alone may act.
    ...(root.realDirectory(path.dirname(polkitFile)) === null
      ? []
      : [[polkitFile, template('org.vgpu.Agent1.policy'), false] as const]),
    [agentUnitFile, unitText(root, profile, distribution), false],
  ];
  const [files, link, unit] = await Promise.all([
    Promise.all(
      wanted.map(
        async ([file, content, editable]): Promise<ServiceFile> => ({
          present: await ownedFile(root, file, contents),
          content,
          editable,
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
  };
}

function template(name: string): string {
  const file = path.join(packageRoot(), 'units', name);
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

/** What the service keeps true, as `install` was told. */
export function configText(profile: Profile, endpoint: string | null): string {
  return `${JSON.stringify({ schema: 1, profile: profile.name, host: endpoint }, null, 2)}\n`;
}

/**
 * Settings of Node's own that keep the service small (measured: 72 MB become 57): --lite-mode leaves out the JIT,
 * so that no writable and executable memory is needed (MemoryDenyWriteExecute=), and collects early;
 * --expose-gc lets the service collect when it has nothing to do.
 */
export const nodeFlags = [
  '--lite-mode',
  '--no-expose-wasm',
  '--expose-gc',
  '--max-semi-space-size=1',
  '--max-old-space-size=64',
  '--v8-pool-size=1',
];

/** units/vgpu-agent.service with what differs from machine to machine. */
function unitText(root: Root, profile: Profile, distribution: Distribution): string {
  const main = path.join(packageRoot(), 'dist', 'bundle', 'daemon.js');
  const watch = path.join(defaultShimDirectory(), 'vgpu-watch');
  const command = [watch, '--', process.execPath, ...nodeFlags, main];
  const inHome = [process.execPath, main].some((file) => /^\/(home|root|run\/user)\//.test(file));
  const values: Readonly<Record<string, string>> = {
    COMMAND: command.map(quoted).join(' '),
    CONSUMER: profile.unit,
    PROTECT_HOME: inHome ? 'read-only' : 'yes',
    // PrivateTmp= would hide a checkout that lies there.
    KEPT_IN_TMP: /^\/(var\/)?tmp\//.test(packageRoot()) ? quoted(packageRoot()) : '',
    LIBRARIES: libraryDirectories(root, profile, distribution)
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
function libraryDirectories(root: Root, profile: Profile, distribution: Distribution): readonly string[] {
  const { directories } = profile.publicLinks;
  const found = (directories[distribution.family] ?? directories.unknown ?? []).flatMap(({ path: text }) => {
    const directory = expandVariables(text, { multiarch: distribution.multiarch });
    return directory === null ? [] : [root.realDirectory(directory) ?? directory];
  });
  return [...new Set(found)];
}
