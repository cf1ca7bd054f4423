/** The archive of a report: what is in it, who may read it, what it never does. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { writeTarball } from '../../../../agent/cli/report/tarball.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';

const files = [
  { name: 'doctor.txt', what: 'findings', text: 'all is well\n' },
  { name: 'facts.json', what: 'facts', text: '{}\n' },
];

function scratch(context: TestContext): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'tarball-test-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test('has every file under vgpu-report, and its owner alone may read it', async (context) => {
  const file = path.join(scratch(context), 'report.tar.gz');
  const runner = spawnRunner();
  await writeTarball(runner, file, files);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const listed = await runner.run('tar', ['--list', '--verbose', '--numeric-owner', `--file=${file}`]);
  assert.match(listed.stdout.toString('utf8'), /^-rw------- 0\/0 +12 .* vgpu-report\/doctor\.txt$/m);
  const text = await runner.run('tar', ['--extract', '--to-stdout', `--file=${file}`]);
  assert.equal(text.stdout.toString('utf8'), 'all is well\n{}\n');
});

test('is never written over an existing file', async (context) => {
  const file = path.join(scratch(context), 'mine');
  writeFileSync(file, 'mine');
  await assert.rejects(writeTarball(spawnRunner(), file, files), /is there already/);
  assert.equal(readFileSync(file, 'utf8'), 'mine');
});

test('leaves nothing behind when tar fails', async (context) => {
  const directory = scratch(context);
  const runner = spawnRunner();
  const before = process.env['TMPDIR'];
  process.env['TMPDIR'] = directory;
  context.after(() => {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  });
  const failing: typeof runner = { run: () => runner.run('false', []) };
  await assert.rejects(
    writeTarball(failing, path.join(directory, 'report.tar.gz'), files),
    /cannot write the report/,
  );
  assert.deepEqual(readdirSync(directory), []);
});
