import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { errnoOf, VgpuError } from '../lib/errors.js';
import { packageRoot, userProfiles } from '../lib/paths.js';
import { describing } from '../lib/schema.js';
import type { Profile } from './types.js';
import {
  badFile,
  createProfileValidator,
  type ProfileValidator,
  parseJson,
  problemLines,
} from './validate.js';

export interface ProfilePlaces {
  readonly directories: readonly string[];
  readonly schema: string;
}

export interface ProfileName {
  readonly name: string;
  readonly path: string;
}

const operation = 'read profile';
const nameSyntax = /^[a-z0-9][a-z0-9._-]{0,62}$/;
/** No honest profile comes near it; a wrong file (a log, a model) must not be read whole. */
const maxBytes = 1024 * 1024;

export function defaultProfilePlaces(): ProfilePlaces {
  const shipped = path.join(packageRoot(), 'profiles');
  return { directories: [userProfiles, shipped], schema: path.join(shipped, 'profile.schema.json') };
}

/** Profiles by name; of two with one name the first directory's counts. Directories that are not there are passed over. */
export function listProfiles(places: ProfilePlaces = defaultProfilePlaces()): readonly ProfileName[] {
  const found = new Map<string, string>();
  for (const directory of places.directories) {
    for (const entry of entriesOf(directory)) {
      const name = entry.slice(0, -'.json'.length);
      if (!entry.endsWith('.json') || !nameSyntax.test(name) || found.has(name)) continue;
      found.set(name, path.join(directory, entry));
    }
  }
  const shipped = path.basename(places.schema, '.json');
  found.delete(shipped);
  return [...found].map(([name, file]) => ({ name, path: file })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

function entriesOf(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return [];
    throw new VgpuError(`cannot list the profiles in ${directory}: ${String(error)}`, {
      kind: 'failed',
      operation: 'list profiles',
      path: directory,
      cause: error,
    });
  }
}

/**
 * Reads and checks the profile `name`. Throws a VgpuError of kind `profile` that
 * names file, line, field, what was given and what is allowed (every problem at
 * once), or, for an unknown name, the profiles that there are.
 */
export function loadProfile(name: string, places: ProfilePlaces = defaultProfilePlaces()): Profile {
  const known = listProfiles(places);
  const found = known.find((profile) => profile.name === name);
  if (found === undefined) throw unknownProfile(name, known, places);
  const text = readText(found.path);
  const profile: Profile = isMarked(text, places.schema)
    ? JSON.parse(text)
    : parseProfile(text, found.path, validatorOf(places.schema));
  if (profile.name !== name) {
    const given = `${JSON.stringify(profile.name)} was given, but the file is named ${JSON.stringify(`${name}.json`)}`;
    throw badProfile(found.path, [`name: ${given}; allowed: ${JSON.stringify(name)}`]);
  }
  return profile;
}

/** Whether the build has found this text of a profile valid by this schema. */
function isMarked(text: string, schemaFile: string): boolean {
  let schema: string;
  try {
    schema = readFileSync(schemaFile, 'utf8');
  } catch {
    return false; // validatorOf reports it
  }
  return existsSync(validMark(text, schema));
}

/** The file that scripts/compile-schemas.ts makes for a valid profile. A build makes all marks again. */
export function validMark(text: string, schema: string): string {
  const name = createHash('sha256').update(`${schema.length}\n${schema}${text}`).digest('hex');
  return path.join(packageRoot(), 'dist', 'agent', 'schemas', `${name}.profile`);
}

export function readableProfiles(places: ProfilePlaces = defaultProfilePlaces()): {
  readonly profiles: readonly Profile[];
  readonly problems: readonly VgpuError[];
} {
  const profiles: Profile[] = [];
  const problems: VgpuError[] = [];
  for (const { name } of listProfiles(places)) {
    try {
      profiles.push(loadProfile(name, places));
    } catch (error) {
      if (!(error instanceof VgpuError) || error.kind !== 'profile') throw error;
      problems.push(error);
    }
  }
  return { profiles, problems };
}

export function parseProfile(text: string, file: string, validate: ProfileValidator): Profile {
  const parsed = parseJson(text);
  if (parsed.kind === 'bad') throw badProfile(file, [parsed.problem]);
  const result = validate(parsed.value);
  if (result.kind === 'ok') return result.profile;
  throw badProfile(file, problemLines(text, result.problems));
}

function badProfile(file: string, lines: readonly string[]): VgpuError {
  const remedy = 'repair the file; docs/reference/profiles.md explains every field';
  return badFile(file, lines, { operation, remedy });
}

function unknownProfile(name: string, known: readonly ProfileName[], places: ProfilePlaces): VgpuError {
  const names = known.map((profile) => profile.name);
  const list = names.length === 0 ? 'No profile exists.' : `Profiles: ${names.join(', ')}.`;
  const own = places.directories[0] ?? userProfiles;
  return new VgpuError(`no profile is named ${JSON.stringify(name)}. ${list}`, {
    kind: 'profile',
    operation,
    path: own,
    remedy: `name one of these, or put a profile of your own into ${own}`,
  });
}

const unreadable: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EISDIR: 'it is a directory',
  ELOOP: 'its links form a loop',
};

function readText(file: string): string {
  try {
    const bytes = readFileSync(file);
    if (bytes.length > maxBytes) {
      throw badProfile(file, [`the file: ${bytes.length} bytes; allowed: ${maxBytes} at most`]);
    }
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (error instanceof VgpuError) throw error;
    if (error instanceof TypeError) throw badProfile(file, ['the file: the text is not UTF-8']);
    const code = errnoOf(error);
    const why = code === undefined ? undefined : unreadable[code];
    throw new VgpuError(
      `cannot read ${file}: ${why ?? (error instanceof Error ? error.message : String(error))}`,
      {
        kind: 'profile',
        operation,
        path: file,
        remedy: 'make it a file that you may read, or move it away',
        cause: error,
      },
    );
  }
}

export function validatorOf(file: string): ProfileValidator {
  try {
    const schema: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof schema !== 'object' || schema === null) throw new TypeError('no object');
    return createProfileValidator(describing({ ...schema }));
  } catch (error) {
    throw new VgpuError(`cannot use the schema of profiles ${file}: ${String(error)}`, {
      kind: 'internal',
      operation: 'read schema',
      path: file,
      remedy: 'install vgpu-agent again; files of it are missing or damaged',
      cause: error,
    });
  }
}
