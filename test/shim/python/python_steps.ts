/** A Python with a package that this project does not install, and the steps that a program of the tests does with it. */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, VARIANT } from '../shim_host.js';

const run = promisify(execFile);
const main = path.join(ROOT, 'dist/bundle/main.js');

export const long = process.env['VGPU_TEST_LONG'] === '1';

/** Why what a Python does with our libraries cannot be tested in this run; false: it can. */
export const skipPython =
  VARIANT !== 'shim' && 'a program that is not sanitized cannot load a sanitized library';

/**
 * The Python that `variable` names, else that of the group of scripts/fetch-packages, else python3: the first in which
 * `question` ends with 0; undefined: none here.
 */
export function findPython(variable: string, group: string, question: string): string | undefined {
  const named = process.env[variable];
  const fetched = path.join(ROOT, '.cache/roots', group, 'bin/python');
  return (named === undefined ? [fetched, 'python3'] : [named]).find(
    (python) => spawnSync(python, ['-c', question], { stdio: 'ignore' }).status === 0,
  );
}

function environment(directory: string, env: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const {
    TRITON_CACHE_DIR: _triton,
    CUDA_PATH: _path,
    CUDA_HOME: _home,
    VGPU_LOG: _log,
    CUDA_VISIBLE_DEVICES: _visible,
    ...clean
  } = process.env;
  return {
    ...clean,
    XDG_CACHE_HOME: directory,
    CUPY_CACHE_DIR: path.join(directory, 'cupy'),
    TORCHINDUCTOR_CACHE_DIR: path.join(directory, 'inductor'),
    ...env,
  };
}

/** Runs `vgpu-agent run`: the shim, and what compilers must know of a simulated GPU. Its caches are in `directory`. */
export async function asRun(
  command: readonly string[],
  host: Host,
  directory: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  return run(process.execPath, [main, 'run', '--host', host.address, '--', ...command], {
    env: environment(directory, env),
    timeout: long ? 1_800_000 : 600_000,
    maxBuffer: 64 << 20,
  });
}

/** The same for a program that goes on: a server. */
export function startAsRun(
  command: readonly string[],
  host: Host,
  directory: string,
  env: Readonly<Record<string, string>>,
): ChildProcess {
  return spawn(process.execPath, [main, 'run', '--host', host.address, '--', ...command], {
    env: environment(directory, env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Runs test/shim/programs/`program` through the shim; every step must be told as done. */
export async function stepsPass(
  python: string,
  program: string,
  steps: readonly string[],
  host: Host,
  directory: string,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const command = [python, path.join(ROOT, 'test/shim/programs', program), ...steps];
  const { stdout, stderr } = await asRun(command, host, directory, env);
  assert.deepEqual(
    stdout.trim().split('\n'),
    steps.map((step) => `${step} ok`),
    stderr.slice(-2000),
  );
}
