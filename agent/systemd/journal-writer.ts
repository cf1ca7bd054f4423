/**
 * Leaves one structured journal entry for each thing that was done to a consumer, found again with
 * `journalctl MESSAGE_ID=...` or `journalctl VGPU_UNIT=ollama.service`. Nothing depends on it: without
 * journald, or without the native addon, nothing is written and nothing fails.
 */
import type { JournalMessage, ServiceEventName } from '../contracts/journal-messages.js';
import { messageIds } from '../contracts/journal-messages.js';
import { errnoOf } from '../lib/errors.js';

export interface JournalWriter {
  write(message: JournalMessage): Promise<void>;
}

type Priority = 'info' | 'notice' | 'warning' | 'err';

const priorities: Readonly<Record<ServiceEventName, Priority>> = {
  serviceStarted: 'info',
  serviceStopped: 'info',
  drift: 'notice',
  repaired: 'notice',
  repairFailed: 'warning',
  repairLimit: 'err',
  packageManager: 'info',
  consumerRestarted: 'notice',
  restartDeferred: 'notice',
  hostLost: 'warning',
  hostBack: 'notice',
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
        // Native: loaded only when there is something to say.
        const { default: journald } = await import('systemd-journald');
        journald[entry.priority](entry.message, entry.fields);
      } catch (error) {
        // No addon on this machine. The command's own output has said it already.
        if (!told) otherwise(withoutFields(error));
        told = true;
        otherwise(entry);
      }
    },
  };
}

/** Told once: who looks for MESSAGE_ID or VGPU_UNIT in the journal has to know why there is nothing. */
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

/** The entry for a message. Fields without a value are left out. */
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
  if ('text' in message) {
    const { profile, unit, text, fields = {} } = message;
    const named = Object.entries(fields).map(([name, value]): [string, string | null] => [
      `VGPU_${name}`,
      value === null ? null : String(value),
    ]);
    return {
      priority: priorities[message.kind],
      message: unit === null ? text : `${unit}: ${text}`,
      fields: present({
        ...common,
        VGPU_PROFILE: profile,
        VGPU_UNIT: unit,
        ...Object.fromEntries(named),
      }),
    };
  }
  const words = { installed: 'installed', uninstalled: 'uninstalled', rolledBack: 'installation undone' };
  return {
    priority: 'notice',
    message: `${message.unit}: vgpu ${words[message.kind]} (${message.changes} changes)`,
    fields: present({
      ...common,
      VGPU_PROFILE: message.profile,
      VGPU_UNIT: message.unit,
      VGPU_STORE: message.storeId,
      VGPU_CHANGES: String(message.changes),
    }),
  };
}

function present(fields: Readonly<Record<string, string | null>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(fields).filter((field): field is [string, string] => field[1] !== null && field[1] !== ''),
  );
}
