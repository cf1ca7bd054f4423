/** The output of `vgpu-hostd status --json`; checked when it is read. */
import { type Checked, schemaCheck } from '../lib/schema.js';

export interface HostDaemon {
  readonly schema: 1;
  readonly version: string;
  /** `major.minor` of the wire. */
  readonly wire: string;
  readonly device: string;
  readonly simulated: boolean;
  readonly draining: boolean;
  readonly devices: readonly {
    readonly index: number;
    readonly name: string;
    readonly memory: number;
    readonly used: number;
  }[];
  /** The last hostd.conf that was read again, if it was refused. Missing: an older daemon, which does not say it. */
  readonly refusedConfig?: { readonly at: string; readonly reason: string } | null;
  readonly totals: {
    readonly begun: number;
    readonly ended: number;
    readonly turnedAway: number;
    readonly most: number;
  };
  readonly sessions: readonly HostDaemonSession[];
}

export interface HostDaemonSession {
  readonly session: number;
  readonly peer: { readonly kind: string; readonly id: number };
  /** Milliseconds since it began. */
  readonly age: number;
  readonly memory: number;
  readonly launches: number;
  readonly claimed: { readonly pid: number; readonly program: string };
}

const text = { type: 'string' } as const;
const count = { type: 'integer', minimum: 0 } as const;

function object(properties: Readonly<Record<string, object>>) {
  return { type: 'object', required: Object.keys(properties), properties };
}

const required = object({
  schema: { const: 1 },
  version: text,
  wire: { type: 'string', pattern: '^\\d+\\.\\d+$' },
  device: text,
  simulated: { type: 'boolean' },
  draining: { type: 'boolean' },
  devices: { type: 'array', items: object({ index: count, name: text, memory: count, used: count }) },
  totals: object({ begun: count, ended: count, turnedAway: count, most: count }),
  sessions: {
    type: 'array',
    items: object({
      session: count,
      peer: object({ kind: text, id: count }),
      age: count,
      memory: count,
      launches: count,
      claimed: object({ pid: count, program: text }),
    }),
  },
});

export const hostDaemonSchema = {
  ...required,
  properties: {
    ...required.properties,
    refusedConfig: { anyOf: [{ type: 'null' }, object({ at: text, reason: text })] },
  },
};

export function checkHostDaemon(value: unknown): Checked<HostDaemon> {
  return schemaCheck<HostDaemon>(hostDaemonSchema)(value);
}
