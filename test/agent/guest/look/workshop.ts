import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Real libraries and programs, linked by the test. */

export interface Recipe {
  readonly soname?: string;
  /** Names for DT_NEEDED; nothing is behind them. */
  readonly needed?: readonly string[];
  readonly rpath?: string;
  readonly runpath?: string;
  /** Symbols that a library has, and those that it binds. */
  readonly defines?: readonly string[];
  readonly uses?: readonly string[];
  /** The loader that a program names. */
  readonly interpreter?: string;
}

function must(file: string, args: readonly string[], cwd: string): void {
  const ran = spawnSync(file, args, { cwd, encoding: 'utf8' });
  assert.equal(ran.status, 0, `${file} ${args.join(' ')}\n${ran.stderr}${ran.error ?? ''}`);
}

export class Workshop {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
    mkdirSync(this.at('made'));
    writeFileSync(this.at('made/empty.s'), '.section .note.GNU-stack,"",@progbits\n');
    must('as', ['-o', 'made/empty.o', 'made/empty.s'], directory);
    writeFileSync(this.at('made/main.c'), 'int main(void) { return 0; }\n');
    must('gcc', ['-c', '-o', 'made/main.o', 'made/main.c'], directory);
  }

  at(name: string): string {
    return path.join(this.directory, name);
  }

  library(name: string, recipe: Recipe = {}): string {
    const file = this.at(name);
    mkdirSync(path.dirname(file), { recursive: true });
    const lines = [
      ...(recipe.defines ?? []).map((one) => `.globl ${one}\n${one}:`),
      ...(recipe.uses ?? []).map((one) => `.quad ${one}`),
    ];
    writeFileSync(this.at('made/data.s'), ['.data', ...lines, ''].join('\n'));
    must('as', ['-o', 'made/data.o', 'made/data.s'], this.directory);
    const objects = ['made/empty.o', 'made/data.o'];
    must('ld', ['-shared', '-o', file, ...objects, ...this.#options(recipe)], this.directory);
    return file;
  }

  program(name: string, recipe: Recipe = {}): string {
    const file = this.at(name);
    mkdirSync(path.dirname(file), { recursive: true });
    const options = this.#options(recipe).flatMap((one) => ['-Xlinker', one]);
    must('gcc', ['-o', file, 'made/main.o', ...options], this.directory);
    return file;
  }

  #options({ soname, needed = [], rpath, runpath, interpreter }: Recipe): readonly string[] {
    return [
      ...(soname === undefined ? [] : ['-soname', soname]),
      ...(rpath === undefined ? [] : ['--disable-new-dtags', '-rpath', rpath]),
      ...(runpath === undefined ? [] : ['--enable-new-dtags', '-rpath', runpath]),
      ...(interpreter === undefined ? [] : ['--dynamic-linker', interpreter]),
      '--no-as-needed',
      '--allow-shlib-undefined',
      ...needed.map((name) => this.#stub(name)),
    ];
  }

  /** The linker takes the name for DT_NEEDED from the library that it is shown. */
  #stub(name: string): string {
    const file = this.at(`made/${name}`);
    must('ld', ['-shared', '-soname', name, '-o', file, 'made/empty.o'], this.directory);
    return file;
  }
}
