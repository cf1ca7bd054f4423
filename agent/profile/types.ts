/** The needs of a consumer: one `profiles/<name>.json`, checked against `profiles/profile.schema.json`. */

import type { DistributionFamily } from '../contracts/facts.js';
import type { Reason } from '../contracts/verdict.js';

export interface Profile {
  /** 1; another number is refused. */
  readonly schema: 1;
  /** As typed after `--profile`; equals the file's name. */
  readonly name: string;
  readonly description: string;
  /** The parts of it that never ran with the real service; absent: all ran. */
  readonly notRun?: string;
  readonly unit: string;
  readonly processes: {
    /** comm (15 bytes at most) of the process that systemd starts; empty: whatever its name is. */
    readonly main: readonly string[];
    /** comm of its children that do the GPU work; with no name in `main`, all of its processes count. */
    readonly children: readonly string[];
  };
  /** The consumer's own library directories: examined, counted for time-outs, never written. Globs allowed. */
  readonly consumerLibraries: readonly string[];
  readonly publicLinks: {
    /** Names made in every directory: `libcuda.so`, `libcuda.so.1`, ... mapped to the file in the store. */
    readonly names: Readonly<Record<string, string>>;
    /**
     * Directories by distribution family (`unknown` is the fall-back). `${multiarch}` stands for the
     * triplet. `create: true` makes the links even where none was; else only what is there is repaired.
     */
    readonly directories: Readonly<
      Partial<Record<DistributionFamily, readonly { readonly path: string; readonly create: boolean }[]>>
    >;
  };
  /** The variables that the drop-in sets. `${store}` stands for /opt/vgpu/current. */
  readonly environment: readonly ProfileEnvironment[];
  readonly readiness: Readiness;
  /** Where it tells what it has loaded. Absent: it cannot be asked. */
  readonly serving?: ServingRule;
  readonly doctor?: DoctorRules;
  readonly timeouts: {
    /** Seconds from restart to the verdict: base + perLibraryDirectory * (directories found). */
    readonly baseSeconds: number;
    readonly perLibraryDirectorySeconds: number;
  };
  readonly log: LogGrammar;
  readonly evidence: EvidenceRules;
  /** Variables of the unit that keep this consumer off the GPU; named as the reason when it is on the CPU. */
  readonly overrides: readonly OverrideRule[];
}

interface DoctorRules {
  /** Files without which the consumer has no CUDA: one of `files` must be in one of the consumerLibraries. */
  readonly backend?: {
    readonly versions: string;
    readonly files: readonly string[];
    readonly why: string;
    readonly reinstall: string;
  };
  /** Versions that open libcuda by absolute path, where LD_PRELOAD does not count; `directories` in their order. */
  readonly opensByPath?: { readonly versions: string; readonly directories: readonly string[] };
}

export interface OverrideRule {
  readonly variable: string;
  /** Regular expression on the value. */
  readonly value: string;
  readonly reason: Reason;
  readonly why: string;
  /** Regular expression on an argument of the unit's command that takes the variable's place. */
  readonly option?: string;
  /**
   * `loads`: it decides where a model goes, and does not hide the device, so a consumer that found none has another
   * reason. `doubtful`: it may select something that is not there; named when nothing else explains the CPU.
   */
  readonly scope?: 'loads' | 'doubtful';
}

export interface ProfileEnvironment {
  readonly name: string;
  /** Our entries; they come before what the unit already has. */
  readonly entries: readonly string[];
  /** Between entries, `:` for the loader's variables. */
  readonly separator: string;
  /** Every entry must be a library that the service's user can load. */
  readonly preflight: 'library' | 'directory' | 'none';
  /** Set only for a host that shares no memory with this guest, and only if the unit does not set the variable. */
  readonly without?: 'shared-memory';
  readonly why: string;
}

type Readiness =
  | {
      readonly kind: 'http';
      /** Environment variable of the unit that moves the address (`OLLAMA_HOST`), or null. */
      readonly addressVariable: string | null;
      readonly defaultAddress: string;
      readonly path: string;
    }
  | { readonly kind: 'none' };

/**
 * A JSON document that `path` answers: it serves requests when `list` is not empty. `sizes` names the members
 * of an item of the list that say how much memory it takes in all and on GPUs, in bytes, and what it is called.
 */
export interface ServingRule {
  readonly path: string;
  readonly list: string;
  readonly sizes?: { readonly name: string; readonly all: string; readonly gpu: string };
}

/** How to read the consumer's log. `versions` are semver ranges; `*` fits an unknown version too. */
export interface LogGrammar {
  readonly format: 'logfmt' | 'text';
  /**
   * The prefix before a message that is not a logfmt record: a regular expression, anchored at the beginning of the
   * line. It is removed before any other expression is tried.
   */
  readonly prefix?: string;
  /**
   * Lines at the beginning of every start: earlier lines belong to a former start and never count. `first`: no line
   * about devices comes before it in a start.
   */
  readonly starts: readonly { readonly message: string; readonly first: boolean }[];
  /** Finds the consumer's version: a regular expression with one group named `version`. */
  readonly version: { readonly message: string } | null;
  /** Finds the address it listens on: a regular expression with one group named `address`. */
  readonly address: { readonly message: string } | null;
  /** The lines that announce a device (or the CPU). */
  readonly devices: readonly DeviceRule[];
  /** Lines that say why not, the more specific first. */
  readonly reasons: readonly ReasonRule[];
  /** Lines after which discovery is over although no device line came (regular expressions on the message). */
  readonly finished: readonly string[];
  /** Lines about what it loaded after it looked for devices. They are newer than its announcement and outweigh it. */
  readonly loads?: readonly LoadRule[];
  /** For a consumer whose children load. Of their lines only those about what they load count. */
  readonly children?: ChildRules;
}

/** Regular expressions. */
interface ChildRules {
  /** The beginning of a line that a child wrote; group `child`: which one. */
  readonly line: string;
  /** The parent starts a child: groups `child` and `name`. */
  readonly began: string;
  /** A child has ended: group `name`. */
  readonly ended: string;
}

export interface LoadRule {
  /** Regular expression on the message. With `layers` it has the groups `gpu` and `all`: numbers of layers. */
  readonly message: string;
  /**
   * - `begin`: something is being loaded now; what was said of the last thing loaded is past
   * - `gpu`: a part of it, or all, lies on a CUDA device; `cpu`: a part lies in main memory
   * - `layers`: how many of all its layers are on a GPU
   * - `cache-cpu`: its KV cache, or a part of it, lies in main memory
   * - `error`: the load ended with an error
   * - `failed`: CUDA could not be started for it
   * - `short`: not all of it fits into the free device memory
   */
  readonly says: 'begin' | 'gpu' | 'cpu' | 'layers' | 'cache-cpu' | 'failed' | 'short' | 'error';
  /** Further conditions on fields of a logfmt record, regular expressions by key. */
  readonly fields?: Readonly<Record<string, string>>;
}

export interface DeviceRule {
  readonly versions: string;
  /** logfmt: the exact msg. text: a regular expression with groups named as `fields` below. */
  readonly message: string;
  /** logfmt keys (or group names), first present wins. */
  readonly fields: {
    readonly library: readonly string[];
    readonly compute: readonly string[];
    readonly name: readonly string[];
    readonly pci: readonly string[];
  };
  /** Values for what such a line does not carry, e.g. `library` in a line that only CUDA prints. */
  readonly fixed: Readonly<Partial<Record<'library' | 'compute' | 'name' | 'pci', string>>>;
  /** Values of `library` (lower case) that count as a GPU for this project. */
  readonly gpu: readonly string[];
  /** Values of `library` (lower case) that mean CPU. */
  readonly cpu: readonly string[];
  /** Values of `compute` that mean the device is not usable (design 3's crashed probe: `0.0`). */
  readonly degradedCompute: readonly string[];
}

export interface ReasonRule {
  readonly reason: Reason;
  readonly versions: string;
  /** Regular expression on msg, or on the whole line where the line is not logfmt. */
  readonly message: string;
  /** Further conditions on fields, regular expressions by key. */
  readonly fields: Readonly<Record<string, string>>;
  /**
   * `reason`: the line says why. `hint`: it is quoted as evidence, and names the reason only when the machine
   * bears it out or nothing better is known. `contradicts`: a reason that also outweighs a device line.
   */
  readonly weight: 'reason' | 'hint' | 'contradicts';
}

interface EvidenceRules {
  /** A GPU verdict needs the shim in the maps of one of these, or the probe in the unit's environment. */
  readonly mapsOf: 'main' | 'children' | 'either' | 'none';
  /** Children end after discovery, so their absence is no evidence against. */
  readonly childrenMayExit: boolean;
  readonly probe: boolean;
  /**
   * The meaning of the host's list of sessions. `when-ready`: once it answers requests it has something loaded, so a
   * GPU session is missed. `when-working` (unless given): only while it has something loaded.
   */
  readonly sessions?: 'when-ready' | 'when-working';
}
