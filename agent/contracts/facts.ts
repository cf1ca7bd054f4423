/** Facts about this guest. `guest/` reads them from the machine and never writes; a plan is made of them alone. */

import type { Manifest, PathState } from './manifest.js';
import type { HostWord } from './probe.js';
import type { UnitFacts } from './unit.js';

export type DistributionFamily = 'debian' | 'redhat' | 'suse' | 'arch' | 'unknown';

export interface Distribution {
  readonly prettyName: string;
  readonly family: DistributionFamily;
  /** Machine name as `uname -m` says it. */
  readonly architecture: string;
  /** `x86_64-linux-gnu` on Debian's family, else null. */
  readonly multiarch: string | null;
}

/** The vendor of a library, by content (ELF note, NVIDIA's marks), never by name. */
export type LibraryVendor = 'vgpu' | 'nvidia' | 'foreign';

export interface ElfFacts {
  readonly class: 32 | 64;
  /** e_machine as a name: `x86_64`, `aarch64`, `i386`, or the number. */
  readonly machine: string;
  readonly type: 'dyn' | 'exec' | 'rel' | 'other';
  readonly soname: string | null;
  readonly needed: readonly string[];
  /** The JSON descriptor of `.note.vgpu`, if it is ours. */
  readonly provenance: { readonly component: string; readonly version: string; readonly wire: number } | null;
}

export interface LinkStep {
  readonly path: string;
  readonly target: string;
}

/** `file`: neither link nor directory. `absent`: nothing exists at the path itself. */
export type Resolution =
  | { readonly kind: 'file'; readonly realPath: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'dangling'; readonly missing: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'loop'; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'directory'; readonly realPath: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'absent' };

export interface LibraryCandidate {
  readonly path: string;
  readonly library: 'libcuda' | 'libnvidia-ml';
  readonly state: PathState;
  readonly resolution: Resolution;
  /** Package that owns the path itself, then the one that owns the real file; null if none. */
  readonly ownerOfPath: string | null;
  readonly ownerOfFile: string | null;
  /** Null when there is no regular file, or it is no ELF file. */
  readonly elf: ElfFacts | null;
  readonly elfProblem?: string | null;
  /** Null when there is no regular file, or it may not be read; a file that is no ELF file is `foreign`. */
  readonly vendor: LibraryVendor | null;
  readonly alternative: { readonly group: string; readonly slave: string } | null;
}

export interface LoaderCacheEntry {
  readonly soname: string;
  readonly path: string;
  /** Such as `libc6,x86-64`, as `ldconfig -p` prints it. */
  readonly flags: string;
}

export interface LoaderFacts {
  /** Only libcuda* and libnvidia-ml* entries, in the cache's order: the first of a SONAME wins. */
  readonly cache: readonly LoaderCacheEntry[];
  /** Directories in the order ldconfig reads them, each with the file that names it. */
  readonly directories: readonly { readonly path: string; readonly from: string }[];
}

export interface AlternativeGroup {
  readonly name: string;
  readonly link: string;
  readonly status: 'auto' | 'manual';
  readonly value: string;
  readonly slaves: readonly { readonly name: string; readonly link: string }[];
  readonly choices: readonly {
    readonly path: string;
    readonly priority: number;
    readonly slaves: Readonly<Record<string, string>>;
  }[];
}

export interface ShimBuild {
  readonly directory: string;
  /** Store id: first 16 hex digits of sha256 over the sorted (name, mode, sha256) list. */
  readonly id: string;
  readonly version: string;
  readonly files: readonly {
    readonly name: string;
    readonly source: string;
    readonly sha256: string;
    readonly size: number;
    readonly mode: number;
  }[];
  readonly links: readonly { readonly name: string; readonly target: string }[];
}

export interface StoreFacts {
  readonly root: PathState;
  readonly current: PathState;
  readonly versions: readonly {
    readonly id: string;
    /** Every file has the content that the id says. */
    readonly intact: boolean;
  }[];
}

export interface ProcessIdentity {
  readonly pid: number;
  /** Its number in the PID namespace that it lives in, where that is another one. */
  readonly namespacePid?: number;
  /** Inode of that namespace; absent: it may not be read. */
  readonly pidNamespace?: number;
  /** Start time in clock ticks since boot: pid + this is unique. */
  readonly startTicks: string;
}

export interface ProcessFacts extends ProcessIdentity {
  readonly parent: number;
  readonly name: string;
  readonly executable: string | null;
  /** systemd gives INVOCATION_ID to every service (systemd.exec(5)); this process lacks it: a wrapper cleared its environment. */
  readonly environmentCleared?: true;
  /** Every mapped file that is a libcuda or libnvidia-ml, by real path, with `(deleted)` kept apart. */
  readonly libraries: readonly {
    readonly path: string;
    readonly deleted: boolean;
    readonly vendor: LibraryVendor | null;
  }[];
  /** LD_PRELOAD, LD_LIBRARY_PATH and the CDI device as the process has them; what a trace put before is left out. */
  readonly loaderEnvironment: Readonly<Record<string, string>>;
  /** The files of /proc/PID that may not be read (`maps`, `environ`): a missing entry above is then no evidence. */
  readonly unreadable?: readonly ('maps' | 'environ' | 'exe')[];
}

/** A real GPU in this guest. `works` only by asking the real driver. */
export type RealGpu =
  | { readonly kind: 'none' }
  | { readonly kind: 'present'; readonly works: boolean; readonly evidence: string };

export interface HostFacts {
  /** `unix:PATH`, `vsock:CID:PORT`, `tcp:ADDR:PORT`; of several hosts all, with commas between them. */
  readonly endpoint: string;
  readonly from: 'flag' | 'agent.json' | 'environment' | 'guest.conf' | 'default';
  /** Of several hosts: of the one in use. */
  readonly answer: HostAnswer;
  /** Absent: there is one host. */
  readonly hosts?: readonly HostOfSeveral[];
}

export interface HostOfSeveral {
  readonly endpoint: string;
  readonly inUse: boolean;
  readonly answer: HostAnswer;
}

export type HostAnswer =
  | {
      readonly kind: 'answers';
      readonly device: string;
      readonly simulated: boolean;
      readonly milliseconds: number;
      readonly devices?: number;
    }
  | {
      readonly kind: 'unreachable';
      readonly message: string;
      /** The result of our libcuda's connection; null if it did not connect. */
      readonly word: HostWord | null;
    }
  | { readonly kind: 'unasked' };

/** Present state of the small installed files (content only when it is a readable regular file). */
export interface OwnedFileFacts {
  readonly path: string;
  readonly state: PathState;
  readonly content: string | null;
}

export interface ServiceFile {
  readonly present: OwnedFileFacts;
  /** Its text in the package: the unit's has places to be filled, agent.json has none (plan/service.ts). */
  readonly packaged: string;
  /** A person may edit it: written only where there is none. */
  readonly editable: boolean;
}

export interface ServedConsumer {
  readonly unit: string;
  /** Where its public links are, by real names: `/lib` is `/usr/lib` on merged-usr systems. */
  readonly libraryDirectories: readonly string[];
}

export interface ServiceFacts {
  readonly unit: string;
  readonly files: readonly ServiceFile[];
  readonly link: { readonly path: string; readonly target: string; readonly state: PathState };
  readonly activeState: string;
  readonly program: { readonly node: string; readonly watch: string; readonly package: string };
  readonly consumers: readonly ServedConsumer[];
  /** The first path of what the service would execute as root that another user can change; null: there is none. */
  readonly changeable: string | null;
  /** Why the service refuses agent.json; null: it does not, there is none, or it may not be read. */
  readonly confProblem: string | null;
}

export interface ContainerFacts {
  readonly wanted: boolean;
  readonly spec: OwnedFileFacts;
  readonly nvidia: OwnedFileFacts;
  readonly nvidiaFrom: string | null;
  /** Our drop-in for the unit's quadlet; null: it is made from none. */
  readonly dropIn: OwnedFileFacts | null;
  /** The version of podman; null: not needed, or podman did not say. */
  readonly podman: string | null;
}

/** A PCI device (ivshmem-plain) whose memory this guest shares with its host. */
export interface SharedMemoryDevice {
  readonly path: string;
  readonly bytes: number;
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
}

export interface VmMemoryFacts {
  readonly devices: readonly SharedMemoryDevice[];
  readonly rule: OwnedFileFacts;
  readonly group: { readonly name: string; readonly gid: number } | null;
  /** The kernel is in lockdown: no process can map memory of a PCI device. */
  readonly locked: boolean;
}

export interface MachineFacts {
  readonly distribution: Distribution;
  readonly candidates: readonly LibraryCandidate[];
  readonly loader: LoaderFacts;
  readonly alternatives: readonly AlternativeGroup[];
  readonly store: StoreFacts;
  readonly shim: ShimBuild;
  readonly guestConf: OwnedFileFacts;
  readonly loaderConf: OwnedFileFacts;
  readonly dropIn: OwnedFileFacts;
  readonly unit: UnitFacts;
  /** The service's user and groups, resolved; null when the unit names one that does not exist. */
  readonly serviceUser: {
    readonly name: string;
    readonly uid: number;
    readonly gid: number;
    readonly groups: readonly number[];
  } | null;
  readonly processes: readonly ProcessFacts[];
  readonly realGpu: RealGpu;
  readonly host: HostFacts;
  /** Absent when it was not inspected. */
  readonly service?: ServiceFacts;
  readonly containers?: ContainerFacts;
  readonly vmMemory?: VmMemoryFacts;
  readonly manifest: Manifest | null;
  /** A transaction was cut short (its log is there): apply/ must finish or undo it first. */
  readonly interrupted: boolean;
  readonly traced?: boolean;
}
