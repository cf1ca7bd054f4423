/**
 * Reads the descriptions in NVIDIA's cuda-samples (the tree of CUDA 13.0): CMakeLists.txt names the sources and the
 * requirements of a sample, test_args.json its arguments.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

export interface Sample {
  readonly name: string;
  readonly directory: string;
  /** Relative to the directory. */
  readonly sources: readonly string[];
  /** Kernels that the program loads from a file. */
  readonly kernels: readonly { readonly source: string; readonly file: string }[];
  /** The names with which the program links libraries of CUDA: cublas. */
  readonly libraries: readonly string[];
  readonly relocatable: boolean;
  readonly openMp: boolean;
  /** Arguments of each run. */
  readonly runs: readonly (readonly string[])[];
  /** The GPUs that it needs at least. */
  readonly gpus: number;
  /** The reason why it cannot be run with CUDA alone. */
  readonly excluded?: string;
}

interface Arguments {
  readonly skip?: boolean;
  readonly min_gpus?: number;
  readonly args?: readonly string[];
  readonly runs?: readonly { readonly args?: readonly string[] }[];
}

/** Read as it is written: this file is NVIDIA's, of one release. */
function readArguments(root: string): Readonly<Record<string, Arguments>> {
  const file = path.join(root, 'test_args.json');
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
}

const all = (text: string, pattern: RegExp): string[] => [
  ...new Set([...text.matchAll(pattern)].map((found) => found[1] ?? '')),
];

/** Libraries that CMake's targets bring along. */
const BRINGS: Readonly<Record<string, readonly string[]>> = { cusolver: ['cublas', 'cusparse'] };

function librariesOf(text: string): readonly string[] {
  const named = [
    ...all(text, /CUDA::(\w+)/g).filter((library) => !['cuda_driver', 'cudart'].includes(library)),
    ...all(text, /find_library\(\w+_LIB\s+NAME (nvJitLink)\b/g),
  ];
  return [...new Set(named.flatMap((library) => [library, ...(BRINGS[library] ?? [])]))];
}

function readSample(directory: string, given: Arguments): Sample {
  const name = path.basename(directory);
  const text = readFileSync(path.join(directory, 'CMakeLists.txt'), 'utf8');
  const sources = (/add_executable\(\s*\S+\s+([^)]*)\)/.exec(text)?.[1] ?? '').split(/\s+/).filter(Boolean);
  const packages = all(text, /find_package\(\s*(\w+)/g).filter(
    (found) => !['CUDAToolkit', 'OpenMP'].includes(found),
  );
  const kernel = /set\(CUDA_KERNEL_SOURCE\s+"\$\{CMAKE_CURRENT_SOURCE_DIR\}\/([^"]+)"/.exec(text)?.[1];
  const file = /set\(CUDA_(?:PTX|FATBIN)_FILE\s+"\$\{CMAKE_CURRENT_BINARY_DIR\}\/([^"]+)"/.exec(text)?.[1];
  const excluded =
    packages.length > 0
      ? `needs ${packages.join(' and ')}`
      : given.skip === true || sources.length === 0 || /\bWIN32\b.*\n.*add_exec/.test(text)
        ? 'not made for this system'
        : undefined;
  return {
    name,
    directory,
    sources,
    kernels: kernel === undefined || file === undefined ? [] : [{ source: kernel, file }],
    libraries: librariesOf(text),
    relocatable: /CUDA_SEPARABLE_COMPILATION ON/.test(text),
    openMp: /find_package\(OpenMP/.test(text),
    gpus: given.min_gpus ?? 1,
    runs: given.runs?.map((one) => one.args ?? []) ?? [given.args ?? []],
    ...(excluded === undefined ? {} : { excluded }),
  };
}

/** It needs no library but CUDA's runtime and driver, and one GPU. */
export const needsCudaAlone = (sample: Sample): boolean =>
  sample.excluded === undefined && sample.libraries.length === 0 && sample.gpus === 1;

/** All samples below `root`, by name. Those of one board, of Windows and of libNVVM (built in other ways) are left out. */
export function readSamples(root: string): readonly Sample[] {
  const top = path.join(root, 'Samples');
  if (!existsSync(top)) throw new Error(`${root} has no Samples: name the top of NVIDIA's cuda-samples`);
  const given = readArguments(root);
  return readdirSync(top)
    .filter((room) => /^[0-6]_/.test(room))
    .flatMap((room) => readdirSync(path.join(top, room)).map((name) => path.join(top, room, name)))
    .filter((directory) => existsSync(path.join(directory, 'CMakeLists.txt')))
    .filter((directory) => !/D3D/.test(directory))
    .map((directory) => readSample(directory, given[path.basename(directory)] ?? {}))
    .sort((a, b) => a.name.localeCompare(b.name));
}
