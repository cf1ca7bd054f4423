/** The built vgpu-hostd with a software device, for tests of what the guest's programs see. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { access, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT } from '../cuda/private_programs.js';

/** The output of scripts/build-shim. */
export const SHIM = path.join(ROOT, 'build', 'shim');

export interface Hostd {
  readonly process: ChildProcess;
  /** Environment of a guest program that is to use this host through the built libraries. */
  readonly env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

async function exists(file: string): Promise<boolean> {
  try {
    await access(file);
    return true;
  } catch {
    return false;
  }
}

/** Starts vgpu-hostd on a new socket and waits until it serves. If it does not, throws with its output. */
export async function startHostd(args: readonly string[] = []): Promise<Hostd> {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'hostd-'));
  const socket = path.join(scratch, 'hostd.sock');
  const child = spawn(
    path.join(SHIM, 'vgpu-hostd'),
    ['--device', 'software', '--listen', `unix:${socket}`, ...args],
    { stdio: ['ignore', 'ignore', 'pipe'], cwd: ROOT },
  );
  let words = '';
  child.stderr?.on('data', (data: Buffer) => {
    words += data.toString();
  });
  // The socket file exists before vgpu-hostd listens.
  for (let waited = 0; !words.includes('device 0: '); waited += 20) {
    if (child.exitCode !== null || waited > 60_000) throw new Error(`vgpu-hostd does not listen: ${words}`);
    await sleep(20);
  }
  return {
    process: child,
    env: { VGPU_HOST: `unix:${socket}`, LD_LIBRARY_PATH: SHIM, CUDA_VISIBLE_DEVICES: '0,1,2,3' },
    stop: async () => {
      if (child.exitCode === null && child.signalCode === null) {
        const ended = once(child, 'exit');
        child.kill('SIGCONT');
        child.kill('SIGTERM');
        await Promise.race([ended, sleep(2000)]);
        child.kill('SIGKILL');
      }
      await rm(scratch, { recursive: true, force: true });
    },
  };
}

/** A file of the packages that scripts/fetch-packages unpacks, or why it is not there. */
export async function fetched(group: string, file: string): Promise<{ path: string; skip: string | false }> {
  const full = path.join(ROOT, '.cache', 'roots', group, file);
  const there = await exists(full);
  return { path: full, skip: there ? false : `run scripts/fetch-packages ${group}: ${file} is not there` };
}
