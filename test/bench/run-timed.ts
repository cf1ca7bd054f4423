// Running a program for its time, in the guest.

import { spawnSync } from 'node:child_process';

const limitMs = 120_000;

export interface Timed {
  readonly milliseconds: number;
  readonly stdout: string;
}

/** From before the fork to the collected exit status. A status other than 0 throws with what the program said. */
export function runTimed(
  command: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Timed {
  const begun = performance.now();
  const ran = spawnSync(command, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    timeout: limitMs,
  });
  const milliseconds = performance.now() - begun;
  if (ran.error !== undefined) throw ran.error;
  if (ran.status !== 0) {
    const how = ran.status ?? ran.signal;
    throw new Error(`${[command, ...args].join(' ')}: ended with ${how}\n${ran.stdout}${ran.stderr}`);
  }
  return { milliseconds, stdout: ran.stdout };
}

/** The agent as it is installed. */
export function agent(...args: readonly string[]): Timed {
  return runTimed('vgpu-agent', args);
}
