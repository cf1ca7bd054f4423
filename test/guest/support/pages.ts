/**
 * Run inside a guest, as root, with process IDs: prints the megabytes that these processes have in memory together. Each
 * page counts once; a sum of their RSS would count the C library once for each process.
 */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';

const pageBytes = 4096;
/** Of an entry of proc_pid_pagemap(5): in memory, and its frame. */
const present = 1n << 63n;
const frameBits = (1n << 55n) - 1n;

const frames = new Set<bigint>();
for (const pid of process.argv.slice(2)) {
  const pagemap = openSync(`/proc/${pid}/pagemap`, 'r');
  for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
    const [, from, to, mode] = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/.exec(line) ?? [];
    if (from === undefined || to === undefined || mode?.startsWith('---') === true || line.includes('[v')) {
      continue;
    }
    const begin = Number.parseInt(from, 16) / pageBytes;
    const entries = Buffer.alloc((Number.parseInt(to, 16) / pageBytes - begin) * 8);
    const count = readSync(pagemap, entries, 0, entries.length, begin * 8);
    for (let at = 0; at + 8 <= count; at += 8) {
      const entry = entries.readBigUInt64LE(at);
      if ((entry & present) !== 0n) frames.add(entry & frameBits);
    }
  }
  closeSync(pagemap);
}
// Without the right to see frames every page would be frame 0.
if (frames.size < 100) throw new Error(`only ${frames.size} frames are seen`);
process.stdout.write(`${(frames.size * pageBytes) / 1024 / 1024}\n`);
