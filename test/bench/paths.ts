import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's root, from dist/test/bench/; the guest sees it at the same path. */
export const repository = fileURLToPath(new URL('../../../', import.meta.url)).replace(/\/$/, '');
export const shim = join(repository, 'build/shim');
/** Built by build-program.ts before the guest starts. */
export const shimBench = join(repository, 'build/bench/shim_bench');

/** The same sums as loops of C; built beside it. */
export const computeBench = join(repository, 'build/bench/compute_bench');

export function byHand(name: 'check' | 'install' | 'uninstall'): string {
  return join(repository, 'test/bench/by-hand', name);
}
