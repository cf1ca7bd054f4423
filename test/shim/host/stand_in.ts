/** A host with --device cuda and the stand-in for NVIDIA's driver (programs/stand_in_driver.c). */
import path from 'node:path';
import { buildProgram, ROOT } from '../cuda/private_programs.js';
import { builtFile, type Host, type HostOptions, startHost } from '../shim_host.js';

const BEHIND = 'programs/inprocess/libcuda.so.1';

/** What the daemon's environment and command line need for a stand-in that does what `words` say. */
export async function standIn(
  words: string,
): Promise<{ readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> }> {
  const library = await buildProgram({
    name: 'libstand-in.so',
    sources: ['test/shim/programs/stand_in_driver.c', builtFile(BEHIND)],
    sanitize: 'none',
    soname: 'libstand-in.so',
    libraries: ['dl'],
  });
  return {
    args: ['--cuda-library', library, '--nvml-library', '/nonexistent/libnvidia-ml.so.1'],
    env: {
      STAND_IN: words,
      STAND_IN_BEHIND: builtFile(BEHIND),
      LD_LIBRARY_PATH: path.dirname(builtFile(BEHIND)),
      VGPU_INPROCESS_PROFILE: path.join(ROOT, 'profiles/devices/h100-80gb.json'),
    },
  };
}

export async function startStandIn(
  words: string,
  options: Pick<HostOptions, 'listen'> & { readonly args?: readonly string[] },
): Promise<Host> {
  const { args, env } = await standIn(words);
  return startHost({ ...options, device: 'cuda', args: [...args, ...(options.args ?? [])], env });
}
