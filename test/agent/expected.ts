/**
 * Texts that are expected word for word, in one file that people read and reviews see: `== TITLE`, and below it the text.
 * UPDATE_EXPECTED=1 writes the file as it is now: read the difference before you commit it.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

const updating = process.env['UPDATE_EXPECTED'] === '1';

/** Of test/fixtures/expected/NAME.txt: a test that this title has the text that `make` gives; and one at last, that it has no other. */
export interface Expected {
  text(title: string, make: () => string | Promise<string>): void;
  /** After the last title. */
  nothingElse(): void;
}

export function expected(name: string): Expected {
  const file = path.join(packageRoot(), 'test/fixtures/expected', `${name}.txt`);
  const sections = existsSync(file) ? sectionsOf(readFileSync(file, 'utf8')) : new Map<string, string>();
  const made = new Map<string, string>();
  const titles: string[] = [];
  return {
    text(title, make) {
      assert.ok(!titles.includes(title), `two cases have the title "${title}"`);
      titles.push(title);
      test(title, async () => {
        const text = await make();
        made.set(title, text);
        if (!updating) assert.equal(text, sections.get(title));
      });
    },
    nothingElse() {
      test(`${name}.txt has no other text`, () => {
        if (updating) write(file, made);
        else assert.deepEqual([...sections.keys()], titles);
      });
    },
  };
}

function sectionsOf(text: string): Map<string, string> {
  const parts = text.split(/^== (.*)\n/m).slice(1);
  const sections = new Map<string, string>();
  for (let at = 0; at + 1 < parts.length; at += 2) {
    sections.set(parts[at] ?? '', (parts[at + 1] ?? '').replace(/\n+$/, ''));
  }
  return sections;
}

function write(file: string, made: ReadonlyMap<string, string>): void {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, [...made].map(([title, text]) => `== ${title}\n${text}\n`).join('\n'));
}
