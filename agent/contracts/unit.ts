/** systemd's facts about a service, in the form that the rest of the agent uses. */

export interface DropIn {
  readonly path: string;
  readonly content: string;
}

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
  readonly privateTmp?: boolean;
  /** ProtectKernelTunables=: it may write nothing below /sys, where the memory shared with the host is opened. */
  readonly protectKernelTunables?: boolean;
  /** IPAddressDeny= and IPAddressAllow= as `ADDRESS/PREFIX`; the allowed ones win. */
  readonly ipAddressDeny?: readonly string[];
  readonly ipAddressAllow?: readonly string[];
  /** It is in docker's default seccomp profile, which forbids vsock. */
  readonly dockerSeccomp?: boolean;
  /** SystemCallFilter= with its groups written out; null = no filter. `deny` when the list is inverted (`~`). */
  readonly systemCallFilter?: { readonly deny: boolean; readonly calls: readonly string[] } | null;
}

export interface LoggingFacts {
  /** LogNamespace=; empty: the system's own journal. */
  readonly namespace: string;
  /** LogLevelMax= by name, where it is below the level of the unit's lines (SyslogLevel=); null: it drops none. */
  readonly levelMax: string | null;
  /** LogRateLimitBurst= and LogRateLimitIntervalSec=; null: those of journald. */
  readonly burst: number | null;
  readonly intervalMs: number | null;
}

export interface ComposedContainer {
  readonly name: string;
  readonly pid: number;
  readonly devices: readonly string[];
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
  /** Text of the fragment, empty when it cannot be read; absent when it was not read. */
  readonly fragmentContent?: string;
  /** Environment= as systemd has it in force, our own drop-in's values among it. */
  readonly environment: Readonly<Record<string, string>>;
  readonly environmentFiles: readonly string[];
  /** Those of them that could be read; their assignments win over Environment=. */
  readonly environmentFileContents?: readonly DropIn[];
  readonly execStart: readonly string[];
  /** WorkingDirectory=; empty: the root directory. */
  readonly workingDirectory?: string;
  /** Running containers of a `docker compose` unit. Absent: docker does not report them. */
  readonly composed?: readonly ComposedContainer[];
  readonly user: string;
  readonly group: string;
  readonly dynamicUser: boolean;
  readonly standardOutput: string;
  readonly standardError: string;
  /** Absent: none of it differs from what systemd does unless told. */
  readonly logging?: LoggingFacts;
  readonly sandbox: SandboxFacts;
  /** `doctor --trace` is at work, or was killed: its drop-in is in force. What that adds is left out of the above. */
  readonly traced?: boolean;
}
