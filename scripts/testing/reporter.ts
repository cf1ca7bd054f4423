/**
 * A reporter for node:test: writes the slowest files, the reasons for skipped tests and the closing line, and keeps
 * the times of all files in build/test-times.json; none of the times with VGPU_TEST_ONLY. scripts/test prints the text
 * after the runner's own output.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { runnerOf } from './rooms.js';

interface FileTimes {
  /** Wall time in seconds; null for a file whose end was not reported. */
  wall: number | null;
  /** Processor time in seconds, of the file's process, the children that it waited for, and its guests. */
  processor: number | null;
}

/** Files that the text lists. */
const listed = 20;
const root = path.resolve(import.meta.dirname, '../../..');

function usage(): ReadonlyMap<string, number> {
  const file = process.env['VGPU_TEST_USAGE'];
  if (file === undefined) return new Map();
  const seconds = new Map<string, number>();
  for (const row of readFileSync(file, 'utf8').trim().split('\n')) {
    const [name = '', more = '0'] = row.split('\t');
    const key = path.relative(root, name);
    seconds.set(key, (seconds.get(key) ?? 0) + Number(more));
  }
  return seconds;
}

/** Yields the whole text at the end of the run. */
// biome-ignore lint/style/noDefaultExport: node:test takes a reporter by its default export
export default async function* report(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  const reasons = new Map<string, number>();
  const failures: string[] = [];
  const files = new Map<string, FileTimes>();
  const began = performance.now();
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail' && type !== 'test:complete') continue;
    const file = data.file === undefined ? '' : path.relative(root, data.file);
    // The runner reports a file as a test that has the file's name.
    if (data.name === data.file || data.name === file) {
      files.set(file, { wall: data.details.duration_ms / 1000, processor: null });
    } else if (type === 'test:complete' || data.details.type === 'suite') {
      if (!files.has(runnerOf(file))) files.set(runnerOf(file), { wall: null, processor: null });
    } else if (data.skip !== undefined && data.skip !== false) {
      counts.skipped++;
      const reason = typeof data.skip === 'string' ? data.skip : 'no reason';
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    } else if (type === 'test:pass') {
      counts.passed++;
    } else {
      counts.failed++;
      const { error } = data.details;
      if (!('failureType' in error) || error.failureType !== 'subtestsFailed')
        failures.push(`${file}: ${data.name}`);
    }
  }
  for (const [file, seconds] of usage()) {
    const times = files.get(file) ?? { wall: null, processor: null };
    files.set(file, { ...times, processor: seconds });
  }
  const seconds = (performance.now() - began) / 1000;
  yield [
    // Part of a room would take the place of the whole room's times.
    ...(process.env['VGPU_TEST_ONLY'] === undefined ? keptTimes(files) : []),
    ...(reasons.size === 0 ? [] : ['', 'skipped:']),
    ...[...reasons].toSorted().map(([reason, count]) => `${String(count).padStart(5)}  ${reason}`),
    ...(failures.length === 0 ? [] : ['', 'failed:', ...failures.map((name) => `  ${name}`)]),
    '',
    `tests took ${Math.round(seconds)} s`,
    `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`,
    '',
  ].join('\n');
}

/** Keeps the times of all files; returns the table of the slowest. */
function keptTimes(files: ReadonlyMap<string, FileTimes>): readonly string[] {
  const sorted = [...files].toSorted(([, one], [, other]) => (other.wall ?? 0) - (one.wall ?? 0));
  writeFileSync(
    path.join(root, 'build/test-times.json'),
    `${JSON.stringify(Object.fromEntries(sorted), null, 1)}\n`,
  );
  const total = (pick: (times: FileTimes) => number | null): number =>
    sorted.reduce((sum, [, times]) => sum + (pick(times) ?? 0), 0);
  const row = (file: string, { wall, processor }: FileTimes): string =>
    `${cell(wall)} ${cell(processor)}  ${file.replace(/^dist\/test\//, '').replace(/\.js$/, '')}`;
  return [
    '',
    'seconds, seconds of processor, file (all: build/test-times.json)',
    ...sorted.slice(0, listed).map(([file, times]) => row(file, times)),
    row(`all ${sorted.length} files`, {
      wall: total(({ wall }) => wall),
      processor: total(({ processor }) => processor),
    }),
  ];
}

function cell(seconds: number | null): string {
  return (seconds === null ? '?' : seconds.toFixed(1)).padStart(7);
}
