/** The state of the path of the host's unix socket. */
import type { HostFacts } from '../../contracts/facts.js';
import { permissions } from '../files/path-state.js';
import type { Root } from '../files/root.js';
import { parseEndpoint } from '../vgpu-host/endpoint.js';

/** A line; empty where the host answers, which needs no explanation, or has no such socket. */
export function describeSocket(root: Root, { endpoint, answer }: HostFacts): readonly string[] {
  const parsed = parseEndpoint(endpoint);
  if (answer.kind !== 'unreachable' || parsed.kind !== 'unix' || parsed.path.startsWith('@')) return [];
  try {
    const stats = root.stat(parsed.path);
    if (stats === null) return [`${parsed.path} does not exist`];
    if (!stats.isSocket()) return [`${parsed.path} exists, and is not a socket`];
    const mode = permissions(stats).toString(8).padStart(4, '0');
    return [`${parsed.path} is a socket, mode ${mode}, owner ${stats.uid}:${stats.gid}`];
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}
