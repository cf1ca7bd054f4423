/**
 * Typed reads of a D-Bus property bag (`GetAll`). dbus-next hands over untyped values: variants as
 * `{signature, value}`, 64-bit integers as bigint, byte arrays as Buffer. A property that is missing (an
 * older systemd) or of another type reads as the fall-back, never as a crash.
 */
export type PropertyBag = Readonly<Record<string, unknown>>;

export function bagOf(reply: unknown): PropertyBag {
  if (typeof reply !== 'object' || reply === null) return {};
  return Object.fromEntries(
    Object.entries(reply).map(([name, variant]) => [
      name,
      typeof variant === 'object' && variant !== null && 'value' in variant ? variant.value : variant,
    ]),
  );
}

export function text(bag: PropertyBag, name: string, fallback = ''): string {
  const value = bag[name];
  return typeof value === 'string' ? value : fallback;
}

export function flag(bag: PropertyBag, name: string): boolean {
  return bag[name] === true;
}

/** A number that fits a double; 64-bit ones are rounded by the caller's choice of this function. */
export function count(bag: PropertyBag, name: string): number {
  const value = bag[name];
  if (typeof value === 'bigint') return Number(value);
  return typeof value === 'number' ? value : 0;
}

export function texts(bag: PropertyBag, name: string): readonly string[] {
  const value = bag[name];
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}

export function structs(bag: PropertyBag, name: string): readonly (readonly unknown[])[] {
  const value = bag[name];
  return Array.isArray(value) ? value.filter((item): item is unknown[] => Array.isArray(item)) : [];
}

/** A byte array as lower-case hex; null when empty. */
export function hex(bag: PropertyBag, name: string): string | null {
  const value = bag[name];
  if (value instanceof Uint8Array || Array.isArray(value)) {
    const digits = Buffer.from(value).toString('hex');
    return digits === '' ? null : digits;
  }
  return null;
}
