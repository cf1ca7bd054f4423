import { readlink } from 'node:fs/promises';
import path from 'node:path';
import { Command } from 'commander';
import { agentVersion, type BuildInfo, readBuildInfo } from '../../lib/build-info.js';
import { ExitCode, errnoOf, VgpuError } from '../../lib/errors.js';
import { storeCurrent } from '../../lib/paths.js';
import { oneLine } from '../../lib/text.js';
import { examples, type Outcome, type Run } from './common.js';

interface Versions {
  readonly agent: string;
  readonly shim: { readonly id: string; readonly version: string; readonly wire: number } | null;
  readonly installed: string | null;
  readonly build: BuildInfo | null;
}

export function versionCommand(run: Run): Command {
  return new Command('version')
    .description('print the versions of the agent, the shim and what is installed')
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent version --json', 'for scripts'],
        ['sudo vgpu-agent version --verbose', 'also the build and the Node that runs it'],
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
  };
  return {
    exitCode: ExitCode.done,
    document: { schema: 1, ...versions },
    text: () => textOf(versions, verbose),
  };
}

function textOf({ agent, shim, installed, build }: Versions, verbose: boolean): string {
  const lines = [
    `vgpu-agent ${agent}`,
    shim === null ? 'shim       not built' : `shim       ${shim.version} (wire ${shim.wire}), ${shim.id}`,
    `installed  ${installed === null ? 'none' : oneLine(installed)}`,
  ];
  if (!verbose) return lines.join('\n');
  lines.push(
    build === null
      ? 'build      a checkout, or a copy of one'
      : `build      ${build.packaged} of commit ${build.commit}, ${build.date}, with Node ${build.node}`,
    `node       ${process.version}, ${process.execPath}`,
  );
  return lines.join('\n');
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
