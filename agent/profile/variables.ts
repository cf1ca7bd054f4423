/** `${name}` in a profile's paths. */

/** The variables of a profile: `store` is the link to the shim in use, `multiarch` the Debian triplet. */
export const variableNames = ['store', 'multiarch'] as const;
export type VariableName = (typeof variableNames)[number];

/** Names that `text` refers to, in order, known or not. */
export function variablesIn(text: string): readonly string[] {
  return [...text.matchAll(/\$\{([^}]*)\}/g)].map((match) => match[1] ?? '');
}

/**
 * `text` with its variables replaced, or null when one has no value here (a path
 * with `${multiarch}` on a distribution that has no such directories).
 */
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
