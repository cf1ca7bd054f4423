import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's root, from dist/test/bench/; the guest sees it at the same path. */
export const repository = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');
export const shim = join(repository, 'build/shim');
/** Built by build-program.ts before the guest starts. */
export const shimBench = join(repository, 'build/bench/shim_bench');

/** The same sums as loops of C; built beside it. */
export const computeBench = join(repository, 'build/bench/compute_bench');

/** Common kernels as loops of C, compiled for this processor. */
export const commonBench = join(repository, 'build/bench/common_bench');

/** The kernels as OpenCL C; built where the peer was fetched. */
export const openclBench = join(repository, 'build/bench/opencl_bench');
/** Debian's PoCL, as scripts/fetch-packages unpacks it. */
export const poclRoot = join(repository, '.cache/roots/pocl');

export function byHand(name: 'check' | 'install' | 'uninstall'): string {
  return join(repository, 'test/bench/by-hand', name);
}
