/** Debian's alternatives groups that decide a libcuda or libnvidia-ml link, from dpkg's own records. */
import path from 'node:path';
import type { AlternativeGroup } from '../../contracts/facts.js';
import type { Root } from '../files/root.js';

const adminDirectory = '/var/lib/dpkg/alternatives';
const linkDirectory = '/etc/alternatives';
const maxAdminBytes = 1024 * 1024;
const driverLibrary = /^lib(cuda|nvidia-ml)\.so(\.|$)/;

export function readAlternatives(root: Root): readonly AlternativeGroup[] {
  const groups: AlternativeGroup[] = [];
  for (const name of root.readdir(adminDirectory)) {
    const bytes = root.readFile(path.join(adminDirectory, name), maxAdminBytes);
    if (bytes === null || !/libcuda|libnvidia-ml/.test(bytes.toString('latin1'))) continue;
    const value = root.readlink(path.join(linkDirectory, name)) ?? 'none';
    const group = parseAlternative(name, bytes.toString('utf8'), value);
    if (group === null) continue;
    const links = [group.link, ...group.slaves.map((slave) => slave.link)];
    if (links.some((link) => driverLibrary.test(path.basename(link)))) groups.push(group);
  }
  return groups;
}

/**
 * Parses an admin file (update-alternatives.c, alternative_load): status; link; pairs of slave name and link
 * up to an empty line; then for every choice its path, its priority and one line a slave (empty: the choice
 * has no such slave), up to an empty path. Null when it ends early or a priority is no number.
 */
export function parseAlternative(name: string, text: string, value: string): AlternativeGroup | null {
  const lines = text.split('\n');
  let at = 0;
  const next = (): string | undefined => lines[at++];

  const status = next();
  const link = next();
  if ((status !== 'auto' && status !== 'manual') || !link) return null;
  const slaves: { name: string; link: string }[] = [];
  for (let slave = next(); slave !== ''; slave = next()) {
    const slaveLink = next();
    if (slave === undefined || slaveLink === undefined) return null;
    slaves.push({ name: slave, link: slaveLink });
  }
  const choices: { path: string; priority: number; slaves: Record<string, string> }[] = [];
  for (let choice = next(); choice !== ''; choice = next()) {
    const priority = next();
    if (choice === undefined || priority === undefined || !/^[+-]?\d+$/.test(priority)) return null;
    const files: [name: string, file: string][] = [];
    for (const slave of slaves) {
      const file = next();
      if (file === undefined) return null;
      if (file !== '') files.push([slave.name, file]);
    }
    choices.push({ path: choice, priority: Number(priority), slaves: Object.fromEntries(files) });
  }
  return { name, link, status, value, slaves, choices };
}
