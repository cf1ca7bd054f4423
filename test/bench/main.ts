// npm run bench: boots a guest, measures in it, prints. What the numbers mean: docs/reference/benchmarks.md.

import { realOllama, whyNoConsumer } from '../guest/support/consumer.js';
import { Guest, whyNoGuest } from '../guest/support/guest.js';
import { whyNoHostd } from '../guest/support/hosts.js';
import { buildProgram } from './build-program.js';
import { entries } from './entries/all.js';
import { type MachineFacts, machineFacts } from './machine.js';
import type { Comparison, Entry } from './measure.js';
import { type Options, parseOptions, usage } from './options.js';
import { repository } from './paths.js';
import { benchDocument, type Measured, machineText, measuredText } from './report.js';

const entryLimitMs = 10 * 60_000;

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

async function main(argv: readonly string[]): Promise<number> {
  let options: Options;
  try {
    options = parseOptions(argv, entries);
  } catch (error) {
    say(`bench: ${messageOf(error)}`);
    return 2;
  }
  if (options.help) {
    print(usage(entries));
    return 0;
  }
  const inGuest = options.chosen.some((entry) => entry.outside !== true);
  const why = inGuest && (whyNoGuest() || whyNoHostd() || whyNoConsumer() || whyNotThisConsumer());
  if (why !== false) {
    say(`bench: ${why}`);
    return 6;
  }
  try {
    await bench(options);
    return 0;
  } catch (error) {
    say(`bench: ${messageOf(error)}`);
    return 1;
  }
}

/** One entry needs a consumer that waits before it looks for GPUs, as only the stand-in can. */
function whyNotThisConsumer(): string | false {
  return realOllama() === undefined ? false : 'it measures with the stand-in: unset VGPU_TEST_OLLAMA';
}

async function bench({ chosen, runs, json }: Options): Promise<void> {
  const date = new Date();
  const machine = machineFacts();
  if (!json) print(heading(date, machine));
  await buildProgram();
  const measured: Measured[] = [];
  const guest = chosen.some((entry) => entry.outside !== true) ? await startGuest() : null;
  try {
    for (const entry of chosen) {
      if (entry.missing !== undefined && entry.missing !== false) {
        say(`bench: ${entry.name} is left out: ${entry.missing}`);
        continue;
      }
      if (json) say(`bench: ${entry.name}`);
      const one = await measure(entry.outside === true ? null : guest, entry, runs ?? entry.runs);
      measured.push(one);
      if (!json) print(`\n${measuredText(one)}`);
    }
  } finally {
    await guest?.stop();
  }
  if (json) print(JSON.stringify(benchDocument(date, machine, measured), null, 2));
}

function heading(date: Date, machine: MachineFacts): string {
  return `vgpu-agent benchmark, ${date.toISOString().slice(0, 10)}\n${machineText(machine)}`;
}

async function startGuest(): Promise<Guest> {
  const guest = await Guest.start();
  try {
    await guest.hosts.start();
    await guest.installConsumer(3);
    return guest;
  } catch (error) {
    await guest.stop();
    throw error;
  }
}

/** In the guest, or, with null, here. */
async function measure(guest: Guest | null, entry: Entry, runs: number): Promise<Measured> {
  const begun = performance.now();
  const comparisons = guest === null ? await entry.measure(runs) : await measureInside(guest, entry, runs);
  return { entry, runs, seconds: (performance.now() - begun) / 1000, comparisons };
}

async function measureInside(guest: Guest, entry: Entry, runs: number): Promise<readonly Comparison[]> {
  const inside = `${repository}/dist/test/bench/inside.js`;
  const ran = await guest.runWith({ timeoutMs: entryLimitMs }, 'node', inside, entry.name, String(runs));
  if (ran.code !== 0) throw new Error(`${entry.name}: ended with ${ran.code}\n${ran.stdout}${ran.stderr}`);
  // Our own program of the same build wrote it.
  return JSON.parse(ran.stdout) as readonly Comparison[];
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

process.exitCode = await main(process.argv.slice(2));
