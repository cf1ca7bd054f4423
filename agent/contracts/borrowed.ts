/** The shim for one command: what `vgpu-agent run` sets, and where the calls go. */
import type { HostFacts } from './facts.js';

export interface Borrowed {
  /** The libraries that the command gets: the installed ones, else those beside the agent. */
  readonly libraries: string;
  readonly endpoint: string;
  readonly from: HostFacts['from'];
  readonly device: string;
  readonly simulated: boolean;
  /** Variables that the command gets besides the caller's own. */
  readonly environment: Readonly<Record<string, string>>;
}
