/** Real libraries and programs, linked by the test, and what the real loader makes of them. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { readLoading } from '../../../../agent/doctor/look/elf-loading.js';
import type { LoaderRuntime } from '../../../../agent/doctor/look/loader-runtime.js';
import { parseLoaderDiagnostics } from '../../../../agent/doctor/look/loader-runtime.js';
import { simulateLoader } from '../../../../agent/doctor/look/loader-simulation.js';
import type {
  LoadingProcess,
  OpenResult,
  SimulatedLoader,
} from '../../../../agent/doctor/look/loader-types.js';
import { loaderView } from '../../../../agent/doctor/look/loader-view.js';
import { bufferSource } from '../../../../agent/machine/elf/elf-bytes.js';
import { Root } from '../../../../agent/machine/files/root.js';

/** Opens each argument (`CALLER@NAME`: out of that library), then prints every object in the link map's order. */
const programSource = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
static int show(struct dl_phdr_info *i, size_t n, void *d) { (void)n; (void)d; printf("object=%s\\n", i->dlpi_name); return 0; }
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    char *at = strchr(argv[i], '@');
    void *handle = 0;
    if (at) {
      *at = 0;
      void *caller = dlopen(argv[i], RTLD_NOW | RTLD_NOLOAD);
      void *(*open_it)(const char *) = caller ? (void *(*)(const char *))dlsym(caller, "open_it") : 0;
      handle = open_it ? open_it(at + 1) : 0;
    } else handle = dlopen(argv[i], RTLD_NOW);
    printf("opened=%d\\n", handle != 0);
  }
  dl_iterate_phdr(show, 0);
  return 0;
}`;

const callerSource = `
#include <dlfcn.h>
void *open_it(const char *name) { return dlopen(name, RTLD_NOW); }`;

export interface Recipe {
  readonly soname?: string;
  readonly needed?: readonly string[];
  readonly rpath?: string;
  readonly runpath?: string;
  /** Passed to the linker as they are. */
  readonly flags?: readonly string[];
  /** It has `open_it`, which calls dlopen. */
  readonly opens?: boolean;
}

function must(file: string, args: readonly string[], cwd: string): void {
  const ran = spawnSync(file, args, { cwd, encoding: 'utf8' });
  assert.equal(ran.status, 0, `${file} ${args.join(' ')}\n${ran.stderr}${ran.error ?? ''}`);
}

/** A directory in which libraries and programs are linked. */
export class Workshop {
  readonly directory: string;
  readonly #made = objectFiles();

  constructor(directory: string) {
    this.directory = directory;
  }

  at(name: string): string {
    return path.join(this.directory, name);
  }

  library(name: string, recipe: Recipe = {}): string {
    const file = this.at(name);
    mkdirSync(path.dirname(file), { recursive: true });
    const object = recipe.opens === true ? 'caller.o' : 'empty.o';
    must(
      'ld',
      ['-shared', '-o', file, path.join(this.#made, object), ...this.#options(recipe)],
      this.directory,
    );
    return file;
  }

  program(name: string, recipe: Recipe = {}): string {
    const file = this.at(name);
    mkdirSync(path.dirname(file), { recursive: true });
    const options = this.#options(recipe).flatMap((one) => ['-Xlinker', one]);
    must('gcc', ['-o', file, path.join(this.#made, 'main.o'), ...options], this.directory);
    return file;
  }

  #options({ soname, needed = [], rpath, runpath, flags = [] }: Recipe): readonly string[] {
    return [
      ...(soname === undefined ? [] : ['-soname', soname]),
      ...(rpath === undefined ? [] : ['--disable-new-dtags', '-rpath', rpath]),
      ...(runpath === undefined ? [] : ['--enable-new-dtags', '-rpath', runpath]),
      ...flags,
      '--no-as-needed',
      '--allow-shlib-undefined',
      ...needed.map((name) => stub(this.#made, name)),
    ];
  }
}

/** The linker takes the name for DT_NEEDED from the library that it is shown. */
function stub(made: string, name: string): string {
  const file = path.join(made, 'stubs', name);
  if (!existsSync(file)) must('ld', ['-shared', '-soname', name, '-o', file, 'empty.o'], made);
  return file;
}

let made: string | null = null;

/** Compiled once for all tests of a file. */
function objectFiles(): string {
  if (made !== null) return made;
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-loading-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  mkdirSync(path.join(directory, 'stubs'));
  writeFileSync(path.join(directory, 'empty.s'), '.section .note.GNU-stack,"",@progbits\n');
  writeFileSync(path.join(directory, 'main.c'), programSource);
  writeFileSync(path.join(directory, 'caller.c'), callerSource);
  must('as', ['-o', 'empty.o', 'empty.s'], directory);
  must('gcc', ['-c', '-fPIC', 'caller.c', 'main.c'], directory);
  made = directory;
  return directory;
}

export interface RealRun {
  /** Paths in the link map's order, without the program itself and the kernel's vdso. */
  readonly objects: readonly string[];
  readonly opened: readonly boolean[];
  /** What LD_DEBUG=libs says it tried, in order. */
  readonly tried: readonly string[];
  readonly stderr: string;
}

/** The program, really started. A start that fails (a needed library is missing) has no objects. */
export function really(
  program: string,
  opens: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: { readonly debug?: boolean; readonly cwd?: string } = {},
): RealRun | null {
  const ran = spawnSync(program, [...opens], {
    encoding: 'utf8',
    cwd: options.cwd ?? '/',
    env: { LC_ALL: 'C', ...environment, ...(options.debug === true ? { LD_DEBUG: 'libs' } : {}) },
  });
  if (ran.status !== 0) return null;
  const objects = [...ran.stdout.matchAll(/^object=(.+)$/gm)].map((match) => match[1] ?? '');
  return {
    // A relative directory gives relative paths.
    objects: objects
      .filter((one) => !one.startsWith('linux-'))
      .map((one) => path.resolve(options.cwd ?? '/', one)),
    opened: [...ran.stdout.matchAll(/^opened=(\d)$/gm)].map((match) => match[1] === '1'),
    tried: [...ran.stderr.matchAll(/trying file=(.+)$/gm)].map((match) => match[1] ?? ''),
    stderr: ran.stderr,
  };
}

/** The interpreter of the programs that this machine's linker makes. */
function interpreter(): string {
  const reading = readLoading(bufferSource(readFileSync(process.execPath)));
  return (reading.kind === 'elf' ? reading.facts.interpreter : null) ?? '/lib64/ld-linux-x86-64.so.2';
}

export function thisRuntime(): LoaderRuntime {
  const told = spawnSync(interpreter(), ['--list-diagnostics'], { encoding: 'utf8' });
  const runtime = parseLoaderDiagnostics(told.stdout);
  assert.ok(runtime !== null, 'the loader of this machine tells about itself');
  return runtime;
}

export interface SimulatedRun {
  readonly loader: SimulatedLoader;
  readonly objects: readonly string[];
  readonly results: readonly OpenResult[];
}

/** The same, simulated; `opens` as for `really`. */
export function simulated(
  program: string,
  opens: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: Partial<LoadingProcess> & { readonly runtime?: LoaderRuntime } = {},
): SimulatedRun {
  const runtime = options.runtime ?? thisRuntime();
  const view = loaderView(new Root('/'), runtime, 'x86_64', null);
  const loader = simulateLoader(view, runtime, {
    executable: program,
    environment,
    directory: options.directory ?? '/',
    secure: options.secure ?? false,
  });
  assert.ok(loader !== null, `${program} is a dynamic program`);
  const results = opens.map((one) => {
    const [caller, name] = one.includes('@') ? one.split('@') : [undefined, one];
    const from = caller === undefined ? undefined : loader.loaded(caller)?.path;
    return loader.open(name ?? '', from);
  });
  return { loader, objects: loader.objects.map((one) => path.resolve(one.path)).slice(1), results };
}
