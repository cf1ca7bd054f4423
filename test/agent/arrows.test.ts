/** The house: which folder may import from which. CONTRIBUTING.md has the same order in words. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

/**
 * From the ground up: a file imports from its own room and from rows above its own, never from below. The pipeline is
 * part of `install`, and has a row of its own because it also judges.
 */
const floors: readonly (readonly string[])[] = [
  ['lib'],
  ['contracts'],
  ['profile'],
  ['containers'],
  ['systemd'],
  ['guest'],
  ['install'],
  ['verdict'],
  ['install/pipeline'],
  ['service'],
  ['kubernetes'],
  ['cli'],
  ['main.ts'],
];

const agent = path.join(packageRoot(), 'agent');
const sources = readdirSync(agent, { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.ts'),
);

interface Arrow {
  readonly from: string;
  readonly to: string;
}

/** Static, dynamic and type-only imports inside of agent/. */
function arrowsOf(file: string): readonly Arrow[] {
  const text = readFileSync(path.join(agent, file), 'utf8');
  return [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']+)\.js'/g)].map(([, target = '']) => ({
    from: file,
    to: path.join(path.dirname(file), `${target}.ts`),
  }));
}

function roomOf(file: string): string {
  if (file.startsWith('install/pipeline/')) return 'install/pipeline';
  return file.split('/')[0] ?? file;
}

function floorOf(file: string): number {
  return floors.findIndex((rooms) => rooms.includes(roomOf(file)));
}

const arrows = sources.flatMap(arrowsOf);

test('every folder of agent/ has its floor, and every floor is there', () => {
  const rooms = new Set(sources.map(roomOf));
  assert.deepEqual([...rooms].toSorted(), floors.flat().toSorted());
});

test('imports go down the list of folders, and never up', () => {
  assert.ok(arrows.length > 500, `only ${arrows.length} imports were found`);
  const wrong = arrows.filter(({ from, to }) => roomOf(from) !== roomOf(to) && floorOf(to) >= floorOf(from));
  assert.deepEqual(wrong, []);
});

test('no two files import each other', () => {
  const all = new Set(arrows.map(({ from, to }) => `${from} ${to}`));
  const pairs = arrows.filter(({ from, to }) => from < to && all.has(`${to} ${from}`));
  assert.deepEqual(pairs, []);
});

test('nothing in agent/ is cast through unknown', () => {
  const casts = sources.filter((file) =>
    /\bas unknown as\b/.test(readFileSync(path.join(agent, file), 'utf8')),
  );
  assert.deepEqual(casts, []);
});

/** The exports of a file: `export function name`, `export const name` and similar, without types. */
const values = /^export (?:async )?(?:function\*?|const|class) (\w+)/gm;

test('every export of a file of agent/ is imported by another one; exports that only tests import are used in the agent', () => {
  const texts = new Map<string, string>();
  for (const part of ['agent', 'scripts', 'test']) {
    const below = path.join(packageRoot(), part);
    for (const file of readdirSync(below, { recursive: true, encoding: 'utf8' })) {
      if (file.endsWith('.ts')) {
        const name = path.join(part, file);
        texts.set(name, readFileSync(path.join(packageRoot(), name), 'utf8'));
      }
    }
  }
  const taken = new Map<string, Set<string>>();
  for (const [file, text] of texts) {
    for (const [, list = '', from = ''] of text.matchAll(/import \{([^}]*)\} from '(\.[^']+)\.js'/g)) {
      for (const word of list.split(',')) {
        const name = word
          .trim()
          .replace(/^type /, '')
          .replace(/ as .*/, '');
        const key = `${path.join(path.dirname(file), `${from}.ts`)} ${name}`;
        taken.set(key, (taken.get(key) ?? new Set()).add(file));
      }
    }
    // `await import('./x.js')` may take anything.
    for (const [, from = ''] of text.matchAll(/\bimport\('(\.[^']+)\.js'\)/g)) {
      const target = path.join(path.dirname(file), `${from}.ts`);
      for (const [, name = ''] of (texts.get(target) ?? '').matchAll(values)) {
        taken.set(`${target} ${name}`, (taken.get(`${target} ${name}`) ?? new Set()).add(file));
      }
    }
  }
  const dead: string[] = [];
  for (const [file, text] of texts) {
    if (!file.startsWith('agent/')) continue;
    const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/\/\/.*/g, '');
    for (const [, name = ''] of text.matchAll(values)) {
      const takers = [...(taken.get(`${file} ${name}`) ?? [])];
      const used = code.split(new RegExp(`\\b${name}\\b`)).length > 2;
      const needed = takers.some((taker) => !taker.startsWith('test/')) || (used && takers.length > 0);
      if (!needed) dead.push(`${file}: ${name}`);
    }
  }
  assert.deepEqual(dead, []);
});
