/** Builds a sample as its CMakeLists.txt does, but to PTX only: what is compiled for a GPU no simulated one runs. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { SHIM } from '../../shim_host.js';
import type { Sample } from './sample.js';

const run = promisify(execFile);
const CODE = 'arch=compute_90,code=compute_90';

export type Built =
  | { readonly kind: 'built'; readonly directory: string; readonly program: string }
  | { readonly kind: 'unbuildable'; readonly why: string };

function commands(sample: Sample, root: string, directory: string): readonly (readonly string[])[] {
  const source = (name: string): string => path.join(sample.directory, name);
  const include = ['-I', path.join(root, 'Common'), '-I', sample.directory, '-I', source('inc')];
  return [
    ...sample.kernels.map(({ source: kernel, file }) => [
      ...['-gencode', CODE, ...include],
      ...[file.endsWith('.ptx') ? '-ptx' : '-fatbin', '-o', path.join(directory, file), source(kernel)],
    ]),
    [
      ...['-std=c++17', '--extended-lambda', '-lineinfo', '-gencode', CODE, ...include],
      ...(sample.relocatable ? ['-rdc=true'] : []),
      ...(sample.openMp ? ['-Xcompiler', '-fopenmp'] : []),
      ...['-o', path.join(directory, sample.name), ...sample.sources.map(source)],
      ...sample.libraries.map((library) => `-l${library}`),
      ...['-L', SHIM, '-Xlinker', '-l:libcuda.so.1'],
    ],
  ];
}

/** The first complaint in the output of a compiler or linker. */
function reason(text: string): string {
  const line = text.split('\n').find((one) => /\berror\b|cannot find|fatal|undefined reference/i.test(one));
  return (line ?? text.trim().split('\n').at(-1) ?? 'nvcc failed')
    .replace(/^.*\/Samples\//, '')
    .slice(0, 160);
}

/**
 * Gives a directory with the sample's files and its program in it. What was built before in the same way is taken from
 * there: compiling all takes a quarter of an hour.
 */
export async function buildSample(sample: Sample, root: string, cache: string): Promise<Built> {
  const directory = path.join(cache, sample.name);
  const lines = commands(sample, root, directory);
  const hash = createHash('sha256').update(JSON.stringify(lines));
  const stamp = path.join(cache, `${sample.name}.built`);
  for (const source of sample.sources) hash.update(readFileSync(path.join(sample.directory, source)));
  const key = hash.digest('hex');
  const built: Built = { kind: 'built', directory, program: path.join(directory, sample.name) };
  if (existsSync(stamp)) {
    const [had, why] = readFileSync(stamp, 'utf8').split('\n');
    if (had === key) return why === '' ? built : { kind: 'unbuildable', why: why ?? '' };
  }
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
  await cp(sample.directory, directory, { recursive: true });
  let why = '';
  for (const line of lines) {
    if (why !== '') break;
    why = await run('nvcc', line, { cwd: directory, maxBuffer: 1 << 26, timeout: 600_000 }).then(
      () => '',
      (error: { readonly stdout?: string; readonly stderr?: string }) =>
        reason(`${error.stderr ?? ''}\n${error.stdout ?? ''}`),
    );
  }
  await writeFile(stamp, `${key}\n${why}`);
  return why === '' ? built : { kind: 'unbuildable', why };
}
