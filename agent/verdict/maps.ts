/** The libraries that the consumer's processes have loaded. */
import path from 'node:path';
import type { ProcessFacts } from '../contracts/facts.js';
import { containerLibraryDirectories, isInStore } from '../lib/paths.js';
import type { Observation, SeenProcess } from './observation.js';

/**
 * - `shim`: our libcuda, the file that is there now
 * - `stale`: the shim, but its file is gone (an older version, still mapped)
 * - `foreign`: another library; `mixed`: another library beside the shim
 * - `none`: no libcuda; `unknown`: the maps could not be read or the file not be examined
 */
export type Mapped = 'shim' | 'stale' | 'foreign' | 'mixed' | 'none' | 'unknown';

/** By its name: `libcuda.so`, `libcuda.so.1`, `libcuda.so.550.163.01`. */
export function isLibcuda(file: string): boolean {
  return path.basename(file).startsWith('libcuda.so');
}

/** By content as machine/ found it, never by name. Only libcuda counts: NVML alone computes nothing. */
export function mappedBy(facts: ProcessFacts): Mapped {
  const libraries = facts.libraries.filter((library) => isLibcuda(library.path));
  const ours = libraries.filter(({ vendor }) => vendor === 'vgpu');
  const foreign = libraries.some(({ vendor }) => vendor === 'nvidia' || vendor === 'foreign');
  if (foreign) return ours.length > 0 ? 'mixed' : 'foreign';
  if (ours.some(({ deleted }) => !deleted)) return 'shim';
  if (ours.length > 0) return 'stale';
  // A deleted file of the store cannot be examined any more, but only vgpu-agent writes files there.
  if (libraries.some((library) => library.deleted && isInStore(library.path))) return 'stale';
  if (libraries.length > 0 || facts.unreadable?.includes('maps') === true) return 'unknown';
  return 'none';
}

/** The processes whose maps the profile's evidence rules ask about. */
export function processesThatCount({ profile, processes }: Observation): readonly SeenProcess[] {
  switch (profile.evidence.mapsOf) {
    case 'main':
      return processes.filter(({ role }) => role === 'main');
    case 'children':
      return processes.filter(({ role }) => role === 'child');
    case 'either':
      return processes;
    case 'none':
      return [];
  }
}

/** LD_PRELOAD puts our libcuda into every process: that it is mapped then says nothing of what the process does. */
export function isPreloaded({ loaderEnvironment }: ProcessFacts): boolean {
  const preload = loaderEnvironment['LD_PRELOAD'] ?? '';
  return preload.split(/[: ]/).some((file) => isInStore(file) && isLibcuda(file));
}

export function libcudaPaths(facts: ProcessFacts): string {
  const paths = facts.libraries.filter((library) => isLibcuda(library.path));
  return paths.map((library) => `${library.path}${library.deleted ? ' (deleted)' : ''}`).join(', ');
}

/**
 * Is a path, as the probe told it, one of the installed libraries? Links are resolved there already. In a container the libraries also
 * stand, by our CDI file, where its loader looks without a cache.
 */
export function isOurLibrary(file: string, inContainer: boolean): boolean {
  if (isInStore(file)) return true;
  return inContainer && containerLibraryDirectories.includes(path.dirname(file));
}
