/**
 * agent/systemd/ from the inside of a guest: runs one of its functions there and prints the result as JSON
 * lines. Started by test/guest/systemd.test.ts.
 */
import { VgpuError } from '../../../agent/lib/errors.js';
import { jsonLine } from '../../../agent/lib/json.js';
import { spawnRunner } from '../../../agent/lib/run-command.js';
import { openManager } from '../../../agent/systemd/bus.js';
import { journalReader } from '../../../agent/systemd/journal-reader.js';
import { journalWriter } from '../../../agent/systemd/journal-writer.js';
import { runProbe } from '../../../agent/systemd/run-in-unit.js';
import type { Manager } from '../../../agent/systemd/types.js';

const [task = '', ...args] = process.argv.slice(2);
const [first = '', second = '', third = ''] = args;
const stop = new AbortController();
process.on('SIGTERM', () => stop.abort());

function say(value: unknown): void {
  process.stdout.write(`${jsonLine(value)}\n`);
}

async function withManager(work: (manager: Manager) => Promise<unknown>): Promise<void> {
  const manager = await openManager();
  try {
    say(await work(manager));
  } finally {
    manager.close();
  }
}

const tasks: Readonly<Record<string, () => Promise<void>>> = {
  unit: () => withManager((manager) => manager.unit(first)),
  restart: () => withManager((manager) => manager.restart(first, Number(second))),
  'restart-all': () =>
    withManager((manager) => Promise.all(args.map((unit) => manager.restart(unit, 10_000)))),
  processes: () => withManager((manager) => manager.processes(first)),
  probe: () =>
    withManager(async (manager) => {
      const unit = await manager.unit(first);
      if (unit.kind !== 'loaded') return unit;
      const options = {
        program: second,
        timeoutMs: Number(third),
        signal: stop.signal,
        runner: spawnRunner(),
        manager,
      };
      return runProbe({ unit, ...options });
    }),
  tail: async () => say(await journalReader().tail(stop.signal)),
  read: async () => {
    const entries: unknown[] = [];
    const start = { unit: first, invocationId: second, signal: stop.signal };
    for await (const entry of journalReader().read(start)) entries.push(entry);
    say(entries);
  },
  follow: async () => {
    const reader = journalReader();
    const cursor = second === '' ? await reader.tail(stop.signal) : second;
    say({ following: cursor });
    for await (const entry of reader.follow({ unit: first, cursor, signal: stop.signal })) say(entry);
  },
  write: async () =>
    journalWriter().write({
      kind: 'uninstalled',
      profile: 'ollama',
      unit: first,
      text: 'vgpu uninstalled (3 changes)',
      fields: { CHANGES: 3 },
    }),
};

try {
  const run = tasks[task];
  if (run === undefined) throw new Error(`no task ${JSON.stringify(task)}`);
  await run();
} catch (error) {
  const { kind, message, remedy } =
    error instanceof VgpuError ? error : { kind: 'other', message: String(error), remedy: '' };
  say({ error: { kind, message, remedy } });
  process.exitCode = 1;
}
