/**
 * Facts about this guest. `machine/` fills them in and never writes; `plan/`
 * reads them and never looks for itself.
 */
import type { Manifest } from '../apply/types.js';

/** What is at a path, without following a final link. Times and owners so that a restore is exact. */
export type PathState =
  | { readonly kind: 'absent' }
  | ({ readonly kind: 'link'; readonly target: string } & Ownership)
  | ({
      readonly kind: 'file';
      readonly size: number;
      readonly sha256: string;
      readonly mode: number;
    } & Ownership)
  | ({ readonly kind: 'directory'; readonly empty: boolean; readonly mode: number } & Ownership)
  | ({ readonly kind: 'other'; readonly type: 'fifo' | 'socket' | 'block' | 'character' } & Ownership);

export interface Ownership {
  readonly uid: number;
  readonly gid: number;
  /** Nanoseconds since the epoch, decimal (a bigint does not survive JSON). */
  readonly mtimeNs: string;
}

export type DistributionFamily = 'debian' | 'redhat' | 'suse' | 'arch' | 'unknown';

export interface Distribution {
  readonly id: string;
  readonly versionId: string;
  readonly prettyName: string;
  readonly family: DistributionFamily;
  /** Machine name as `uname -m` says it. */
  readonly architecture: string;
  /** `x86_64-linux-gnu` on Debian's family, else null. */
  readonly multiarch: string | null;
  /** `/lib` is a link to `/usr/lib`: one inode, one repair. */
  readonly mergedUsr: boolean;
}

/** Whose library it is, told by content (ELF note, NVIDIA's marks), never by name. */
export type LibraryVendor = 'vgpu' | 'nvidia' | 'foreign';

export interface ElfFacts {
  readonly class: 32 | 64;
  /** e_machine as a name: `x86_64`, `aarch64`, `i386`, or the number. */
  readonly machine: string;
  readonly type: 'dyn' | 'exec' | 'rel' | 'other';
  readonly soname: string | null;
  readonly needed: readonly string[];
  readonly rpath: string | null;
  readonly runpath: string | null;
  /** The JSON descriptor of `.note.vgpu`, if it is ours. */
  readonly provenance: { readonly component: string; readonly version: string; readonly wire: number } | null;
}

export interface LinkStep {
  readonly path: string;
  readonly target: string;
}

/**
 * Where a path ends up. `file` is whatever is neither link nor directory (the state of `realPath` says what);
 * `absent`: nothing stands at the path itself.
 */
export type Resolution =
  | { readonly kind: 'file'; readonly realPath: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'dangling'; readonly missing: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'loop'; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'directory'; readonly realPath: string; readonly steps: readonly LinkStep[] }
  | { readonly kind: 'absent' };

/**
 * One place where a program may find a libcuda / libnvidia-ml. Every name in every public directory of the
 * profile is listed, `absent` included, under the first of several names of one directory (`/lib/x` and
 * `/usr/lib/x` on merged /usr): a public path without a candidate is a second name of one that has it.
 * Versioned names (`libcuda.so.550.163.01`) in those directories, and every other place, only if they exist.
 */
export interface LibraryCandidate {
  /** The path as a program would open it. */
  readonly path: string;
  readonly library: 'libcuda' | 'libnvidia-ml';
  readonly state: PathState;
  readonly resolution: Resolution;
  /** Package that owns the path itself, then the one that owns the real file; null if none. */
  readonly ownerOfPath: string | null;
  readonly ownerOfFile: string | null;
  /** Null when there is no regular file, or it is no ELF file. */
  readonly elf: ElfFacts | null;
  /** Why `elf` is null although a file is there: truncated, no ELF file, may not be read. */
  readonly elfProblem?: string | null;
  /** Null when there is no regular file, or it may not be read; a file that is no ELF file is `foreign`. */
  readonly vendor: LibraryVendor | null;
  /** The Debian alternatives slave it is, if any. */
  readonly alternative: { readonly group: string; readonly slave: string } | null;
}

export interface LoaderCacheEntry {
  readonly soname: string;
  readonly path: string;
  /** `libc6,x86-64` and the like, as `ldconfig -p` prints it. */
  readonly flags: string;
}

export interface LoaderFacts {
  /** Only libcuda* and libnvidia-ml* entries, in the cache's order: the first of a SONAME wins. */
  readonly cache: readonly LoaderCacheEntry[];
  /** Directories in the order ldconfig reads them, each with the file that names it. */
  readonly directories: readonly { readonly path: string; readonly from: string }[];
}

/** A Debian alternatives group (`update-alternatives --query`). */
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

/** The compiled shim to be installed, as found in `build/shim/` (or where the package keeps it). */
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
  /** Relative links that stand beside the files: `libcuda.so -> libcuda.so.1`. */
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

export interface DropIn {
  readonly path: string;
  readonly content: string;
}

/** Settings of the unit that decide whether the shim can be loaded and reach the host. */
export interface SandboxFacts {
  /** Families as systemd lists them; null = no restriction. `deny` when the list is inverted (`~`). */
  readonly restrictAddressFamilies: { readonly deny: boolean; readonly families: readonly string[] } | null;
  readonly privateNetwork: boolean;
  readonly devicePolicy: string;
  readonly memoryDenyWriteExecute: boolean;
  readonly noNewPrivileges: boolean;
  readonly protectHome: string;
  readonly rootDirectory: string;
  readonly inaccessiblePaths: readonly string[];
  readonly temporaryFileSystem: readonly string[];
  /** A /tmp and /var/tmp of its own. */
  readonly privateTmp?: boolean;
  /** IPAddressDeny= and IPAddressAllow= as `ADDRESS/PREFIX`; the allowed ones win. */
  readonly ipAddressDeny?: readonly string[];
  readonly ipAddressAllow?: readonly string[];
  /** SystemCallFilter= with its groups written out; null = no filter. `deny` when the list is inverted (`~`). */
  readonly systemCallFilter?: { readonly deny: boolean; readonly calls: readonly string[] } | null;
}

export type UnitFacts =
  | { readonly kind: 'absent'; readonly name: string }
  | { readonly kind: 'masked'; readonly name: string; readonly path: string }
  | { readonly kind: 'bad'; readonly name: string; readonly loadState: string; readonly message: string }
  | LoadedUnit;

export interface LoadedUnit {
  readonly kind: 'loaded';
  readonly name: string;
  readonly fragment: string;
  /** In the order in which systemd applies them. */
  readonly dropIns: readonly DropIn[];
  readonly activeState: string;
  readonly subState: string;
  readonly result: string;
  readonly restarts: number;
  readonly mainPid: number;
  /** 32 hex digits; null when the unit never ran. */
  readonly invocationId: string | null;
  readonly needDaemonReload: boolean;
  /** Text of the fragment, empty when it cannot be read; absent when nobody read it. */
  readonly fragmentContent?: string;
  /** Environment= as systemd has it in force, our own drop-in's values among it. */
  readonly environment: Readonly<Record<string, string>>;
  readonly environmentFiles: readonly string[];
  /** Those of them that could be read; their assignments win over Environment=. */
  readonly environmentFileContents?: readonly DropIn[];
  readonly execStart: readonly string[];
  readonly user: string;
  readonly group: string;
  readonly dynamicUser: boolean;
  readonly standardOutput: string;
  readonly standardError: string;
  readonly sandbox: SandboxFacts;
  readonly unitFileState: string;
  /** `doctor --trace` is at work, or was killed: its drop-in is in force. What that adds is left out of the above. */
  readonly traced?: boolean;
}

export interface ProcessFacts {
  readonly pid: number;
  readonly parent: number;
  /** /proc/PID/comm. */
  readonly name: string;
  /** Start time in clock ticks since boot: pid + this is unique. */
  readonly startTicks: string;
  readonly executable: string | null;
  /** Every mapped file that is a libcuda or libnvidia-ml, by real path, with `(deleted)` kept apart. */
  readonly libraries: readonly {
    readonly path: string;
    readonly deleted: boolean;
    readonly vendor: LibraryVendor | null;
  }[];
  /** LD_PRELOAD and LD_LIBRARY_PATH as the process has them; what a trace put before is left out. */
  readonly loaderEnvironment: Readonly<Record<string, string>>;
  /** What of /proc/PID may not be read (`maps`, `environ`): its absence above is then no evidence. */
  readonly unreadable?: readonly ('maps' | 'environ' | 'exe')[];
}

/** A real GPU in this guest. `works` only by asking the real driver. */
export type RealGpu =
  | { readonly kind: 'none' }
  | { readonly kind: 'present'; readonly works: boolean; readonly evidence: string };

/** Where the host is, and whether it answers there. */
export interface HostFacts {
  /** `unix:PATH`, `vsock:CID:PORT`, `tcp:ADDR:PORT`. */
  readonly endpoint: string;
  readonly from: 'flag' | 'environment' | 'guest.conf' | 'default';
  readonly answer:
    | {
        readonly kind: 'answers';
        readonly device: string;
        readonly simulated: boolean;
        readonly milliseconds: number;
      }
    | { readonly kind: 'unreachable'; readonly message: string }
    | { readonly kind: 'unasked' };
}

/** Present state of the small files of ours (content only when it is a readable regular file). */
export interface OwnedFileFacts {
  readonly path: string;
  readonly state: PathState;
  readonly content: string | null;
}

/** One file of the service: how it is, and how this version of the agent would write it. */
export interface ServiceFile {
  readonly present: OwnedFileFacts;
  readonly content: string;
  /** A person may edit it: written only where there is none. */
  readonly editable: boolean;
}

/** The service vgpu-agent.service that keeps an installation true. */
export interface ServiceFacts {
  readonly unit: string;
  readonly files: readonly ServiceFile[];
  /** What enabling it makes. */
  readonly link: { readonly path: string; readonly target: string; readonly state: PathState };
  readonly activeState: string;
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
  /** Absent when nobody looked. */
  readonly service?: ServiceFacts;
  readonly manifest: Manifest | null;
  /** A transaction was cut short (its log is there): apply/ must finish or undo it first. */
  readonly interrupted: boolean;
  /** `doctor --trace` is at work, or was cut short. */
  readonly traced?: boolean;
}
