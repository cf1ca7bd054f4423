// The linters as tests, so that one run of the test runner says all there is to say.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../..', import.meta.url));

/** What git has or would add: no build outputs, no caches. */
function files(): string[] {
  const listed = execFileSync(
    'git',
    ['-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    {
      cwd: repository,
      encoding: 'utf8',
    },
  );
  return listed.split('\0').filter((path) => path !== '' && existsSync(join(repository, path)));
}

function lint(command: string, args: readonly string[]): void {
  const ran = spawnSync(command, args, { cwd: repository, encoding: 'utf8' });
  assert.equal(ran.error, undefined);
  assert.equal(ran.status, 0, `${ran.stdout}${ran.stderr}`);
}

function missing(command: string): string | false {
  return spawnSync(command, ['--version']).error === undefined ? false : `${command} is not installed`;
}

const skip = existsSync(join(repository, '.git')) ? missing('git') : 'not a git checkout';

test('Biome has nothing to say about TypeScript and JSON', () => {
  lint(process.execPath, ['node_modules/@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '.']);
});

test('shellcheck has nothing to say about any shell script', { skip: skip || missing('shellcheck') }, () => {
  const scripts = files().filter((path) => {
    if (path.startsWith('test/fixtures/')) return false;
    const start = readFileSync(join(repository, path)).subarray(0, 64).toString('latin1');
    return /^#!\/(usr\/)?bin\/(env )?(ba|da)?sh\b/.test(start) || start.startsWith('# shellcheck shell=');
  });
  assert.ok(scripts.includes('scripts/test'), 'finds the scripts');
  lint('shellcheck', ['-x', ...scripts]);
});

test('clang-format would change no C file', { skip: skip || missing('clang-format') }, () => {
  const sources = files().filter(
    (path) => /^(shim-src|test)\/.*\.[ch]$/.test(path) && !path.includes('/generated/'),
  );
  assert.ok(sources.length > 10, 'finds the sources');
  lint('clang-format', ['--dry-run', '-Werror', '--style=file', ...sources]);
});
