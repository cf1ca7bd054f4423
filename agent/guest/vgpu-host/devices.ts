/** Whether this guest has its own working GPU: then the shim must not take its place. */
import path from 'node:path';
import type { LibraryCandidate, RealGpu, SharedMemoryDevice, VmMemoryFacts } from '../../contracts/facts.js';
import { vmMemoryRule } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { nativeElf } from '../elf.js';
import { type ContentCache, ownedFile } from '../files/content.js';
import type { Root } from '../files/root.js';
import { askProbe, describeFailure } from './probe.js';

interface RealGpuQuestion {
  readonly candidates: readonly LibraryCandidate[];
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

// Memory that this guest shares with its host (ivshmem-plain), and who may open it. Reads, never writes.

const pciDevices = '/sys/bus/pci/devices';
/** ivshmem's own numbers: docs/specs/ivshmem-spec of QEMU; shim-src/guest/vm_memory.c looks for the same. */
const ivshmem = { vendor: '0x1af4', device: '0x1110' };
/** The group whose members may use GPUs; Ollama's installer and others add them to it. */
const group = 'render';
const maxFileBytes = 1024 * 1024;

export async function readVmMemory(root: Root, contents: ContentCache): Promise<VmMemoryFacts> {
  const lockdown = root.readFile('/sys/kernel/security/lockdown', maxFileBytes)?.toString('utf8') ?? '';
  return {
    devices: root.readdir(pciDevices).flatMap((name) => deviceAt(root, `${pciDevices}/${name}`)),
    rule: await ownedFile(root, vmMemoryRule, contents),
    group: groupNamed(root.readFile('/etc/group', maxFileBytes)?.toString('utf8') ?? '', group),
    locked: /\[(?:integrity|confidentiality)\]/.test(lockdown),
  };
}

function deviceAt(root: Root, directory: string): readonly SharedMemoryDevice[] {
  const says = (name: string): string | undefined =>
    root.readFile(`${directory}/${name}`, maxFileBytes)?.toString('utf8').trim();
  if (says('vendor') !== ivshmem.vendor || says('device') !== ivshmem.device) return [];
  const path = `${directory}/resource2`;
  const status = root.stat(path);
  if (status === null) return [];
  const { uid, gid, mode, size } = status;
  return [{ path, bytes: Number(size), uid: Number(uid), gid: Number(gid), mode: Number(mode & 0o7777n) }];
}

function groupNamed(text: string, name: string): VmMemoryFacts['group'] {
  const gid = new RegExp(`^${name}:[^:]*:(\\d+):`, 'm').exec(text)?.[1];
  return gid === undefined ? null : { name, gid: Number(gid) };
}
