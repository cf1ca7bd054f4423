/**
 * Short unit tests share a process: a start of Node with node:test and the modules under test takes more processor time than
 * most of them. scripts/mutate runs them in one process too, so none depends on what another file leaves.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '../../..');
const directory = 'build/test-rooms';
const longest = new Set(
  readFileSync(path.join(root, 'scripts/testing/longest.txt'), 'utf8')
    .trim()
    .split('\n')
    .map((name) => `dist/${name}.test.js`),
);

/**
 * The file that runs the test file `file`, both relative to the repository: of a unit test a file for its whole room, else
 * `file` itself. Tests of install/apply work for seconds each, so they run side by side.
 */
export function runnerOf(file: string): string {
  const room = /^dist\/test\/agent\/(\w+)\//.exec(file)?.[1];
  const alone = room === undefined || longest.has(file) || file.startsWith('dist/test/agent/install/apply/');
  return alone ? file : `${directory}/${room}.test.js`;
}

/** Writes the files of the rooms; returns what to run, in the order of `files`. */
export function writeRooms(files: readonly string[]): readonly string[] {
  const members = new Map<string, string[]>();
  for (const file of files) {
    const runner = runnerOf(path.relative(root, file));
    members.set(runner, [...(members.get(runner) ?? []), file]);
  }
  mkdirSync(path.join(root, directory), { recursive: true });
  for (const [runner, ofRoom] of members) {
    if (!runner.startsWith(directory)) continue;
    const imports = ofRoom.map((file) => `import ${JSON.stringify(file)};\n`).join('');
    writeFileSync(path.join(root, runner), imports);
  }
  return [...members.keys()].map((runner) => path.join(root, runner));
}
