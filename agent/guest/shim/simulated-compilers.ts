/** Tells compilers that the GPU is simulated: it computes from PTX, and runs no machine code. */
import { accessSync, constants } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { own } from '../../lib/json.js';
import { ptxasName } from '../../lib/paths.js';

/**
 * The variables with which Triton gives PTX to the driver, where `libraries` has our ptxas, and CuPy. Triton's cache
 * is another one than the caller's, so that a real GPU never finds a text there, nor this one machine code.
 */
export function simulatedCompilers(
  libraries: string,
  environment: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> {
  const ptxas = path.join(libraries, ptxasName);
  const triton = isExecutable(ptxas)
    ? {
        TRITON_PTXAS_PATH: ptxas,
        // Its name for devices from 9.0 or 10.0 on, by version.
        TRITON_PTXAS_BLACKWELL_PATH: ptxas,
        TRITON_CACHE_DIR: tritonCache(environment),
      }
    : {};
  return { ...triton, CUPY_COMPILE_WITH_PTX: '1' };
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

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
