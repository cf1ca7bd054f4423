/** Runs a built sample through the shim on simulated devices of its own and judges how it ended. */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { SHIM, scratchDirectory, startHost } from '../../shim_host.js';
import { type Ended, judge, type Outcome } from './judge.js';
import type { Sample } from './sample.js';

/** The daemon's own default. */
const PROFILE = 'h100-80gb';

export interface Ran {
  readonly outcome: Outcome;
  readonly seconds: number;
}

function runOnce(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  limit: number,
): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile(
      program,
      args,
      {
        cwd: path.dirname(program),
        env: { ...process.env, ...env },
        timeout: limit,
        killSignal: 'SIGKILL',
        maxBuffer: 1 << 26,
      },
      (_error, stdout, stderr) => resolve({ status: child.exitCode, text: `${stdout}\n${stderr}` }),
    );
  });
}

/** The shim's libcuda.so.1 is first; the libraries of CUDA that a sample links may be in a directory of the caller's. */
const libraryPath = (env: NodeJS.ProcessEnv): string =>
  [SHIM, env['LD_LIBRARY_PATH'] ?? ''].filter((part) => part !== '').join(':');

export async function runSample(sample: Sample, program: string, limit: number): Promise<Ran> {
  const scratch = scratchDirectory();
  const host = await startHost({
    listen: `unix:${scratch.path}/s`,
    args: Array(sample.gpus).fill(['--profile', PROFILE]).flat(),
  });
  const log = path.join(path.dirname(program), 'vgpu.log');
  rmSync(log, { force: true });
  const start = performance.now();
  let outcome: Outcome = { kind: 'passed' };
  try {
    for (const args of sample.runs) {
      const ended = await runOnce(
        program,
        args,
        { LD_LIBRARY_PATH: libraryPath(process.env), VGPU_HOST: host.address, VGPU_LOG: log },
        limit,
      );
      let told = '';
      try {
        told = readFileSync(log, 'utf8');
      } catch {
        // nothing was refused in the guest
      }
      outcome = judge(ended, { host: host.log(), guest: told }, limit);
      if (outcome.kind !== 'passed') break;
    }
  } finally {
    await host.stop();
    scratch.remove();
  }
  return { outcome, seconds: (performance.now() - start) / 1000 };
}
