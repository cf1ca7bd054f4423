/** Why there is no host, in the shim's own words, asked outside of any sandbox and as ourselves. */

import type { HostFacts, ShimBuild } from '../../contracts/facts.js';
import { permissions } from '../../machine/files/path-state.js';
import type { Root } from '../../machine/files/root.js';
import { parseEndpoint } from '../../machine/host/endpoint.js';
import { type CommandRunner, toolEnvironment } from '../../run-command.js';

export interface HostWord {
  /** `cannot connect to unix:...: Connection refused`; null when the shim had no complaint. */
  readonly noHost: string | null;
  /** What stands at the path of a unix socket, a line; empty where the host answers or is no such socket. */
  readonly socket: readonly string[];
}

const askSeconds = 5;
const graceMs = 2_000;

/** Asks only where `inspect` got no answer: a host that answers needs no explanation. */
export async function readHostWord(
  runner: CommandRunner,
  root: Root,
  host: HostFacts,
  shim: Pick<ShimBuild, 'files'>,
): Promise<HostWord> {
  if (host.answer.kind !== 'unreachable') return { noHost: null, socket: [] };
  const socket = describeSocket(root, host.endpoint);
  const program = sourceOf(shim, 'vgpu-probe');
  const library = sourceOf(shim, 'libcuda.so.1');
  if (program === null || library === null) return { noHost: null, socket };
  const asked = await runner
    .run(program, ['--library', library, '--json', '--timeout', String(askSeconds)], {
      env: { ...toolEnvironment(process.env), VGPU_HOST: host.endpoint, VGPU_LOG: 'stderr' },
      timeoutMs: askSeconds * 1000 + graceMs,
    })
    .catch(() => null);
  const said = asked?.stderr.toString('utf8') ?? '';
  return { noHost: /^.{0,80}?no host: (.*)$/m.exec(said)?.[1]?.trim() ?? null, socket };
}

function describeSocket(root: Root, endpoint: string): readonly string[] {
  const parsed = parseEndpoint(endpoint);
  if (parsed.kind !== 'unix' || parsed.path.startsWith('@')) return [];
  try {
    const stats = root.stat(parsed.path);
    if (stats === null) return [`${parsed.path} does not exist`];
    if (!stats.isSocket()) return [`${parsed.path} is there, and is no socket`];
    const mode = permissions(stats).toString(8).padStart(4, '0');
    return [`${parsed.path} is a socket, mode ${mode}, owner ${stats.uid}:${stats.gid}`];
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}

function sourceOf(shim: Pick<ShimBuild, 'files'>, name: string): string | null {
  return shim.files.find((file) => file.name === name)?.source ?? null;
}
