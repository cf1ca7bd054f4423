import path from 'node:path';
import { containerOf } from '../containers/container-unit.js';
import type { ContainerFacts } from '../contracts/facts.js';
import type { UnitFacts } from '../contracts/unit.js';
import { VgpuError } from '../lib/errors.js';
import { cdiDirectories, cdiFile, cdiNvidiaFile, quadletDropIn } from '../lib/paths.js';
import type { CommandRunner } from '../lib/run-command.js';
import { type ContentCache, ownedFile } from './files/content.js';
import type { Root } from './files/root.js';

const engines = ['podman', 'docker', 'containerd', 'crio', 'nerdctl', 'kubelet'];
const programDirectories = ['/usr/bin', '/usr/local/bin', '/usr/sbin', '/usr/local/sbin'];
const maxSpecBytes = 1024 * 1024;
const versionTimeoutMs = 5_000;

export async function readContainers(
  root: Root,
  runner: CommandRunner,
  unit: UnitFacts,
  contents: ContentCache,
): Promise<ContainerFacts> {
  const container = unit.kind === 'loaded' ? containerOf(unit) : null;
  const quadlet = container?.quadlet ?? null;
  const [spec, nvidia, dropIn, podman] = await Promise.all([
    ownedFile(root, cdiFile, contents),
    ownedFile(root, cdiNvidiaFile, contents),
    quadlet === null ? null : ownedFile(root, quadletDropIn(quadlet), contents),
    container === null || quadlet === null ? null : podmanVersion(runner, container.program),
  ]);
  return {
    wanted: root.realDirectory(path.dirname(cdiFile)) !== null || engines.some((name) => isHere(root, name)),
    spec,
    nvidia,
    nvidiaFrom: otherNvidia(root),
    dropIn,
    podman,
  };
}

function isHere(root: Root, program: string): boolean {
  return programDirectories.some((directory) => root.stat(path.join(directory, program))?.isFile() === true);
}

/** Another program's file that defines nvidia.com/gpu: nvidia-ctk writes YAML, others JSON. */
function otherNvidia(root: Root): string | null {
  for (const directory of cdiDirectories) {
    if (root.realDirectory(directory) === null) continue;
    for (const name of root.readdir(directory)) {
      const file = path.join(directory, name);
      if (file === cdiNvidiaFile || !/\.(?:json|ya?ml)$/.test(name)) continue;
      const text = root.stat(file)?.isFile() === true ? root.readFile(file, maxSpecBytes) : null;
      if (text !== null && offersNvidia(text.toString('utf8'))) return file;
    }
  }
  return null;
}

export function offersNvidia(text: string): boolean {
  return /(?:^|[{,\s])["']?kind["']?\s*:\s*["']?nvidia\.com\/gpu["']?(?=[\s,}]|$)/m.test(text);
}

/** `5.4.2`; null where it does not say. */
async function podmanVersion(runner: CommandRunner, program: string): Promise<string | null> {
  try {
    const ran = await runner.run(program, ['--version'], { timeoutMs: versionTimeoutMs });
    return /^podman version (\d+\.\d+\.\d+)/.exec(ran.stdout.toString('utf8'))?.[1] ?? null;
  } catch (error) {
    if (error instanceof VgpuError) return null;
    throw error;
  }
}
