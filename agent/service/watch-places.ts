/**
 * The directories to watch for drift: everything that a plan inspects, and nothing else, so that an idle machine causes
 * no wake-ups. Pure: from profile, facts and manifest.
 */
import path from 'node:path';
import type { MachineFacts } from '../contracts/facts.js';
import type { Manifest } from '../contracts/manifest.js';
import {
  agentConf,
  cdiDirectories,
  guestConf,
  loaderConf,
  manifestFile,
  storeRoot,
  storeVersions,
  trialFile,
} from '../lib/paths.js';
import type { Profile } from '../profile/types.js';

/** Names in a directory that matter; null: all of them. */
export type Places = ReadonlyMap<string, ReadonlySet<string> | null>;

/**
 * Directories and the names in them that are watched. A library's directory is watched for any libcuda* and
 * libnvidia-ml*, whatever version: `isLibrary` decides, so such names are not listed.
 */
export function watchPlaces(profile: Profile, facts: MachineFacts | null, manifest: Manifest | null): Places {
  const places = new Map<string, Set<string> | null>();
  const all = (directory: string): void => {
    places.set(directory, null);
  };
  const one = (file: string): void => {
    const directory = path.dirname(file);
    if (!places.has(directory)) places.set(directory, new Set());
    places.get(directory)?.add(path.basename(file));
  };
  one(agentConf);
  one(guestConf);
  one(loaderConf);
  one(manifestFile);
  one(trialFile);
  one(storeRoot);
  all(storeRoot);
  all(storeVersions);
  one('/etc/ld.so.cache');
  one('/etc/alternatives/nvidia');
  one('/etc/alternatives/glx');
  const { unit } = profile;
  one(`/etc/systemd/system/${unit}`);
  one(`/etc/systemd/system/${unit}.d`);
  all(`/etc/systemd/system/${unit}.d`);
  if (facts?.unit.kind === 'loaded' && facts.unit.fragment !== '') one(facts.unit.fragment);
  if (facts?.containers?.wanted === true) {
    for (const directory of cdiDirectories) {
      one(directory);
      all(directory);
    }
  }
  const quadlet = facts?.containers?.dropIn;
  if (quadlet != null) all(path.dirname(quadlet.path));
  for (const item of manifest?.items ?? []) {
    if (item.kind === 'alternative') one(`/etc/alternatives/${item.group}`);
    else if (item.kind === 'directory') {
      if (item.path.startsWith(`${storeVersions}/`)) all(item.path);
    } else one(item.path);
  }
  for (const candidate of facts?.candidates ?? []) one(candidate.path);
  return places;
}

/** The places that several consumers need watched, merged. */
export function allPlaces(places: Iterable<Places>): Places {
  const merged = new Map<string, ReadonlySet<string> | null>();
  for (const one of places) {
    for (const [directory, names] of one) {
      const known = merged.get(directory);
      const every = names === null || known === null;
      merged.set(directory, every ? null : new Set([...(known ?? []), ...names]));
    }
  }
  return merged;
}

/** Names that matter in every watched directory: a driver's package brings them with any version. */
export function isLibrary(name: string): boolean {
  return name.startsWith('libcuda.so') || name.startsWith('libnvidia-ml.so');
}

/** Temporary files of vgpu-agent and of ldconfig: their final name causes its own event. */
export function isTemporary(name: string): boolean {
  return name.endsWith('.vgpu-new') || name === 'ld.so.cache~';
}
