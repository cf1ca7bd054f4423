/** Spelling: the words of documents, man pages, comments and messages, and which of them no dictionary has. */

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../..', import.meta.url));
const root = join(repository, '.cache/roots/spelling');
const hunspell = join(root, 'usr/bin/hunspell');
export const words = 'test/words.txt';

/** Why nothing can be checked, or false; for the `skip` option of a test. */
export const whyNoSpelling = existsSync(hunspell) ? false : 'scripts/fetch-packages spelling was not run';

/** The prose of a file: documents without code, man pages without macros, of sources comments and sentences. */
export function prose(path: string, text: string): string {
  if (path.endsWith('.md')) {
    const [fences, code, targets] = [/^```[\s\S]*?^```/gmu, /`[^`]*`/gu, /\]\([^)]*\)/gu];
    return text.replaceAll(fences, ' ').replaceAll(code, ' ').replaceAll(targets, ' ');
  }
  if (/\.\d$/u.test(path)) return text.replaceAll(/^\..*$/gmu, ' ').replaceAll(/\\f.|\\./gu, ' ');
  const comments = text.match(/(?<![\w*'])\/\*[\s\S]*?\*\/|(?<![:'"`\w])\/\/[^\n]*/gu) ?? [];
  // A string of three words and more is a message, if it is not code.
  const strings = path.startsWith('agent/') ? (text.match(/'(?:[A-Za-z,.]+ ){2,}[^'\n]*'/gu) ?? []) : [];
  return [...comments, ...strings].join('\n').replaceAll(/`[^`]*`|\$\{[^}]*\}/gu, ' ');
}

/** Its words, without names: paths, options, identifiers, capitals, what a quotation or a number is part of. */
export function wordsOf(text: string): readonly string[] {
  const names = /https?:\/\/\S+|\S*[_/\\=@:.\d]\S*\w|\S*[a-z][A-Z]\S*|\b[A-Z]{2,}\w*\b|--?[a-z][\w-]*/gu;
  const plain = text.replaceAll('’', "'").replaceAll(names, ' ');
  return (plain.match(/[A-Za-z][A-Za-z']*[A-Za-z]/gu) ?? [])
    .map((word) => word.replace(/'s$/u, ''))
    .filter((word) => word.length > 2);
}

/** The words that neither the dictionary nor the project's list has. */
export function unknown(candidates: Iterable<string>): readonly string[] {
  const ran = spawnSync(
    hunspell,
    ['-l', '-i', 'utf-8', '-d', join(root, 'usr/share/hunspell/en_GB'), '-p', join(repository, words)],
    {
      input: [...candidates].join('\n'),
      encoding: 'utf8',
      env: { LD_LIBRARY_PATH: join(root, 'usr/lib/x86_64-linux-gnu'), LANG: 'C.UTF-8', HOME: '/nonexistent' },
    },
  );
  assert.equal(ran.error, undefined);
  assert.equal(ran.status, 0, ran.stderr);
  return [...new Set(ran.stdout.split('\n').filter((word) => word !== ''))];
}

/** Every word of the repository's prose, with the first file that has it. */
export function wordsInUse(): ReadonlyMap<string, string> {
  const listed = execFileSync('git', ['-c', 'safe.directory=*', 'ls-files', '-z'], {
    cwd: repository,
    encoding: 'utf8',
  }).split('\0');
  const where = new Map<string, string>();
  for (const path of listed) {
    if (!/\.(md|ts|[ch])$|^docs\/man\//u.test(path) || !existsSync(join(repository, path))) continue;
    // Generated of names; what other programs print.
    if (/^docs\/reference\/coverage\.md$|^test\/(fixtures|consumer)\/|^test\/lint\.test\.ts$/u.test(path))
      continue;
    for (const word of wordsOf(prose(path, readFileSync(join(repository, path), 'utf8'))))
      if (!where.has(word)) where.set(word, path);
  }
  return where;
}
