/**
 * node dist/shim-src/api/generate.js API-DIRECTORY OUTPUT-DIRECTORY [COVERAGE-FILE CODES-MODULE]
 *
 * Writes the generated C, the version scripts and, if asked, the coverage table and the agent's list of codes;
 * those two are left alone when they would not change, because they are committed. Exit 0; 1 with a message on
 * stderr.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv, exit, stderr } from 'node:process';
import { emitCodesHeader, emitCodesModule, parseCodes } from './codes.js';
import { emitCoverage } from './emit-coverage.js';
import { emitFuzzHeader, emitFuzzTable } from './emit-fuzz.js';
import {
  checkLibrary,
  emitApi,
  emitEntries,
  emitErrors,
  emitProcTable,
  emitResults,
  emitStreamFields,
  emitStubs,
  emitVersionScript,
} from './emit-guest.js';
import { emitQueryCalls, emitQueryHeader, emitQueryStubs, emitQueryTable } from './emit-queries.js';
import { emitCalls, emitDispatch, emitHandlers } from './emit-wire.js';
import type { Library } from './model.js';
import { parseDescription, parseErrors } from './parse.js';

function writeIfChanged(path: string, text: string): void {
  try {
    if (readFileSync(path, 'utf8') === text) return;
  } catch {
    // Not there yet.
  }
  writeFileSync(path, text);
}

function readLibrary(directory: string, name: 'cuda' | 'nvml', soname: string, refusal: number): Library {
  const file = join(directory, `${name}.api`);
  return { name, soname, refusal, entries: parseDescription(file, readFileSync(file, 'utf8')) };
}

interface Committed {
  readonly coverage: string;
  readonly codes: string;
}

function generate(source: string, output: string, committed: Committed | null): void {
  const cuda = readLibrary(source, 'cuda', 'libcuda.so.1', 801);
  const nvml = readLibrary(source, 'nvml', 'libnvidia-ml.so.1', 3);
  const problems = [cuda, nvml].flatMap(checkLibrary);
  if (problems.length > 0) throw new Error(problems.join('\n'));
  const errorsFile = join(source, 'errors.list');
  mkdirSync(output, { recursive: true });
  for (const library of [cuda, nvml]) {
    writeFileSync(join(output, `${library.name}_calls.h`), emitCalls(library));
    writeFileSync(join(output, `${library.name}_handlers.h`), emitHandlers(library));
    writeFileSync(join(output, `${library.name}_dispatch.c`), emitDispatch(library));
    writeFileSync(join(output, `${library.name}_api.h`), emitApi(library));
    writeFileSync(join(output, `${library.name}_stubs.c`), emitStubs(library));
    writeFileSync(join(output, `${library.name}.map`), emitVersionScript(library));
  }
  writeFileSync(join(output, 'nvml_queries.h'), emitQueryHeader(nvml));
  writeFileSync(join(output, 'nvml_queries.c'), emitQueryTable(nvml));
  writeFileSync(join(output, 'nvml_query_stubs.c'), emitQueryStubs(nvml));
  writeFileSync(join(output, 'nvml_query_calls.c'), emitQueryCalls(nvml));
  writeFileSync(join(output, 'cuda_fuzz.h'), emitFuzzHeader(cuda));
  writeFileSync(join(output, 'cuda_fuzz.c'), emitFuzzTable(cuda));
  writeFileSync(join(output, 'cuda_proc.c'), emitProcTable(cuda));
  writeFileSync(join(output, 'cuda_entries.c'), emitEntries(cuda));
  writeFileSync(join(output, 'cuda_streams.c'), emitStreamFields(cuda));
  const errors = parseErrors(errorsFile, readFileSync(errorsFile, 'utf8'));
  writeIfChanged(join(output, 'cuda_errors.c'), emitErrors(errors));
  writeIfChanged(join(output, 'cuda_results.h'), emitResults(errors));
  const codesFile = join(source, 'codes.list');
  const codes = parseCodes(codesFile, readFileSync(codesFile, 'utf8'));
  writeIfChanged(join(output, 'codes.h'), emitCodesHeader(codes));
  if (committed === null) return;
  writeIfChanged(committed.coverage, emitCoverage([cuda, nvml]));
  writeIfChanged(committed.codes, emitCodesModule(codes));
}

const [source, output, coverage, codes] = argv.slice(2);
if (source === undefined || output === undefined || (coverage === undefined) !== (codes === undefined)) {
  stderr.write('usage: generate.js API-DIRECTORY OUTPUT-DIRECTORY [COVERAGE-FILE CODES-MODULE]\n');
  exit(2);
}
try {
  generate(source, output, coverage === undefined || codes === undefined ? null : { coverage, codes });
} catch (error) {
  stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  exit(1);
}
