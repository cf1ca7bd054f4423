/** A host with --device cuda and the stand-in for NVIDIA's driver (programs/stand_in_driver.c). */
import path from 'node:path';
import { buildProgram, ROOT } from '../cuda/private_programs.js';
import { type Host, type HostOptions, startHost } from '../shim_host.js';

/** Of the build without sanitizers, in a daemon with them, too: the driver itself is none of what is tested. */
const BEHIND = path.join(ROOT, 'build/shim/programs/inprocess/libcuda.so.1');

/** The environment and the arguments of a daemon whose stand-in driver does what `words` say. */
export async function standIn(
  words: string,
  /** The file of the simulated devices behind it. */
  profile = path.join(ROOT, 'profiles/devices/h100-80gb.json'),
): Promise<{ readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> }> {
  const library = await buildProgram({
    name: 'libstand-in.so',
    sources: [...['driver', 'hardware'].map((part) => `test/shim/programs/stand_in_${part}.c`), BEHIND],
    sanitize: 'none',
    soname: 'libstand-in.so',
    libraries: ['dl'],
  });
  return {
    args: ['--cuda-library', library, '--nvml-library', '/nonexistent/libnvidia-ml.so.1'],
    env: {
      STAND_IN: words,
      STAND_IN_BEHIND: BEHIND,
      LD_LIBRARY_PATH: path.dirname(BEHIND),
      VGPU_INPROCESS_PROFILE: profile,
      ...(words.split(',').includes('maps') ? { VGPU_INPROCESS_MAPS: '1' } : {}),
    },
  };
}

export async function startStandIn(
  words: string,
  options: Pick<HostOptions, 'listen'> & {
    readonly args?: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
    readonly profile?: string;
    readonly program?: string;
  },
): Promise<Host> {
  const { args, env } = await standIn(words, options.profile);
  return startHost({
    listen: options.listen,
    device: 'cuda',
    ...(options.program === undefined ? {} : { program: options.program }),
    args: [...args, ...(options.args ?? [])],
    env: { ...env, ...options.env },
  });
}

/** The stand-in for NVIDIA's libnvidia-ml (programs/stand_in_nvml.c), for --nvml-library. */
export function standInNvml(): Promise<string> {
  return buildProgram({
    name: 'libstand-in-nvml.so',
    sources: ['test/shim/programs/stand_in_nvml.c'],
    sanitize: 'none',
    soname: 'libstand-in-nvml.so',
  });
}
