/** How often the service may do something: per-cause back-off and a ceiling an hour. Pure; times in milliseconds. */

export interface Limits {
  readonly perHour: number;
  /** The pause after the second time in a row; doubled each time. */
  readonly backoffMs: number;
  readonly minimumMs: number;
}

export type Permission =
  | { readonly kind: 'now' }
  | { readonly kind: 'later'; readonly at: number }
  /** The ceiling is reached; the first of the hour's falls out of the window at `at`. */
  | { readonly kind: 'exhausted'; readonly at: number; readonly times: number };

export interface Done {
  /** When, of the latest hour and at most as many as the ceiling, the oldest first. */
  readonly times: readonly number[];
  /** The one that was noted last is at the end. */
  readonly causes: ReadonlyMap<string, { readonly times: number; readonly last: number }>;
}

export const nothingDone: Done = { times: [], causes: new Map() };

const hourMs = 3_600_000;
/** A cause that kept quiet so long begins again. */
const forgetMs = 600_000;
const longestPauseMs = 300_000;
/** Causes are paths and units; more at once cannot happen in any sequence we know of. */
const maxCauses = 500;

export function mayDo(done: Done, limits: Limits, causes: readonly string[], now: number): Permission {
  const times = done.times.filter((at) => now - at < hourMs);
  const { perHour, minimumMs } = limits;
  if (times.length >= perHour) {
    const first = times[times.length - perHour] ?? now;
    return { kind: 'exhausted', at: first + hourMs, times: times.length };
  }
  const last = times.at(-1);
  const at = Math.max(
    last === undefined ? 0 : last + minimumMs,
    ...causes.map((cause) => notBefore(done, limits, cause, now)),
  );
  return at > now ? { kind: 'later', at } : { kind: 'now' };
}

export function noted(done: Done, limits: Limits, causes: readonly string[], now: number): Done {
  // Kept up to the ceiling only: what is older cannot matter.
  const times = [...done.times, now].slice(-limits.perHour);
  const known = new Map(done.causes);
  for (const name of causes) {
    const cause = known.get(name);
    const again = cause === undefined || now - cause.last >= forgetMs ? 1 : cause.times + 1;
    known.delete(name);
    known.set(name, { times: again, last: now });
  }
  return { times, causes: new Map([...known].slice(-maxCauses)) };
}

function notBefore(done: Done, { backoffMs }: Limits, name: string, now: number): number {
  const cause = done.causes.get(name);
  if (cause === undefined || now - cause.last >= forgetMs) return 0;
  // Twice is an accident (a package's upgrade does things twice); from the third on it is a pattern.
  if (cause.times < 2) return 0;
  return cause.last + Math.min(backoffMs * 2 ** (cause.times - 2), longestPauseMs);
}
