/**
 * Runs test files in the given order: "node --test" would sort them by name. For scripts/test:
 *
 *   node run.js SUMMARY FILE... with VGPU_TEST_LANES, VGPU_TEST_TIMEOUT_MS and VGPU_TEST_NAMES (a regular expression)
 *
 * Prints what the spec reporter prints, and writes SUMMARY (reporter.ts). Exit status 1 if a test failed.
 */
import { createWriteStream } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { finished } from 'node:stream/promises';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import report from './reporter.js';
import { writeRooms } from './rooms.js';

const [, , summary = '', ...files] = process.argv;
const { VGPU_TEST_LANES, VGPU_TEST_TIMEOUT_MS, VGPU_TEST_NAMES } = process.env;
const tests = run({
  files: [...writeRooms(files.map((file) => path.resolve(file)))],
  concurrency: Number(VGPU_TEST_LANES ?? availableParallelism()),
  ...(VGPU_TEST_TIMEOUT_MS === undefined ? {} : { timeout: Number(VGPU_TEST_TIMEOUT_MS) }),
  ...(VGPU_TEST_NAMES === undefined ? {} : { testNamePatterns: [new RegExp(VGPU_TEST_NAMES)] }),
});
tests.on('test:fail', ({ todo }) => {
  if (todo === undefined || todo === false) process.exitCode = 1;
});
const written = createWriteStream(summary);
tests.compose(new spec()).pipe(process.stdout);
tests.compose(report).pipe(written);
await finished(written);
