/** `vgpu-agent version`: the agent, the shim it would install, and the one that is installed. */
import { readlink } from 'node:fs/promises';
import path from 'node:path';
import { Command } from 'commander';
import { agentVersion } from '../agent-version.js';
import { ExitCode, errnoOf, VgpuError } from '../errors.js';
import { storeCurrent } from '../paths.js';
import { oneLine } from '../text.js';
import { examples } from './options.js';
import type { Outcome, Run } from './types.js';

export interface VersionDocument {
  readonly schema: 1;
  readonly agent: string;
  /** The built shim beside this agent; null when it is not built. */
  readonly shim: { readonly id: string; readonly version: string; readonly wire: number } | null;
  /** What `/opt/vgpu/current` points to. */
  readonly installed: string | null;
}

export function versionCommand(run: Run): Command {
  return new Command('version')
    .description('print the versions of the agent, the shim and what is installed')
    .addHelpText('after', examples(['vgpu-agent version --json', 'for scripts']))
    .action(() => run(version));
}

async function version(): Promise<Outcome> {
  const document: VersionDocument = {
    schema: 1,
    agent: agentVersion(),
    shim: await builtShim(),
    installed: await installedStore(),
  };
  const { agent, shim, installed } = document;
  return {
    exitCode: ExitCode.done,
    document,
    text: () =>
      [
        `vgpu-agent ${agent}`,
        shim === null ? 'shim       not built' : `shim       ${shim.version} (wire ${shim.wire}), ${shim.id}`,
        `installed  ${installed === null ? 'none' : oneLine(installed)}`,
      ].join('\n'),
  };
}

async function builtShim(): Promise<VersionDocument['shim']> {
  const [{ defaultShimDirectory, readShimBuild }, { ContentCache }] = await Promise.all([
    import('../machine/shim/shim-build.js'),
    import('../machine/files/content.js'),
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
