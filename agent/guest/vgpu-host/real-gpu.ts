/** Whether this guest has its own working GPU: then the shim must not take its place. */
import path from 'node:path';
import type { LibraryCandidate, RealGpu } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { nativeElf } from '../elf/elf.js';
import type { Root } from '../files/root.js';
import { askProbe, describeFailure } from './probe.js';

export interface RealGpuQuestion {
  readonly candidates: readonly LibraryCandidate[];
  /** `uname -m`. */
  readonly architecture: string;
  /** vgpu-probe; null: the driver is not to be asked. */
  readonly program: string | null;
  readonly timeoutMs: number;
}

/**
 * `none` without any trace of the kernel driver. Else NVIDIA's own libraries (by content; ours, however it
 * is named, never counts, nor does a device that says it is simulated) are asked one by one.
 */
export async function findRealGpu(
  root: Root,
  runner: CommandRunner,
  question: RealGpuQuestion,
): Promise<RealGpu> {
  const traces = driverTraces(root);
  const [trace] = traces;
  if (trace === undefined) return { kind: 'none' };
  const libraries = realDrivers(root, question);
  if (libraries.length === 0) {
    return { kind: 'present', works: false, evidence: `${trace} exists, but no libcuda of NVIDIA's` };
  }
  if (question.program === null) {
    return {
      kind: 'present',
      works: false,
      evidence: `${trace} exists; the driver was not queried`,
    };
  }
  const failures: string[] = [];
  for (const library of libraries) {
    const answer = await askProbe(runner, {
      program: question.program,
      library,
      host: null,
      timeoutMs: question.timeoutMs,
    });
    if (answer.kind !== 'report') {
      failures.push(`${library}: ${answer.message}`);
      continue;
    }
    const { report } = answer;
    const [device] = report.devices;
    // A device that is listed works, even when its memory is full and the round trip fails.
    if (!report.simulated && device !== undefined) {
      const driver = report.driver === null ? '' : `, CUDA ${report.driver}`;
      return { kind: 'present', works: true, evidence: `${library} lists ${device.name}${driver}` };
    }
    const why = report.simulated ? 'its device is simulated' : describeFailure(report);
    failures.push(`${library}: ${why}`);
  }
  return { kind: 'present', works: false, evidence: `${trace} exists, but ${failures.join('; ')}` };
}

/** The traces of a loaded kernel driver: entries of /proc, device nodes, WSL's paravirtual device. */
function driverTraces(root: Root): readonly string[] {
  const proc = '/proc/driver/nvidia/gpus';
  return [
    ...root.readdir(proc).map((name) => path.join(proc, name)),
    ...root
      .readdir('/dev')
      .filter((name) => /^nvidia\d+$/.test(name) || name === 'dxg')
      .map((name) => path.join('/dev', name)),
  ];
}

/** Real paths of NVIDIA's libcuda for this machine, each once, in the order of the candidates. */
function realDrivers(root: Root, question: RealGpuQuestion): readonly string[] {
  const native = nativeElf(question.architecture);
  const paths = question.candidates.flatMap(({ library, vendor, elf, resolution }) =>
    library === 'libcuda' &&
    vendor === 'nvidia' &&
    resolution.kind === 'file' &&
    (native === null || (elf?.class === native.class && elf.machine === native.machine))
      ? [root.prefix + resolution.realPath]
      : [],
  );
  return [...new Set(paths)];
}
