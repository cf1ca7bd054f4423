/** The structured journal entries of the agent: documented in vgpu-agent(8), explained in units/vgpu-agent.catalog. */
import type { ReadyPlan } from '../contracts/plan.js';
import type { Verdict } from '../contracts/verdict.js';
import { errnoOf } from '../lib/errors.js';

/** These never change: scripts select by them (documented in vgpu-agent(8)). */
export const messageIds = {
  installed: 'f1bbdc2a15da445792da3f79ff42c071',
  uninstalled: 'ac71a9ffd5e94d909627e8a294c7e535',
  rolledBack: 'd02a3245beff4f9483be491858bd2165',
  verdict: '4da52d4e78ff4484b95c2db0a3ab5afa',
  // Of the service:
  serviceStarted: '841ebd9dda6a4ab8951a1319520927af',
  serviceStopped: '4e9bad68244d4f74b443cbfbe6cfee5e',
  drift: '89c46e78561542d4bb0a4255da0e7399',
  repaired: '4de2833d91af4de285d2f203d2adcc3d',
  repairFailed: 'e9762b2bda4741eba4abd3aa63fab619',
  repairLimit: '0c1bc92d7f394427a0d7e6d70c3c0217',
  packageManager: 'c7bf7632b96c49b58c8f56cee4b5d485',
  consumerRestarted: '2a6f17602fbc47acbbb63a273c954fb6',
  restartDeferred: '204914a2982c4dc1a05c1cf752e0ee13',
  hostLost: 'afd5a6ffeee74b16a28492d435a11686',
  hostBack: 'f62d4d9376e342efb15557f9ac2feeb5',
  hostMoved: '9d7ddf0a5ff74db0b95915023ecd12db',
  configLoaded: '9b3f3a4fdd35435db2168dd46efbbbb2',
  configRefused: 'f1f5095b3d6041cc9544cdaa92a72aa2',
  resumed: '70c6102aecc740c3aa78abff2a9da6b9',
} as const;

type EntryKind = Exclude<keyof typeof messageIds, 'verdict'>;

export type JournalMessage =
  | {
      readonly kind: EntryKind;
      readonly profile: string | null;
      readonly unit: string | null;
      readonly text: string;
      /** Further fields, names without `VGPU_`. */
      readonly fields?: Readonly<Record<string, string | number | null>>;
    }
  | { readonly kind: 'verdict'; readonly verdict: Verdict };

const done = { installed: 'installed', uninstalled: 'uninstalled', rolledBack: 'installation undone' };

export function planEntry(
  kind: keyof typeof done,
  { profile, unit, storeId, changes }: ReadyPlan,
): JournalMessage {
  const text = `vgpu ${done[kind]} (${changes.length} changes)`;
  return { kind, profile, unit, text, fields: { STORE: storeId, CHANGES: changes.length } };
}

// Leaves one structured journal entry for each thing that was done to a consumer, found again with
// `journalctl MESSAGE_ID=...` or `journalctl VGPU_UNIT=ollama.service`. Nothing depends on it: without
// journald, or without the native addon, nothing is written and nothing fails.

export interface JournalWriter {
  write(message: JournalMessage): Promise<void>;
}

type Priority = 'info' | 'notice' | 'warning' | 'err';

const priorities: Readonly<Partial<Record<EntryKind, Priority>>> = {
  serviceStarted: 'info',
  serviceStopped: 'info',
  repairFailed: 'warning',
  repairLimit: 'err',
  packageManager: 'info',
  hostLost: 'warning',
  hostMoved: 'warning',
  configLoaded: 'info',
  configRefused: 'err',
  resumed: 'info',
};

export interface JournalFields {
  readonly priority: Priority;
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** `otherwise` is called when the addon is missing: the service then writes the message to standard error. */
export function journalWriter(otherwise: (entry: JournalFields) => void = () => {}): JournalWriter {
  let told = false;
  return {
    async write(message) {
      const entry = journalFields(message);
      try {
        // Native: loaded with the first entry.
        const { default: journald } = await import('systemd-journald');
        journald[entry.priority](entry.message, entry.fields);
      } catch (error) {
        // No addon on this machine; the command's output has the same text.
        if (!told) otherwise(withoutFields(error));
        told = true;
        otherwise(entry);
      }
    },
  };
}

/** Logged once, to explain why the journal has no entries with MESSAGE_ID or VGPU_UNIT. */
export function withoutFields(error: unknown): JournalFields {
  const why =
    errnoOf(error) === 'ERR_DLOPEN_FAILED'
      ? `the module systemd-journald was compiled for another Node than ${process.version}`
      : 'the module systemd-journald does not exist or was not compiled';
  return {
    priority: 'warning',
    message: `journal entries have no fields (MESSAGE_ID, VGPU_UNIT, ...): ${why}; scripts/setup compiles it`,
    fields: {},
  };
}

export function journalFields(message: JournalMessage): JournalFields {
  const common = { SYSLOG_IDENTIFIER: 'vgpu-agent', MESSAGE_ID: messageIds[message.kind] };
  if (message.kind === 'verdict') {
    const { verdict } = message;
    const said = verdict.simulated ? `${verdict.mode} (simulated)` : verdict.mode;
    return {
      priority: verdict.mode === 'gpu' ? 'info' : 'warning',
      message: `${verdict.unit}: ${said}. ${verdict.summary}`,
      fields: present({
        ...common,
        VGPU_PROFILE: verdict.profile,
        VGPU_UNIT: verdict.unit,
        VGPU_MODE: verdict.mode,
        VGPU_SIMULATED: verdict.simulated ? '1' : '0',
        VGPU_REASON: verdict.reason,
        VGPU_DEVICES: verdict.devices.map((device) => device.name).join('; '),
        VGPU_INVOCATION_ID: verdict.invocationId,
        VGPU_CONSUMER_VERSION: verdict.consumerVersion,
      }),
    };
  }
  const { kind, profile, unit, text, fields = {} } = message;
  const named = Object.entries(fields).map(([name, value]): [string, string | null] => [
    `VGPU_${name}`,
    value === null ? null : String(value),
  ]);
  return {
    priority: priorities[kind] ?? 'notice',
    message: unit === null ? text : `${unit}: ${text}`,
    fields: present({
      ...common,
      VGPU_PROFILE: profile,
      VGPU_UNIT: unit,
      ...Object.fromEntries(named),
    }),
  };
}

function present(fields: Readonly<Record<string, string | null>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fields).filter((field): field is [string, string] => field[1] !== null && field[1] !== ''),
  );
}
