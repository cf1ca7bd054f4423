// Tests interrupt the agent at a checkpoint of apply/ (at-checkpoint.ts).

import { join } from 'node:path';
import type { Guest } from './guest.js';
import type { Ran } from './process.js';
import { repository } from './repository.js';

export type Interference =
  | { readonly kind: 'kill' }
  /** The agent waits until the file exists. `<file>.reached` appears when the wait begins. */
  | { readonly kind: 'pause'; readonly until: string }
  /** A command in the guest. The agent continues when the command has ended. */
  | { readonly kind: 'run'; readonly command: string };

/** The environment for an action at the n-th checkpoint, counted from 1. */
export function atCheckpoint(n: number, what: Interference): Readonly<Record<string, string>> {
  return { ...preload, VGPU_TEST_AT: String(n), VGPU_TEST_DO: verb(what) };
}

/** Runs the agent to its end and returns the names of all checkpoints. */
export async function checkpointsOf(guest: Guest, ...args: readonly string[]): Promise<readonly string[]> {
  const trace = '/tmp/checkpoints';
  await guest.must('rm', '-f', trace);
  const ran = await guest.runWith({ env: { ...preload, VGPU_TEST_TRACE: trace } }, 'vgpu-agent', ...args);
  if (ran.code !== 0) throw new Error(`vgpu-agent ${args.join(' ')}: exit status ${ran.code}\n${ran.stderr}`);
  return (await guest.read(trace)).trimEnd().split('\n');
}

/** Runs the agent and kills it with SIGKILL right after its n-th checkpoint. */
export async function killedAt(guest: Guest, n: number, ...args: readonly string[]): Promise<Ran> {
  return guest.runWith({ env: atCheckpoint(n, { kind: 'kill' }) }, 'vgpu-agent', ...args);
}

const preload = {
  NODE_OPTIONS: `--import=${join(repository, 'dist/test/guest/support/at-checkpoint.js')}`,
};

function verb(what: Interference): string {
  switch (what.kind) {
    case 'kill':
      return 'kill';
    case 'pause':
      return `pause:${what.until}`;
    case 'run':
      return `run:${what.command}`;
  }
}
