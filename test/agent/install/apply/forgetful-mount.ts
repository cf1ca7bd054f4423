/** A file system that loses what was not synced when its power fails (test/shim/programs/forgetful), mounted by FUSE. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { accessSync, constants, existsSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { repository } from '../../../guest/support/repository.js';
import { scratch } from './world.js';

const program = `${repository}/build/shim/programs/forgetful_fs`;

/** Parts of the changes without fsync that survive: none, all names with half of the bytes, or the first names. */
export const keeps = ['nothing', 'names', 'some'] as const;

export class ForgetfulMount {
  /** Only this process and root see it: the mount is in a namespace of its program. */
  readonly directory: string;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #answers: AsyncIterator<string>;
  readonly #below: string;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>, below: string) {
    this.#child = child;
    this.#below = below;
    this.directory = `/proc/${child.pid}/root${below}`;
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  static async start(): Promise<ForgetfulMount> {
    const below = mkdtempSync(path.join(scratch, 'vgpu-forgetful-'));
    const child = spawn(program, [below], { stdio: ['pipe', 'pipe', 'inherit'] });
    const mount = new ForgetfulMount(child, below);
    await mount.#answer('mounted');
    return mount;
  }

  /** Everything is on the disk. */
  async settle(): Promise<void> {
    await this.#tell('settle', 'settled');
  }

  /** The power fails in the `at`-th fsync from now; 0: never. */
  async cut(at: number, keep: (typeof keeps)[number], seed: number): Promise<void> {
    await this.#tell(`cut ${at} ${keeps.indexOf(keep)} ${seed}`, 'armed');
  }

  /** The power is back; answers how often fsync was called since `cut`. */
  async on(): Promise<number> {
    return Number(await this.#tell('on'));
  }

  stop(): void {
    this.#child.stdin.end();
    rmSync(this.#below, { recursive: true, force: true });
  }

  async #tell(command: string, expected?: string): Promise<string> {
    this.#child.stdin.write(`${command}\n`);
    return this.#answer(expected);
  }

  async #answer(expected?: string): Promise<string> {
    const { value, done } = await this.#answers.next();
    if (done === true || (expected !== undefined && value !== expected)) {
      throw new Error(`forgetful_fs said ${done === true ? 'nothing' : value}`);
    }
    return value;
  }
}

export function whyNoForgetfulMount(): string | false {
  if (process.getuid?.() !== 0) return 'a mount needs root';
  if (!existsSync(program)) return `${program} is not built`;
  try {
    accessSync('/dev/fuse', constants.R_OK | constants.W_OK);
    return false;
  } catch {
    return 'there is no /dev/fuse';
  }
}
