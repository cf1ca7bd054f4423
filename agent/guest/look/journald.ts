/** journald's settings that decide which lines it keeps (journald.conf(5)). Reads, never writes. */
import path from 'node:path';
import { lastAssignment } from '../../lib/unit-file.js';
import type { Root } from '../files/root.js';

const keys = ['Storage', 'MaxLevelStore', 'RateLimitBurst', 'RateLimitIntervalSec'] as const;

export interface JournaldSetting {
  readonly value: string;
  readonly file: string;
}

/** A key that no file sets is absent. */
export type JournaldLook = Readonly<Partial<Record<(typeof keys)[number], JournaldSetting>>>;

/** The first that has a file of a name has the only one of that name. */
const places = ['/etc/systemd', '/run/systemd', '/usr/local/lib/systemd', '/usr/lib/systemd'];
const maxBytes = 64 * 1024;

/** The settings of the journald of a namespace; '' names the system's own. */
export function readJournald(root: Root, namespace: string): JournaldLook {
  const name = namespace === '' ? 'journald.conf' : `journald@${namespace}.conf`;
  const dropIns = new Map<string, string>();
  for (const place of places) {
    const directory = path.join(place, `${name}.d`);
    for (const file of root.readdir(directory)) {
      if (file.endsWith('.conf') && !dropIns.has(file)) dropIns.set(file, path.join(directory, file));
    }
  }
  const main = places.map((place) => path.join(place, name)).find((file) => textOf(root, file) !== null);
  const last = [...dropIns].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, file]) => file);
  const files = [...(main === undefined ? [] : [main]), ...last].toReversed();
  const look: Partial<Record<(typeof keys)[number], JournaldSetting>> = {};
  for (const key of keys) {
    for (const file of files) {
      const value = lastAssignment([textOf(root, file) ?? ''], 'Journal', key);
      if (value === null) continue;
      look[key] = { value, file };
      break;
    }
  }
  return look;
}

function textOf(root: Root, file: string): string | null {
  try {
    return root.readFile(file, maxBytes)?.toString('utf8') ?? null;
  } catch {
    return null;
  }
}
