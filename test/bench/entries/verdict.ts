// From the line in the journal that says which device the consumer uses, to the verdict on standard output.

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { agent, runTimed } from '../run-timed.js';

/** Long enough for `verify` to have looked at everything else, its probe included, and to wait for the line only. */
const delayMs = 2_000;
const lineLimitMs = 20_000;
const announcement = 'msg="inference compute"';
const dropIn = '/etc/systemd/system/ollama.service.d/10-bench.conf';

export const verdict: Entry = {
  name: 'verdict',
  what: "from the consumer's line in the journal to the verdict",
  runs: 8,
  measure,
};

async function measure(runs: number): Promise<readonly Comparison[]> {
  agent('install', '--yes', '--quiet');
  slowDown(delayMs);
  const waiting = await together('the line comes while verify waits for nothing else', runs, async () => {
    runTimed('systemctl', ['restart', 'ollama']);
    return ['verify', '--json'];
  });
  rmSync(dropIn);
  agent('uninstall', '--yes', '--quiet');
  const installing = await together('the line comes right after the restart, by install', runs, async () => {
    const before = cursor();
    agent('uninstall', '--yes', '--no-restart', '--quiet');
    runTimed('systemctl', ['restart', 'ollama']);
    // A line of this start must not be taken for one of the next start.
    await whenLogged(before);
    return ['install', '--yes', '--json'];
  });
  agent('uninstall', '--yes', '--quiet');
  return [waiting, installing];
}

/** The stand-in waits before it looks for GPUs. */
function slowDown(milliseconds: number): void {
  mkdirSync('/etc/systemd/system/ollama.service.d', { recursive: true });
  writeFileSync(dropIn, `[Service]\nEnvironment=STANDIN_DELAY_MS=${milliseconds}\n`);
  runTimed('systemctl', ['daemon-reload']);
}

/** Both watch for the same line of the same start; `prepare` gives the agent's arguments. */
function together(
  title: string,
  runs: number,
  prepare: () => Promise<readonly string[]>,
): Promise<Comparison> {
  let grepMs = 0;
  return inTurn(title, runs, [
    {
      name: 'vgpu-agent, to its verdict',
      unit: 'ms',
      once: async () => {
        const args = await prepare();
        const before = cursor();
        const grep = spawn(
          'bash',
          ['-c', `journalctl -f -n 0 -o cat -u ollama | grep -m 1 --line-buffered '${announcement}'`],
          { stdio: ['ignore', 'pipe', 'inherit'], detached: true },
        );
        const watching = spawn('vgpu-agent', args, { stdio: ['ignore', 'pipe', 'pipe'] });
        const [grepAt, verdictAt] = await Promise.all([firstOutput(grep), outcome(watching)]);
        end(grep);
        const lineAt = await whenLogged(before);
        grepMs = grepAt - lineAt;
        if (!(grepMs > 0)) throw new Error('a line was seen before it was logged');
        return verdictAt - lineAt;
      },
    },
    { name: 'journalctl -f | grep -m 1', unit: 'ms', once: () => grepMs },
  ]);
}

/** The kernel's monotonic clock, which journald notes too: it is never set. */
function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

function cursor(): string {
  return runTimed('journalctl', ['-n', '1', '-q', '-o', 'json', '--output-fields=_PID']).stdout;
}

function field(entry: string, name: string): string {
  const value: unknown = Object.getOwnPropertyDescriptor(JSON.parse(entry), name)?.value;
  if (typeof value !== 'string') throw new Error(`no ${name} in the journal entry ${entry}`);
  return value;
}

/** When journald received the announcement that came after `before`. */
async function whenLogged(before: string): Promise<number> {
  const args = [`--after-cursor=${field(before, '__CURSOR')}`, '-q', '-u', 'ollama', '-o', 'json'];
  for (const deadline = monotonicMs() + lineLimitMs; monotonicMs() < deadline; await sleep(20)) {
    const entries = runTimed('journalctl', args).stdout.split('\n');
    const announced = entries.find((entry) => entry !== '' && field(entry, 'MESSAGE').includes(announcement));
    if (announced !== undefined) return Number(field(announced, '__MONOTONIC_TIMESTAMP')) / 1000;
  }
  throw new Error('the consumer did not say which device it uses');
}

function firstOutput(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.stdout?.once('data', () => resolve(monotonicMs()));
    child.once('error', reject);
    child.once('close', (code) => reject(new Error(`journalctl | grep ended with ${code} and saw nothing`)));
  });
}

/** When the verdict came; a status other than 0 (the verdict is not GPU) throws. */
async function outcome(child: ChildProcess): Promise<number> {
  let at = 0;
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  child.stdout?.on('data', (chunk: Buffer) => {
    at = monotonicMs();
    said += chunk.toString();
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  if (code !== 0 || at === 0) throw new Error(`vgpu-agent ended with ${code}:\n${said}`);
  return at;
}

/** The pipeline as a whole: journalctl would go on until it writes a line that has no reader. */
function end(pipeline: ChildProcess): void {
  if (pipeline.pid === undefined) return;
  try {
    process.kill(-pipeline.pid, 'SIGKILL');
  } catch {
    // It has ended by itself.
  }
}
