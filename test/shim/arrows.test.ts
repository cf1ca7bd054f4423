/** The rooms of shim-src/: which of them may include from which. CONTRIBUTING.md says what each is for. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

/** From the ground up: a file includes from its own room and from rows above its own, never from below. */
const floors: readonly (readonly string[])[] = [
  ['', 'api'],
  ['wire', 'image'],
  ['guest'],
  ['guest/private', 'guest/nvml'],
  ['guest/cuda'],
  ['trace', 'probe', 'watch'],
  ['host'],
  ['host/backend/software/profile', 'host/backend/software/ptx'],
  ['host/backend'],
  ['host/session'],
  ['host/policy', 'host/backend/common'],
  ['host/backend/software', 'host/backend/cuda'],
  ['host/daemon'],
  ['vgpu-hostd'],
];
const rooms = floors.flat();

const root = path.join(packageRoot(), 'shim-src');
const sources = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) =>
  /\.[ch]$/.test(file),
);

/** The innermost room with the file. The command line belongs to the program: it knows every part. */
function roomOf(file: string): string {
  if (file === 'host/main.c' || file === 'host/options.c') return 'vgpu-hostd';
  let folder = path.dirname(file);
  while (folder !== '.' && !rooms.includes(folder)) folder = path.dirname(folder);
  return folder === '.' ? '' : folder;
}

function floorOf(file: string): number {
  return floors.findIndex((row) => row.includes(roomOf(file)));
}

interface Include {
  readonly from: string;
  readonly line: number;
  readonly to: string;
}

/** Generated headers include from no room, and are left out. */
function includesOf(file: string): readonly Include[] {
  const lines = readFileSync(path.join(root, file), 'utf8').split('\n');
  return lines.flatMap((text, index) => {
    const name = /^\s*#\s*include "([^"]+)"/.exec(text)?.[1];
    const to = name === undefined ? [] : [name, path.join(path.dirname(file), name)];
    return to
      .filter((target) => existsSync(path.join(root, target)))
      .slice(0, 1)
      .map((target) => ({ from: file, line: index + 1, to: target }));
  });
}

const includes = sources.flatMap(includesOf);

test('every folder of shim-src/ belongs to a room, and every room has files', () => {
  assert.deepEqual([...new Set(sources.map(roomOf))].toSorted(), rooms.toSorted());
});

test('includes go up the list of rooms, and never down', () => {
  assert.ok(includes.length > 1000, `only ${includes.length} includes were found`);
  const wrong = includes.filter(
    ({ from, to }) => roomOf(from) !== roomOf(to) && floorOf(to) >= floorOf(from),
  );
  assert.deepEqual(
    wrong.map(({ from, line, to }) => `${from}:${line} includes ${to}`),
    [],
  );
});

test('no header includes itself through others', () => {
  const next = new Map<string, readonly string[]>();
  for (const file of sources)
    next.set(
      file,
      includesOf(file).map(({ to }) => to),
    );
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (file: string, above: readonly string[]): void => {
    if (above.includes(file)) circles.push([...above.slice(above.indexOf(file)), file].join(' > '));
    if (done.has(file) || above.includes(file)) return;
    for (const to of next.get(file) ?? []) visit(to, [...above, file]);
    done.add(file);
  };
  for (const file of sources) visit(file, []);
  assert.deepEqual(circles, []);
});

test('no header that every session has names a backend', () => {
  const above = sources.filter((file) => /^host\/session\/.*\.h$/.test(file));
  const named = above.filter((file) =>
    /struct vgpu_(?:software|cuda)\b/.test(readFileSync(path.join(root, file), 'utf8')),
  );
  assert.deepEqual(named, []);
});
