// The documents as a reader meets them: every link leads somewhere, man pages are well formed.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { shellBlocks } from './pages.js';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const skip =
  existsSync(join(repository, '.git')) && spawnSync('git', ['--version']).error === undefined
    ? false
    : 'not a git checkout, or no git';

/** The files that git has or would add whose path ends in one of `endings`. */
function files(...endings: readonly string[]): string[] {
  const listed = execFileSync(
    'git',
    ['-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
    { cwd: repository, encoding: 'utf8' },
  );
  return listed
    .split('\0')
    .filter((path) => endings.some((ending) => path.endsWith(ending)) && existsSync(join(repository, path)));
}

/** A document without its code, where brackets mean something else. */
function prose(text: string): string {
  return text.replaceAll(/^```[\s\S]*?^```/gmu, '').replaceAll(/`[^`\n]*`/gu, '``');
}

/** The fragment that GitHub gives a heading. */
function fragment(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
}

/** The anchors that a link of a document may name after its #. */
function fragments(path: string): Set<string> {
  const text = readFileSync(join(repository, path), 'utf8').replaceAll(/^```[\s\S]*?^```/gmu, '');
  return new Set([...text.matchAll(/^#+ +(.*?) *$/gmu)].map((match) => fragment(match[1] ?? '')));
}

test('every relative link of a document refers to a file, and its fragment to a heading', { skip }, () => {
  const documents = files('.md');
  assert.ok(documents.includes('README.md'), 'finds the documents');
  const dead: string[] = [];
  for (const document of documents) {
    for (const match of prose(readFileSync(join(repository, document), 'utf8')).matchAll(
      /\]\(([^)\s]+)\)/gu,
    )) {
      const target = match[1] ?? '';
      if (/^[a-z]+:/u.test(target)) continue;
      const [path = '', name] = target.split('#');
      const file = path === '' ? document : normalize(join(dirname(document), path));
      if (!existsSync(join(repository, file))) dead.push(`${document}: ${target}: no such file`);
      else if (name !== undefined && file.endsWith('.md') && !fragments(file).has(name)) {
        dead.push(`${document}: ${target}: ${file} has no heading "${name}"`);
      }
    }
  }
  assert.deepEqual(dead, []);
});

/** Text of the repository's files, without logs of other programs and what is no text. */
function* texts(): Generator<readonly [path: string, text: string]> {
  for (const path of files('')) {
    if (/^test\/(fixtures\/|consumer\/)|package-lock\.json$|\.(ptx|gz|tar|zst|bin)$/u.test(path)) continue;
    if (statSync(join(repository, path)).isFile()) yield [path, readFileSync(join(repository, path), 'utf8')];
  }
}

/** Names of no file: what stands for one in an example. */
const examples = /\/(?:NAME|FILE|x)\.|^agent\/build\//u;

test('every file of this repository that a program, a message or a comment names is there', { skip }, () => {
  const dead: string[] = [];
  const named =
    /(?<![\w/.-])(?:docs|agent|test|scripts|shim-src|units|profiles)\/[\w/.-]+\.(?:md|[1-8]|ts|[ch]|sh|list|json|service|conf)\b/gu;
  for (const [path, text] of texts())
    for (const [name] of text.matchAll(named))
      if (!examples.test(name) && !existsSync(join(repository, name))) dead.push(`${path}: ${name}`);
  assert.deepEqual(dead, []);
});

test('every document that is cited by its name alone is one of this repository', { skip }, () => {
  const documents = new Set(files('.md').map((path) => basename(path)));
  const dead: string[] = [];
  for (const [path, text] of texts())
    for (const [name] of text.matchAll(/(?<![\w/.-])[A-Z][A-Z-]+\.md\b|\bDESIGN\b(?=:|, | \d| section)/gu))
      if (!documents.has(name)) dead.push(`${path}: ${name}`);
  assert.deepEqual(dead, []);
});

test('a heading that a message or a comment names is one of the page', { skip }, () => {
  const dead: string[] = [];
  let count = 0;
  for (const [path, text] of texts())
    for (const [, heading = '', page = ''] of text.matchAll(/"([^"\n]{3,60})" in (docs\/[\w/.-]+\.md)/gu)) {
      count += 1;
      if (!fragments(page).has(fragment(heading))) dead.push(`${path}: ${page} has no heading "${heading}"`);
    }
  assert.deepEqual(dead, []);
  assert.ok(count > 0, 'finds them');
});

test('every block of commands is run by a test, or says why not', { skip }, () => {
  const wrong: string[] = [];
  let count = 0;
  for (const page of files('.md').filter((path) => !path.startsWith('test/'))) {
    for (const { mark, line } of shellBlocks(page)) {
      count += 1;
      const [, test] = /^run: (test\/\S+\.test\.ts)(?:, .+)?$/u.exec(mark) ?? [];
      const [, reason] = /^not run: (.+)$/u.exec(mark) ?? [];
      if (test !== undefined) {
        const file = join(repository, test);
        if (!existsSync(file)) wrong.push(`${page}:${line}: no such test: ${test}`);
        else if (!readFileSync(file, 'utf8').includes(`'${page}'`))
          wrong.push(`${page}:${line}: ${test} does not read this page`);
      } else if (reason !== undefined) {
        for (const [named] of reason.matchAll(/(?:test|docs|scripts)\/[\w/.-]+\w/gu))
          if (!existsSync(join(repository, named))) wrong.push(`${page}:${line}: no such file: ${named}`);
      } else
        wrong.push(
          `${page}:${line}: before the block write <!-- run: test/FILE.test.ts --> or <!-- not run: WHY -->`,
        );
    }
  }
  assert.deepEqual(wrong, []);
  assert.ok(count > 30, `finds the blocks: ${count}`);
});

test('mandoc has nothing to say about any man page', {
  skip: skip || (spawnSync('mandoc', ['-V']).error === undefined ? false : 'mandoc is not installed'),
}, () => {
  const pages = files('.1', '.5', '.7', '.8').filter((path) => path.startsWith('docs/man/'));
  assert.ok(pages.length > 3, 'finds the pages');
  const ran = spawnSync('mandoc', ['-T', 'lint', '-W', 'warning', ...pages], {
    cwd: repository,
    encoding: 'utf8',
  });
  assert.equal(`${ran.stdout}${ran.stderr}`, '');
});

test('the chart of the benchmarks shows the report of the GPU, and a document of another kind is refused', () => {
  const drawn = (file: string) =>
    spawnSync(process.execPath, [join(repository, 'dist/scripts/chart.js'), join(repository, file)], {
      encoding: 'utf8',
    });
  const chart = readFileSync(join(repository, 'docs/reference/benchmarks-gpu.svg'), 'utf8');
  assert.equal(drawn('docs/reports/2026-11-27-gpu.json').stdout, chart);
  const refused = drawn('package.json');
  assert.deepEqual([refused.status, refused.stdout], [1, '']);
  assert.match(refused.stderr, /package\.json: no report with ratios/);
});

test('each how-to names, before its first section, the tests that run it, and --long if a part of it does', {
  skip,
}, () => {
  const pages = files('.md').filter((path) => path.startsWith('docs/howto/'));
  assert.ok(pages.length > 10, 'finds the pages');
  const listed = spawnSync(join(repository, 'scripts/test'), ['--parts'], { encoding: 'utf8' }).stdout;
  const parts = listed.split('\n').flatMap((line) => line.split(/\s+/u).slice(2));
  assert.ok(parts.length > 10, 'finds the parts');
  for (const page of pages) {
    const [head = ''] = readFileSync(join(repository, page), 'utf8').split(/^## /m);
    const named = [...head.replaceAll(/<!--[\s\S]*?-->/g, '').matchAll(/`(test\/[^`]+)`/g)].map(
      ([, path = '']) => path,
    );
    assert.ok(named.length > 0, `${page}: say what runs it, and what was not run`);
    for (const path of named) assert.ok(existsSync(join(repository, path)), `${page}: ${path}`);
    const inParts = named.filter((path) => parts.some((one) => path.startsWith(one) || one.startsWith(path)));
    assert.ok(
      inParts.length === 0 || head.includes('--long'),
      `${page}: ${inParts.join()} runs with --long only`,
    );
  }
});
