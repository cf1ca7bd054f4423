/** Runs a built sample through the shim on a simulated device of its own and judges how it ended. */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { SHIM, scratchDirectory, startHost } from '../../shim_host.js';
import type { Sample } from './sample.js';

export type Outcome =
  /** It ended with 0 and said of nothing that it failed. */
  | { readonly kind: 'passed' }
  /** It says itself that this machine is not one for it. */
  | { readonly kind: 'waived'; readonly why: string }
  /** The shim or the device told it that something is not supported. */
  | { readonly kind: 'refused'; readonly why: string }
  | { readonly kind: 'failed'; readonly why: string };

export interface Ran {
  readonly outcome: Outcome;
  readonly seconds: number;
}

/** Exit status of NVIDIA's samples for "not on this machine": EXIT_WAIVED of their helper_cuda.h. */
const WAIVED = 2;

interface Ended {
  readonly status: number | null;
  readonly text: string;
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

const lastLine = (text: string): string => (text.trim().split('\n').at(-1) ?? '').slice(0, 200);

function judge(ended: Ended, refusals: string, limit: number): Outcome {
  const failed = /^.*\b(?:FAIL|FAILED|FAILURE)\b.*$/m.exec(ended.text)?.[0];
  if (ended.status === 0 && failed === undefined) return { kind: 'passed' };
  const named = /^.*not supported.*$/m.exec(refusals)?.[0];
  if (named !== undefined) return { kind: 'refused', why: named.replace(/^.*?: /, '').slice(0, 200) };
  if (ended.status === WAIVED) return { kind: 'waived', why: lastLine(ended.text) };
  const error = /^.*(?:CUDA error|error).*$/im.exec(ended.text)?.[0];
  if (ended.status === null)
    return { kind: 'failed', why: `killed or not done after ${limit / 1000} s; ${lastLine(ended.text)}` };
  return {
    kind: 'failed',
    why: `status ${ended.status}: ${(failed ?? error ?? lastLine(ended.text)).slice(0, 200)}`,
  };
}

export async function runSample(sample: Sample, program: string, limit: number): Promise<Ran> {
  const scratch = scratchDirectory();
  const host = await startHost({ listen: `unix:${scratch.path}/s` });
  const log = path.join(path.dirname(program), 'vgpu.log');
  rmSync(log, { force: true });
  const start = performance.now();
  let outcome: Outcome = { kind: 'passed' };
  try {
    for (const args of sample.runs) {
      const ended = await runOnce(
        program,
        args,
        { LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address, VGPU_LOG: log },
        limit,
      );
      let told = '';
      try {
        told = readFileSync(log, 'utf8');
      } catch {
        // nothing was refused in the guest
      }
      outcome = judge(ended, `${host.log()}\n${told}`, limit);
      if (outcome.kind !== 'passed') break;
    }
  } finally {
    await host.stop();
    scratch.remove();
  }
  return { outcome, seconds: (performance.now() - start) / 1000 };
}
