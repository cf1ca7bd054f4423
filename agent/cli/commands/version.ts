/** `vgpu-agent version`: the agent, the shim it would install, the one that is installed, and what processes have loaded. */

import { readlink } from 'node:fs/promises';
import path from 'node:path';
import { Command } from 'commander';
import { agentVersion, type BuildInfo, readBuildInfo } from '../../lib/build-info.js';
import { ExitCode, errnoOf, VgpuError } from '../../lib/errors.js';
import { storeCurrent, storeVersions } from '../../lib/paths.js';
import { oneLine } from '../../lib/text.js';
import { examples, type Outcome, type Run } from './common.js';

interface Versions {
  readonly agent: string;
  readonly shim: { readonly id: string; readonly version: string; readonly wire: number } | null;
  readonly installed: string | null;
  readonly build: BuildInfo | null;
  /** With --verbose: the installed libraries that the services with the GPU use now. */
  readonly loaded?: Awaited<ReturnType<typeof loadedLibraries>>;
}

export function versionCommand(run: Run): Command {
  return new Command('version')
    .description('print the versions of the agent, the shim and what is installed')
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent version --json', 'for scripts'],
        ['sudo vgpu-agent version --verbose', 'also which build this is, and which libraries are loaded'],
      ),
    )
    .action((_options: object, command: Command) =>
      run(() => version(command.optsWithGlobals()['verbose'] === true)),
    );
}

async function version(verbose: boolean): Promise<Outcome> {
  const [shim, installed] = await Promise.all([builtShim(), installedStore()]);
  const versions: Versions = {
    agent: agentVersion(),
    shim,
    installed,
    build: readBuildInfo(),
    ...(verbose ? { loaded: await loadedLibraries(shim?.id ?? null, installed) } : {}),
  };
  return { exitCode: ExitCode.done, document: { schema: 1, ...versions }, text: () => textOf(versions) };
}

function textOf({ agent, shim, installed, build, loaded }: Versions): string {
  const lines = [
    `vgpu-agent ${agent}`,
    shim === null ? 'shim       not built' : `shim       ${shim.version} (wire ${shim.wire}), ${shim.id}`,
    `installed  ${installed === null ? 'none' : oneLine(installed)}`,
  ];
  if (loaded === undefined) return lines.join('\n');
  lines.push(
    build === null
      ? 'build      a checkout, or a copy of one'
      : `build      ${build.packaged} of commit ${build.commit}, ${build.date}, with Node ${build.node}`,
    `node       ${process.version}, ${process.execPath}`,
  );
  if (loaded.length === 0) lines.push('loaded     by no service');
  for (const { unit, pid, path: file, provenance, current } of loaded) {
    const what = provenance === null ? 'cannot be read' : `${provenance.version} (wire ${provenance.wire})`;
    const judged = current ? '' : `; not the present version: systemctl restart ${unit}`;
    lines.push(oneLine(`loaded     ${unit}, process ${pid}: ${file}, ${what}${judged}`));
  }
  return lines.join('\n');
}

async function loadedLibraries(built: string | null, installed: string | null) {
  const [{ readManifest }, { nodeDisk }, { spawnRunner }] = await Promise.all([
    import('../../install/apply/manifest.js'),
    import('../../install/apply/disk.js'),
    import('../../lib/run-command.js'),
  ]);
  const units = (await readManifest(nodeDisk(spawnRunner())))?.consumers.map(({ unit }) => unit) ?? [];
  if (units.length === 0) return [];
  const [{ openManager }, { readProcesses }, { ContentCache }] = await Promise.all([
    import('../../systemd/bus.js'),
    import('../../guest/unit/processes.js'),
    import('../../guest/files/content.js'),
  ]);
  const contents = new ContentCache();
  const manager = await openManager();
  try {
    const processes = await Promise.all(
      units.map(async (unit) => {
        const all = await readProcesses(await manager.processes(unit), contents);
        return all.map(({ pid, libraries }) => ({ unit, pid, libraries }));
      }),
    );
    const ours = processes.flat().flatMap(({ unit, pid, libraries }) =>
      libraries
        .filter(({ vendor }) => vendor === 'vgpu')
        .map(async ({ path: file, deleted }) => {
          const content = deleted ? null : await contents.of(file, file);
          const provenance = content?.elf.kind === 'elf' ? content.elf.facts.provenance : null;
          const store = file.startsWith(`${storeVersions}/`) ? path.basename(path.dirname(file)) : null;
          const current = !deleted && store !== null && store === installed && store === built;
          return { unit, pid, path: file, store, provenance, current };
        }),
    );
    return await Promise.all(ours);
  } finally {
    manager.close();
  }
}

async function builtShim(): Promise<Versions['shim']> {
  const [{ defaultShimDirectory, readShimBuild }, { ContentCache }] = await Promise.all([
    import('../../guest/shim/store.js'),
    import('../../guest/files/content.js'),
  ]);
  const contents = new ContentCache();
  const directory = defaultShimDirectory();
  try {
    const { id, version } = await readShimBuild(directory, contents);
    const library = path.join(directory, 'libcuda.so.1');
    const content = await contents.of(library, library);
    const wire = content?.elf.kind === 'elf' ? content.elf.facts.provenance?.wire : undefined;
    return { id, version, wire: wire ?? 0 };
  } catch (error) {
    // Not built, or built in part: `plan` and `install` say what is wrong with it.
    if (error instanceof VgpuError) return null;
    throw error;
  }
}

async function installedStore(): Promise<string | null> {
  try {
    return path.basename(await readlink(storeCurrent));
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EINVAL') return null;
    throw error;
  }
}
