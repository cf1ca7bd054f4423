/** Variables that make compilers emit PTX for a simulated GPU, which runs no machine code. */
import { constants } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { own } from '../../lib/json.js';
import { may, ptxasName } from '../../lib/paths.js';

/**
 * The variables for CuPy, vLLM (FlashInfer compiles its sampler to machine code, with nvcc) and, if `libraries` has vgpu-ptxas, for Triton. Triton gets a cache of its own, so that a real
 * GPU never loads PTX from it and the simulated GPU never machine code.
 */
export function simulatedCompilers(
  libraries: string,
  environment: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> {
  const ptxas = path.join(libraries, ptxasName);
  const triton = may(ptxas, constants.X_OK)
    ? {
        TRITON_PTXAS_PATH: ptxas,
        // Newer versions of Triton read this name for compute capability 9.0 or 10.0 and above.
        TRITON_PTXAS_BLACKWELL_PATH: ptxas,
        TRITON_CACHE_DIR: tritonCache(environment),
      }
    : {};
  return { ...triton, CUPY_COMPILE_WITH_PTX: '1', VLLM_USE_FLASHINFER_SAMPLER: '0' };
}

function tritonCache(environment: Readonly<Record<string, string | undefined>>): string {
  const named = (name: string): string | undefined => own(environment, name) || undefined;
  const theirs = named('TRITON_CACHE_DIR');
  if (theirs !== undefined)
    return path.basename(theirs) === cacheName ? theirs : path.join(theirs, cacheName);
  const home = named('HOME') ?? os.homedir();
  return path.join(named('XDG_CACHE_HOME') ?? path.join(home, '.cache'), 'vgpu-agent', 'triton', cacheName);
}

const cacheName = 'simulated';
