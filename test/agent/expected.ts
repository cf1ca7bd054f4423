/**
 * Expected texts, in one file that people read and reviews see: `== TITLE`, and below it the text, word for word; or
 * `-- TITLE`, and below it the outline alone, where other cases show the sentences.
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
  const sections = existsSync(file) ? sectionsOf(readFileSync(file, 'utf8')) : new Map<string, Section>();
  const made = new Map<string, Section>();
  const titles: string[] = [];
  return {
    text(title, make) {
      assert.ok(!titles.includes(title), `two cases have the title "${title}"`);
      titles.push(title);
      test(title, async () => {
        const form = sections.get(title)?.form ?? '==';
        const whole = await make();
        const text = form === '==' ? whole : outline(whole);
        made.set(title, { form, text });
        if (!updating) assert.equal(text, sections.get(title)?.text);
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

interface Section {
  readonly form: '==' | '--';
  readonly text: string;
}

/** The kinds of a text's lines without their sentences: what is concluded or changed, on what, how much evidence. */
export function outline(text: string): string {
  const parts = text.split('\n').flatMap((line) => outlineOf(line) ?? []);
  const evidence = text.split('\n').filter(isEvidence).length;
  return [...parts, ...(evidence === 0 ? [] : [`evidence ${evidence}`])].join('; ');
}

const isEvidence = (line: string): boolean => /^- (?!\[)/.test(line);

function outlineOf(line: string): string | null {
  if (line === '' || /^\s/.test(line) || isEvidence(line)) return null;
  const [, kind, weight] = /^\[([a-z-]+), ([a-z]+)\]/.exec(line) ?? [];
  if (kind !== undefined) return `${kind} ${weight}`;
  const [, sign, change, file] = /^(\S) \[([a-z-]+)\] (?:[a-z]+ )?(\/\S+?)(?::| |$)/.exec(line) ?? [];
  return sign === undefined ? line.replace(/(?:: | \().*/, '') : `${sign} ${change} ${file}`;
}

function sectionsOf(text: string): Map<string, Section> {
  const parts = text.split(/^(==|--) (.*)\n/m).slice(1);
  const sections = new Map<string, Section>();
  for (let at = 0; at + 2 < parts.length; at += 3) {
    const form = parts[at] === '--' ? '--' : '==';
    sections.set(parts[at + 1] ?? '', { form, text: (parts[at + 2] ?? '').replace(/\n+$/, '') });
  }
  return sections;
}

function write(file: string, made: ReadonlyMap<string, Section>): void {
  mkdirSync(path.dirname(file), { recursive: true });
  const blocks = [...made].map(([title, { form, text }]) => `${form} ${title}\n${text}\n`);
  writeFileSync(file, blocks.join('\n').replaceAll(/(^-- .*\n.*\n)\n(?=-- )/gm, '$1'));
}
