/** A profile for a service of another name: an instance of a template, or a unit that was renamed. */
import type { Profile } from './types.js';

export function forUnit(profile: Profile, unit: string): Profile {
  return profile.unit === unit ? profile : { ...profile, unit };
}

export function fits(profile: Profile, unit: string): boolean {
  return profile.unit === unit || (unit.includes('@') && baseOf(profile.unit) === baseOf(unit));
}

/** `ollama@1.service` and `ollama.service`: `ollama`. */
function baseOf(unit: string): string {
  return unit.replace(/(?:@.*)?\.service$/, '');
}

/** The profile of services that have none: no log is read, the host's sessions decide. */
export const usualProfile = 'ollama';
export const genericProfile = 'generic';

/** The argument that names this consumer: the unit, where the profile alone would mean another one. */
export function choiceOf({ name, unit }: Pick<Profile, 'name' | 'unit'>): string {
  return unit === `${name}.service` ? `--profile ${name}` : `--unit ${unit}`;
}

export function titleOf({ name, unit }: Pick<Profile, 'name' | 'unit'>): string {
  return name === genericProfile ? unit : name;
}

// `${name}` in a profile's paths.

/** The variables of a profile: `store` is the link to the shim in use, `multiarch` the Debian triplet. */
export const variableNames = ['store', 'multiarch'] as const;
type VariableName = (typeof variableNames)[number];

export function variablesIn(text: string): readonly string[] {
  return [...text.matchAll(/\$\{([^}]*)\}/g)].map((match) => match[1] ?? '');
}

/** Null when a variable has no value here, such as `${multiarch}` outside of Debian's family. */
export function expandVariables(
  text: string,
  values: Readonly<Partial<Record<VariableName, string | null>>>,
): string | null {
  let missing = false;
  const expanded = text.replaceAll(/\$\{([^}]*)\}/g, (_whole, name: string) => {
    const value = isVariable(name) ? values[name] : undefined;
    if (value === undefined || value === null) missing = true;
    return value ?? '';
  });
  return missing ? null : expanded;
}

export function isVariable(name: string): name is VariableName {
  return variableNames.some((known) => known === name);
}
