/** Blocks of commands in the documents, and what a comment before each says of how it is tested. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../..', import.meta.url));

export interface ShellBlock {
  /** The text of the comment on the line before: `run: FILE` or `not run: REASON`; empty if there is none. */
  readonly mark: string;
  /** Where the block begins, counted from 1. */
  readonly line: number;
  readonly text: string;
  /** Lines of the next block of output (`text`) before another block of commands, without empty ones. */
  readonly shows: readonly string[];
}

/** The `sh` blocks of a page, in order. */
export function shellBlocks(page: string): readonly ShellBlock[] {
  const blocks: { mark: string; line: number; text: string; shows: string[] }[] = [];
  let fence: string | undefined;
  let former = '';
  for (const [index, line] of readFileSync(join(repository, page), 'utf8').split('\n').entries()) {
    const opened = /^```(\w*)$/u.exec(line)?.[1];
    if (fence !== undefined && line === '```') fence = undefined;
    else if (fence === undefined && opened !== undefined) {
      fence = opened;
      if (fence === 'sh') {
        const mark = /^<!-- (.+) -->$/u.exec(former)?.[1] ?? '';
        blocks.push({ mark, line: index + 1, text: '', shows: [] });
      }
    } else if (fence !== undefined) {
      const last = blocks.at(-1);
      if (fence === 'sh' && last !== undefined) last.text += `${line}\n`;
      if (fence === 'text' && line.trim() !== '') last?.shows.push(line);
    }
    former = line;
  }
  return blocks;
}

/** Whether output has a line like one of a page, in which `[...]` stands for anything and blanks count as one. */
export function showsLine(output: string, line: string): boolean {
  const pattern = line
    .trim()
    .split('[...]')
    .map((part) =>
      part.replaceAll(/[.*+?^${}()|[\]\\]/gu, String.raw`\$&`).replaceAll(/\s+/gu, String.raw`\s+`),
    )
    .join('.*');
  return new RegExp(String.raw`^\s*${pattern}\s*$`, 'mu').test(output);
}
