/** Is a package manager at work? Then it is waited for: what it changes now it may change again. */
import { existsSync } from 'node:fs';
import type { Helper } from './helper.js';

/** Held with fcntl(2) while dpkg, apt or rpm work. */
const lockedFiles = ['/var/lib/dpkg/lock-frontend', '/var/lib/dpkg/lock', '/var/lib/rpm/.rpm.lock'];
/** There while pacman works. */
const markerFiles = ['/var/lib/pacman/db.lck'];

/** The running package manager, as text for the user; null: none. */
export async function packageManagerAtWork(helper: Pick<Helper, 'lockHolder'>): Promise<string | null> {
  const marker = markerFiles.find((file) => existsSync(file));
  if (marker !== undefined) return marker;
  for (const file of lockedFiles) {
    if (!existsSync(file)) continue;
    const holder = await helper.lockHolder(file);
    if (holder !== null) return `process ${holder}, which holds ${file}`;
  }
  return null;
}
