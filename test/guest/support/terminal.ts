// A terminal in tests: tmux draws what a person would see, of a program that runs in a guest.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Afterwards, Guest } from './guest.js';
import { run, runOk, until } from './process.js';
import { repository } from './repository.js';

/** Why there is no terminal to test with, or false; for the `skip` option of a test. */
export async function whyNoTerminal(): Promise<string | false> {
  return run('tmux', ['-V']).then(
    ({ code }) => (code === 0 ? false : 'tmux does not work here'),
    () => 'tmux is not installed',
  );
}

/** The file to which the newest terminal of a guest writes its name. */
const ttyFile = '/run/terminal-tty';

/** One pane of 80 columns, whose program runs in the guest. */
export class Terminal {
  readonly #tmux: readonly string[];
  readonly #guest: Guest;

  private constructor(tmux: readonly string[], guest: Guest) {
    this.#tmux = tmux;
    this.#guest = guest;
  }

  /** Starts `command` (a shell's line) in the guest on a terminal of its own; it is closed after `t`. */
  static async start(guest: Guest, command: string, t: Afterwards, columns = 80): Promise<Terminal> {
    const directory = mkdtempSync(join(tmpdir(), 'vgpu-tmux-'));
    const tmux = ['-S', join(directory, 'socket'), '-f', '/dev/null'];
    t.after(async () => {
      await run('tmux', [...tmux, 'kill-server']);
      rmSync(directory, { recursive: true });
    });
    // nsenter gives the program no controlling terminal of the guest: script makes one there.
    const inside = `trap : INT; tty >${ttyFile}; stty cols ${columns} rows 50; ${command}; echo "exit status $?"; sleep 60`;
    const line = [
      join(repository, 'scripts/guest'),
      ...['run', guest.name, '--', 'env', 'TERM=tmux-256color', 'script', '-qec', inside, '/dev/null'],
    ];
    await runOk('tmux', [
      ...tmux,
      ...['new-session', '-d', '-x', String(columns), '-y', '50', ...line, ';'],
      ...['set-option', 'history-limit', '5000'],
    ]);
    return new Terminal(tmux, guest);
  }

  /** The text on the screen and above it. A line that the terminal wrapped is one line. */
  async lines(): Promise<readonly string[]> {
    const { stdout } = await runOk('tmux', [...this.#tmux, 'capture-pane', '-p', '-J', '-S', '-5000']);
    return stdout
      .replace(/\s+$/, '')
      .split('\n')
      .map((line) => line.trimEnd());
  }

  /** Waits until the text matches, and returns it. */
  async shows(pattern: RegExp, timeoutMs = 60_000): Promise<string> {
    let seen = '';
    try {
      return await until(`the terminal shows ${pattern}`, timeoutMs, async () => {
        seen = (await this.lines()).join('\n');
        return pattern.test(seen) ? seen : undefined;
      });
    } catch (error) {
      throw new Error(`${error instanceof Error ? error.message : String(error)}; it shows:\n${seen}`);
    }
  }

  /** Types keys, by tmux's names: `y`, `Enter`, `C-c`. */
  async type(...keys: readonly string[]): Promise<void> {
    await runOk('tmux', [...this.#tmux, 'send-keys', ...keys]);
  }

  /** Resizes the newest terminal of the guest, as a person resizes a window. */
  async resize(columns: number): Promise<void> {
    await runOk('tmux', [...this.#tmux, 'resize-window', '-x', String(columns), '-y', '50']);
    const tty = (await this.#guest.read(ttyFile)).trim();
    await this.#guest.must('stty', '-F', tty, 'cols', String(columns));
  }

  /** Like `lines`, with the escape sequences of the colours. */
  async painted(): Promise<string> {
    return (await runOk('tmux', [...this.#tmux, 'capture-pane', '-e', '-p', '-S', '-5000'])).stdout;
  }

  /** Waits for the end of the command. Returns its exit status and the text on the terminal. */
  async end(timeoutMs = 60_000): Promise<{ readonly code: number; readonly text: string }> {
    const text = await this.shows(/^exit status \d+$/m, timeoutMs);
    return { code: Number(/^exit status (\d+)$/m.exec(text)?.[1]), text };
  }
}
