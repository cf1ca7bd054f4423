/** Judges how a sample ended: by what it says itself, and by what the shim and the simulated device refused. */

export type Outcome =
  /** It ended with 0, said of nothing that it failed, and all of its kernels were run. */
  | { readonly kind: 'passed' }
  /** It says itself that this machine is not one for it. */
  | { readonly kind: 'waived'; readonly why: string }
  /** The shim or the device told it that something is not supported. */
  | { readonly kind: 'refused'; readonly why: string }
  | { readonly kind: 'failed'; readonly why: string };

export interface Ended {
  /** null: a signal ended it. */
  readonly status: number | null;
  readonly text: string;
}

export interface Logs {
  readonly host: string;
  readonly guest: string;
}

/** Exit status of NVIDIA's samples for "not on this machine": EXIT_WAIVED of their helper_cuda.h. */
const WAIVED = 2;

const lastLine = (text: string): string => (text.trim().split('\n').at(-1) ?? '').slice(0, 200);

const shortened = (line: string): string => line.replace(/^.*?: /, '').slice(0, 200);

/**
 * A kernel that was refused is named before all else. It is the cause of what follows, and some samples do not look at
 * their results: without a single kernel of theirs run, conjugateGradient prints an error of 1 and ends with 0.
 */
export function judge(ended: Ended, logs: Logs, limit: number): Outcome {
  const kernel = /kernel (\S+) (cannot be run here: .*)$/m.exec(logs.host);
  if (kernel !== null)
    return { kind: 'refused', why: `kernel ${kernel[1]?.slice(0, 60)} ${kernel[2]?.slice(0, 140)}` };
  const failed = /^.*\b(?:FAIL|FAILED|FAILURE)\b.*$/m.exec(ended.text)?.[0];
  if (ended.status === 0 && failed === undefined) return { kind: 'passed' };
  const named = /^.*not supported.*$/m.exec(`${logs.host}\n${logs.guest}`)?.[0];
  if (named !== undefined) return { kind: 'refused', why: shortened(named) };
  if (ended.status === WAIVED) return { kind: 'waived', why: lastLine(ended.text) };
  const error = /^.*(?:CUDA error|error).*$/im.exec(ended.text)?.[0];
  if (ended.status === null)
    return { kind: 'failed', why: `killed or not done after ${limit / 1000} s; ${lastLine(ended.text)}` };
  return {
    kind: 'failed',
    why: `status ${ended.status}: ${(failed ?? error ?? lastLine(ended.text)).slice(0, 200)}`,
  };
}
