/** Asks addresses for a host, with the shim that would be installed. */

import type { HostFacts } from '../../contracts/facts.js';
import { ContentCache } from '../../guest/files/content.js';
import { defaultShimDirectory, readShimBuild } from '../../guest/shim/shim-build.js';
import { readHost } from '../../guest/vgpu-host/host.js';
import { spawnRunner } from '../../lib/run-command.js';

/** Each question is bounded by `timeoutMs`; no answer is an answer. Throws a VgpuError when the shim is not built. */
export function hostAsker(timeoutMs: number): (endpoint: string) => Promise<HostFacts['answer']> {
  const runner = spawnRunner();
  const contents = new ContentCache();
  return async (endpoint) => {
    const shim = await readShimBuild(defaultShimDirectory(), contents);
    const sources = { flag: endpoint, environment: undefined, guestConf: null, defaultSocketExists: false };
    return (await readHost(runner, { sources, shim, timeoutMs })).answer;
  };
}
