/** A host with --device cuda and the stand-in for NVIDIA's driver (programs/stand_in_driver.c). */
import path from 'node:path';
import { buildProgram, ROOT } from '../cuda/private_programs.js';
import { type Host, type HostOptions, inFrontOf, startHost } from '../shim_host.js';

/** Of the build without sanitizers, in a daemon with them, too: the driver itself is none of what is tested. */
const BEHIND = path.join(ROOT, 'build/shim/programs/inprocess/libcuda.so.1');

/** The library that talks to a host, so that all processes share the host's devices. */
const OF_A_HOST = path.join(ROOT, 'build/shim/libcuda.so.1');

/** The environment and the arguments of a daemon whose stand-in driver does what `words` say. */
export async function standIn(
  words: string,
  /** The file of the simulated devices behind it. */
  profile = path.join(ROOT, 'profiles/devices/h100-80gb.json'),
  /** The host that has the devices. Without it each process has devices of its own. */
  behind?: Host,
): Promise<{ readonly args: readonly string[]; readonly env: Readonly<Record<string, string>> }> {
  const library = await buildProgram({
    name: 'libstand-in.so',
    sources: [
      ...['driver', 'hardware', 'pools'].map((part) => `test/shim/programs/stand_in_${part}.c`),
      BEHIND,
    ],
    sanitize: 'none',
    soname: 'libstand-in.so',
    libraries: ['dl'],
  });
  const other = behind === undefined ? BEHIND : OF_A_HOST;
  return {
    args: ['--cuda-library', library, '--nvml-library', '/nonexistent/libnvidia-ml.so.1'],
    env: {
      STAND_IN: words,
      STAND_IN_BEHIND: other,
      LD_LIBRARY_PATH: path.dirname(other),
      ...(behind === undefined ? { VGPU_INPROCESS_PROFILE: profile } : { VGPU_HOST: behind.address }),
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
    /** The host that has the devices. It is stopped with this host. */
    readonly behind?: Host;
  },
): Promise<Host> {
  const { behind } = options;
  const { args, env } = await standIn(words, options.profile, behind);
  const host = await startHost({
    listen: options.listen,
    device: 'cuda',
    ...(options.program === undefined ? {} : { program: options.program }),
    args: [...args, ...(options.args ?? [])],
    env: { ...env, ...options.env },
  });
  return behind === undefined ? host : inFrontOf(host, behind);
}

/** The stand-in for NVIDIA's libnvidia-ml (programs/stand_in_nvml.c), for --nvml-library. */
export function standInNvml(): Promise<string> {
  return buildProgram({
    name: 'libstand-in-nvml.so',
    sources: ['test/shim/programs/stand_in_nvml.c'],
    sanitize: 'none',
    soname: 'libstand-in-nvml.so',
    libraries: ['dl'],
  });
}
