/**
 * The needs of a consumer: one `profiles/<name>.json`, checked against `profiles/profile.schema.json`.
 * docs/reference/profiles.md explains every field.
 */
import type { DistributionFamily } from '../contracts/facts.js';
import type { Reason } from '../contracts/verdict.js';

export interface Profile {
  readonly schema: 1;
  readonly name: string;
  readonly description: string;
  readonly notRun?: string;
  readonly unit: string;
  readonly processes: {
    readonly main: readonly string[];
    readonly children: readonly string[];
  };
  readonly consumerLibraries: readonly string[];
  readonly publicLinks: {
    readonly names: Readonly<Record<string, string>>;
    readonly directories: Readonly<
      Partial<Record<DistributionFamily, readonly { readonly path: string; readonly create: boolean }[]>>
    >;
  };
  readonly environment: readonly ProfileEnvironment[];
  readonly readiness: Readiness;
  readonly serving?: ServingRule;
  readonly doctor?: DoctorRules;
  readonly timeouts: {
    readonly baseSeconds: number;
    readonly perLibraryDirectorySeconds: number;
  };
  readonly log: LogGrammar;
  readonly evidence: EvidenceRules;
  readonly overrides: readonly OverrideRule[];
}

interface DoctorRules {
  readonly backend?: {
    readonly versions: string;
    readonly files: readonly string[];
    readonly why: string;
    readonly reinstall: string;
  };
}

export interface OverrideRule {
  readonly variable: string;
  readonly value: string;
  readonly reason: Reason;
  readonly why: string;
  readonly option?: string;
  readonly scope?: 'loads' | 'doubtful';
}

export interface ProfileEnvironment {
  readonly name: string;
  readonly entries: readonly string[];
  readonly separator: string;
  readonly preflight: 'library' | 'directory' | 'none';
  readonly without?: 'shared-memory';
  readonly why: string;
}

type Readiness =
  | {
      readonly kind: 'http';
      readonly addressVariable: string | null;
      readonly defaultAddress: string;
      readonly path: string;
    }
  | { readonly kind: 'none' };

export interface ServingRule {
  readonly path: string;
  readonly list: string;
  readonly sizes?: { readonly name: string; readonly all: string; readonly gpu: string };
}

export interface LogGrammar {
  readonly format: 'logfmt' | 'text';
  readonly prefix?: string;
  readonly starts: readonly { readonly message: string; readonly first: boolean }[];
  readonly version: { readonly message: string } | null;
  readonly address: { readonly message: string } | null;
  readonly devices: readonly DeviceRule[];
  readonly reasons: readonly ReasonRule[];
  readonly finished: readonly string[];
  readonly loads?: readonly LoadRule[];
  readonly children?: ChildRules;
}

interface ChildRules {
  readonly line: string;
  readonly began: string;
  readonly ended: string;
}

export interface LoadRule {
  readonly message: string;
  readonly says: 'begin' | 'gpu' | 'cpu' | 'layers' | 'cache-cpu' | 'failed' | 'short' | 'error';
  readonly fields?: Readonly<Record<string, string>>;
}

export interface DeviceRule {
  readonly versions: string;
  readonly message: string;
  readonly fields: {
    readonly library: readonly string[];
    readonly compute: readonly string[];
    readonly name: readonly string[];
    readonly pci: readonly string[];
  };
  readonly fixed: Readonly<Partial<Record<'library' | 'compute' | 'name' | 'pci', string>>>;
  readonly gpu: readonly string[];
  readonly cpu: readonly string[];
  readonly degradedCompute: readonly string[];
}

export interface ReasonRule {
  readonly reason: Reason;
  readonly versions: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
  readonly weight: 'reason' | 'hint' | 'contradicts';
}

interface EvidenceRules {
  readonly mapsOf: 'main' | 'children' | 'either' | 'none';
  readonly childrenMayExit: boolean;
  readonly probe: boolean;
  readonly sessions?: 'when-ready' | 'when-working';
}
