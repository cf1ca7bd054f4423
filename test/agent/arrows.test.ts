/** The house: which folder may import from which. CONTRIBUTING.md has the same order in words. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/paths.js';

/** From the ground up: a file imports from its own folder and from rows above its own, never from below. */
const floors: readonly (readonly string[])[] = [
  ['contracts'],
  // errors.ts, paths.ts, text.ts and the like.
  ['files beside the folders'],
  ['trust'],
  ['profile'],
  ['systemd'],
  ['machine'],
  ['plan'],
  ['apply'],
  ['confirm'],
  ['doctor'],
  ['output'],
  ['report'],
  ['pipeline'],
  ['wizard', 'daemon'],
  ['commands'],
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
  const [room = '', ...rest] = file.split('/');
  return rest.length > 0 || room === 'main.ts' ? room : 'files beside the folders';
}

function floorOf(file: string): number {
  return floors.findIndex((rooms) => rooms.includes(roomOf(file)));
}

const arrows = sources.flatMap(arrowsOf);

test('every folder of agent/ has its floor, and every floor is there', () => {
  const rooms = new Set(sources.map(roomOf));
  assert.deepEqual([...rooms].toSorted(), floors.flat().toSorted());
});

test('imports go down, to what is nearer to the ground, and never up', () => {
  assert.ok(arrows.length > 500, `only ${arrows.length} imports were found`);
  const wrong = arrows.filter(({ from, to }) => roomOf(from) !== roomOf(to) && floorOf(to) >= floorOf(from));
  assert.deepEqual(wrong, []);
});

test('the contracts import nothing of the agent but one another', () => {
  const outside = arrows.filter(({ from, to }) => roomOf(from) === 'contracts' && roomOf(to) !== 'contracts');
  assert.deepEqual(outside, []);
});

test('nothing in agent/ is cast through unknown', () => {
  const casts = sources.filter((file) =>
    /\bas unknown as\b/.test(readFileSync(path.join(agent, file), 'utf8')),
  );
  assert.deepEqual(casts, []);
});
