/** A Python with a package that this project does not install, and the steps that a program of the tests does with it. */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, SHIM } from '../shim_host.js';

const run = promisify(execFile);

/**
 * The Python that `variable` names, else .cache/`environment`, else python3: the first in which `question` ends with 0;
 * undefined: none here. The environment `env` is added to this process's.
 */
export function findPython(
  variable: string,
  environment: string,
  question: string,
  env: Readonly<Record<string, string>> = {},
): string | undefined {
  const named = process.env[variable];
  const cached = path.join(ROOT, '.cache', environment, 'bin/python');
  return (named === undefined ? [cached, 'python3'] : [named]).find(
    (python) =>
      spawnSync(python, ['-c', question], { stdio: 'ignore', env: { ...process.env, ...env } }).status === 0,
  );
}

/** Runs test/shim/programs/`program` through the shim; every step must be told as done. */
export async function stepsPass(
  python: string,
  program: string,
  steps: readonly string[],
  host: Host,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const { stdout } = await run(python, [path.join(ROOT, 'test/shim/programs', program), ...steps], {
    env: { ...process.env, LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address, ...env },
    timeout: 600_000,
  });
  assert.deepEqual(
    stdout.trim().split('\n'),
    steps.map((step) => `${step} ok`),
  );
}
