// The benchmark runs and says what it measured; what the numbers are is no test's business.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoStandIn } from './support/consumer.js';
import { whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { run } from './support/process.js';
import { repository } from './support/repository.js';

const BENCH = join(repository, 'dist/test/bench/main.js');
const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();

function bench(...args: readonly string[]): ReturnType<typeof run> {
  return run(process.execPath, [BENCH, ...args]);
}

test('the benchmark measures one entry and prints one JSON document', { skip }, async () => {
  const ran = await bench('--runs', '1', '--only', 'nothing-to-do', '--json');
  assert.equal(ran.code, 0, ran.stderr);
  const document = JSON.parse(ran.stdout);
  assert.equal(document.schema, 1);
  assert.equal(document.simulated, true);
  assert.ok(document.machine.cores >= 1);
  assert.equal(document.entries.length, 1);
  const [entry] = document.entries;
  assert.deepEqual([entry.name, entry.runs], ['nothing-to-do', 1]);
  const [{ subject, beside }] = entry.comparisons;
  assert.equal(subject.samples.length, 1);
  assert.ok(subject.median > 0);
  assert.equal(beside.length, 2);
  for (const other of beside) {
    assert.ok(Math.abs(other.ratio.median - subject.median / other.median) < 1e-9, other.name);
  }
});

test('the benchmark prints a table that says that the GPU is simulated', { skip }, async () => {
  const ran = await bench('--runs', '1', '--only', 'shim-start');
  assert.equal(ran.code, 0, ran.stderr);
  assert.match(ran.stdout, /The GPU is SIMULATED/);
  assert.match(ran.stdout, /^ {4}vgpu-probe --json {2,}[\d.]+ us/m);
  for (const line of ran.stdout.split('\n')) assert.ok(line.length <= 80, line);
});

const fetched = existsSync(join(repository, '.cache/roots/pocl/.complete'));

test('the benchmark measures the same kernels by PoCL', {
  skip: skip || (fetched ? false : 'run scripts/fetch-packages pocl'),
}, async () => {
  const ran = await bench('--runs', '1', '--only', 'peer');
  assert.equal(ran.code, 0, ran.stderr);
  assert.equal(ran.stdout.match(/^ {4}PoCL, one core {2,}[\d.]+ (ms|M\/s)/gm)?.length, 3, ran.stdout);
});

test('the benchmark leaves out PoCL where it is not fetched, and says how to fetch it', {
  skip: skip || (fetched ? 'PoCL is fetched' : false),
}, async () => {
  const ran = await bench('--runs', '1', '--only', 'peer');
  assert.equal(ran.code, 0, ran.stderr);
  assert.match(ran.stderr, /^bench: peer is left out: run scripts\/fetch-packages pocl$/m);
});

test('the benchmark tells a mistake in one line, with status 2', async () => {
  for (const args of [['--only', 'speed'], ['--runs', '0'], ['--runs', 'x'], ['--fast']]) {
    const ran = await bench(...args);
    assert.equal(ran.code, 2, args.join(' '));
    assert.match(ran.stderr, /^bench: [^\n]+\n$/, args.join(' '));
  }
});
