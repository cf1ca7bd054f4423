// The linters as tests, so that one run of the test runner says all there is to say.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { prose, unknown, whyNoSpelling, words, wordsInUse, wordsOf } from './spelling.js';

const repository = fileURLToPath(new URL('../..', import.meta.url));

/** The files that git has or would add: no build outputs, no caches. */
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

test('the page for Cockpit has no type error', () => {
  lint(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'units/cockpit/types']);
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

// Words that a newcomer does not understand at once, and the words to write instead.
const IDIOMS: Readonly<Record<string, string>> = {
  whoever: 'the process that, a user who, the caller',
  anew: 'again',
  'of ours': 'of vgpu-agent, installed, of this library',
  mended: 'repaired, fixed',
  'the like': 'such as, similar',
  'nobody has': 'was not, no process has',
  'who asks': 'the caller',
  'at hand': 'current, available',
  'takes part': 'is used, is among',
  "of one's own": 'own, new',
  'not to be had': 'not available',
  'stands behind': 'follows, comes after',
  'stands in(?! for)': 'is in',
  'nobody (knows|asks|asked|wants|looked)': 'it is not known, no process, not requested, not inspected',
  'for ever': 'forever, without end, always',
  'heed\\w*': 'use, read, apply',
  'put right': 'repair',
  'by halves': 'in part',
  'is no news': 'is not reported again',
  'yours to edit': 'you may edit it',
  'stands (here|there) twice': 'is given twice',
  'whom none': 'a peer that no rule',
  'former rules hold': 'the former rules stay in force',
  'we made it': 'vgpu-agent made it',
  'somebody has': 'say who, or use the passive: is masked, was changed',
};

test('no text has an idiom that plain English does without', { skip }, () => {
  const found: string[] = [];
  const idioms = Object.entries(IDIOMS).map(([idiom, better]) => ({
    pattern: new RegExp(`\\b${idiom}\\b`),
    idiom,
    better,
  }));
  for (const path of files()) {
    // Logs of other programs, and this list.
    if (/^test\/fixtures\/|^test\/lint\.test\.ts$|^LICENSE$|package-lock\.json$|\.ptx$/.test(path)) continue;
    const text = readFileSync(join(repository, path), 'utf8').toLowerCase();
    for (const { pattern, idiom, better } of idioms) {
      if (!pattern.test(text)) continue;
      for (const [index, line] of text.split('\n').entries()) {
        if (pattern.test(line))
          found.push(`${path}:${index + 1}: "${idiom}" (${better}): ${line.trim().slice(0, 100)}`);
      }
    }
  }
  assert.deepEqual(found, []);
});

// "What install does" hides its subject; "The changes of install" begins with it.
const RIDDLE = /(?:\/\/|\/\*\*?|^\s*\*|(?:^|\s)#|<!--|"description": ")\s*(?:What|Who|Whom|Whose)\b/;

test('no comment begins with "What" or "Who"', { skip }, () => {
  const found: string[] = [];
  for (const path of files()) {
    if (/\.md$|^test\/fixtures\/|^LICENSE$|package-lock\.json$/.test(path)) continue;
    for (const [index, line] of readFileSync(join(repository, path), 'utf8').split('\n').entries())
      if (RIDDLE.test(line)) found.push(`${path}:${index + 1}: ${line.trim().slice(0, 100)}`);
  }
  assert.deepEqual(found, [], 'begin with the subject');
});

test('the pattern finds such a comment in every form, and no other word', () => {
  const forms = [
    '/* WORD it may do. */',
    'int a; /* WORD. */',
    '// WORD it is',
    '/** WORD.',
    ' * WORD asks',
    '# WORD',
  ];
  for (const word of ['What', 'Who', 'Whom', 'Whose'])
    for (const form of forms) assert.match(form.replace('WORD', word), RIDDLE);
  for (const word of ['Whether', 'Whole', 'The one who', 'what']) {
    for (const form of forms) assert.doesNotMatch(form.replace('WORD', word), RIDDLE);
  }
});

test('every word is spelt as the dictionary or test/words.txt has it', {
  skip: skip || whyNoSpelling,
}, () => {
  const where = wordsInUse();
  assert.ok(where.size > 3000, `finds the words: ${where.size}`);
  const bad = unknown(where.keys()).map((word) => `${where.get(word)}: "${word}"`);
  assert.deepEqual(bad, [], `correct it, or add a word that is right to ${words}`);
});

test('a misspelt word is found, and a name is none', { skip: whyNoSpelling }, () => {
  const text = '/** The hsot answers with libcuda.so.1, cuInit, VGPU_HOST and --jsno. */';
  assert.deepEqual(unknown(wordsOf(prose('agent/x.ts', text))), ['hsot']);
  assert.deepEqual(unknown(wordsOf(prose('x.md', 'Retreive it.\n```sh\nretreive\n```\n`cud`'))), [
    'Retreive',
  ]);
});

test('the list of words is sorted, each once', () => {
  const list = readFileSync(join(repository, words), 'utf8').trimEnd().split('\n');
  assert.deepEqual(list, [...new Set(list)].sort());
});

test('no entry of CHANGELOG.md is too wide for the changelog of the Debian packages', () => {
  // lintian allows 80 columns there, and an entry has two more than here.
  const lines = readFileSync(join(repository, 'CHANGELOG.md'), 'utf8').split('\n');
  const wide = lines.filter((line) => /^(- | {2})/.test(line) && line.length > 78);
  assert.deepEqual(wide, []);
});

test('scripts/testing/longest.txt names only test files that exist', () => {
  const names = readFileSync(join(repository, 'scripts/testing/longest.txt'), 'utf8').trim().split('\n');
  assert.deepEqual(
    names.filter((name) => !existsSync(join(repository, `${name}.test.ts`))),
    [],
  );
});
