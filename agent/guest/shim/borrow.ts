/** Finds the shim and the host for one command of the calling user. Reads, never writes; needs no root. */
import { constants } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Carrier } from '../../contracts/shim-codes.js';
import { VgpuError } from '../../lib/errors.js';
import { own } from '../../lib/json.js';
import { defaultSocket, guestConf, may, ptxasName, storeCurrent } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { expandVariables } from '../../profile/instance.js';
import type { Profile } from '../../profile/types.js';
import { Root } from '../files/root.js';
import { resolveEndpoint } from '../vgpu-host/endpoint.js';
import { askProbe, describeFailure } from '../vgpu-host/probe.js';
import { defaultShimDirectory, shimFiles } from './store.js';

interface BorrowQuestion {
  readonly endpoint: string | null;
  /** The caller's environment: `VGPU_HOST` counts, and the loader's variables are kept behind ours. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly profile: Profile;
  readonly directories?: readonly string[];
  readonly timeoutMs: number;
}

const operation = 'run a command with the GPU';
const maxConfBytes = 64 * 1024;

/** Throws a VgpuError: `failed` without libraries that the caller can read, `refused` where no host answers. */
export async function borrowShim(runner: CommandRunner, question: BorrowQuestion) {
  const { environment, profile } = question;
  const libraries = libraryDirectory(question.directories ?? [storeCurrent, defaultShimDirectory()]);
  const root = new Root('/');
  const { endpoint, from, problem } = resolveEndpoint({
    flag: question.endpoint,
    environment: environment['VGPU_HOST'],
    guestConf: root.readFile(guestConf, maxConfBytes)?.toString('utf8') ?? null,
    defaultSocketExists: root.stat(defaultSocket)?.isSocket() ?? false,
  });
  if (problem !== null) throw noHost(endpoint, problem);
  const answer = await askProbe(runner, {
    program: path.join(libraries, 'vgpu-probe'),
    library: path.join(libraries, 'libcuda.so.1'),
    host: endpoint,
    timeoutMs: question.timeoutMs,
  });
  if (answer.kind !== 'report') throw noHost(endpoint, answer.message);
  const { report } = answer;
  const [device] = report.devices;
  if (!report.ok || device === undefined) throw noHost(endpoint, describeFailure(report));
  return {
    /** The libraries that the command gets: the installed ones, else those beside the agent. */
    libraries,
    endpoint,
    from,
    device: device.name,
    simulated: report.simulated,
    environment: {
      ...loaderVariables(profile, libraries, environment),
      VGPU_HOST: endpoint,
      ...(report.simulated ? simulatedCompilers(libraries, environment) : {}),
      ...withoutMappedMemory(report.host?.carrier, environment),
    },
  };
}

/** Only rings let the GPU read a program's memory, as vLLM's default runner requires. The caller's choice is kept. */
function withoutMappedMemory(
  carrier: Carrier | undefined,
  environment: BorrowQuestion['environment'],
): Readonly<Record<string, string>> {
  const maps = carrier === undefined || carrier === 'rings' || carrier === 'vm-memory';
  return maps || own(environment, 'VLLM_USE_V2_MODEL_RUNNER') ? {} : { VLLM_USE_V2_MODEL_RUNNER: '0' };
}

function noHost(endpoint: string, why: string): VgpuError {
  return new VgpuError(`no GPU for the command: the host at ${endpoint} does not answer: ${why}`, {
    kind: 'refused',
    operation,
    path: endpoint,
    remedy: 'start vgpu-hostd on the host, or name another address: vgpu-agent run --host ADDRESS -- COMMAND',
  });
}

function libraryDirectory(directories: readonly string[]): string {
  const needed = shimFiles.filter(({ optional }) => !optional).map(({ name }) => name);
  const found = directories.find((directory) =>
    needed.every((name) => may(path.join(directory, name), constants.R_OK)),
  );
  if (found !== undefined) return found;
  throw new VgpuError(
    `no shim that you can read: ${needed.join(', ')} are in none of ${directories.join(', ')}`,
    {
      kind: 'failed',
      operation,
      remedy: 'install it (sudo vgpu-agent install), or build it: scripts/setup',
    },
  );
}

function loaderVariables(
  profile: Profile,
  store: string,
  environment: BorrowQuestion['environment'],
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    profile.environment.map(({ name, entries, separator }) => {
      const ours = entries
        .map((entry) => expandVariables(entry, { store, multiarch: null }))
        .filter((entry) => entry !== null);
      // An empty entry would mean the working directory to the loader.
      const theirs = (own(environment, name) ?? '')
        .split(separator)
        .filter((entry) => entry !== '' && !ours.includes(entry));
      return [name, [...ours, ...theirs].join(separator)];
    }),
  );
}

// Variables that make compilers emit PTX for a simulated GPU, which runs no machine code.

/**
 * The variables for CuPy, vLLM (FlashInfer compiles its sampler to machine code, with nvcc) and, if `libraries` has vgpu-ptxas, for Triton. Triton gets a cache of its own, so that a real
 * GPU never loads PTX from it and the simulated GPU never machine code.
 */
export function simulatedCompilers(
  libraries: string,
  environment: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> {
  const ptxas = path.join(libraries, ptxasName);
  const triton = may(ptxas, constants.X_OK)
    ? {
        TRITON_PTXAS_PATH: ptxas,
        // Newer versions of Triton read this name for compute capability 9.0 or 10.0 and above.
        TRITON_PTXAS_BLACKWELL_PATH: ptxas,
        TRITON_CACHE_DIR: tritonCache(environment),
      }
    : {};
  return { ...triton, CUPY_COMPILE_WITH_PTX: '1', VLLM_USE_FLASHINFER_SAMPLER: '0' };
}

function tritonCache(environment: Readonly<Record<string, string | undefined>>): string {
  const named = (name: string): string | undefined => own(environment, name) || undefined;
  const theirs = named('TRITON_CACHE_DIR');
  if (theirs !== undefined)
    return path.basename(theirs) === cacheName ? theirs : path.join(theirs, cacheName);
  const home = named('HOME') ?? os.homedir();
  return path.join(named('XDG_CACHE_HOME') ?? path.join(home, '.cache'), 'vgpu-agent', 'triton', cacheName);
}

const cacheName = 'simulated';
