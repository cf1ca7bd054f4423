/** Limits actions: a back-off for each cause, and a ceiling per hour. Pure; times in milliseconds. */

export interface Limits {
  readonly perHour: number;
  /** The pause after the second time in a row; doubled each time. */
  readonly backoffMs: number;
  readonly minimumMs: number;
}

export type Permission =
  | { readonly kind: 'now' }
  | { readonly kind: 'later'; readonly at: number }
  /** The ceiling is reached; the oldest action leaves the window at `at`. */
  | { readonly kind: 'exhausted'; readonly at: number; readonly times: number };

export interface Done {
  /** Times of the last hour's actions, at most as many as the ceiling, the oldest first. */
  readonly times: readonly number[];
  readonly causes: ReadonlyMap<string, { readonly times: number; readonly last: number }>;
}

export const nothingDone: Done = { times: [], causes: new Map() };

const hourMs = 3_600_000;
/** Time after which a cause's back-off is reset. */
const forgetMs = 600_000;
const longestPauseMs = 300_000;
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
  // Older times have no effect.
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
  // Back off from the third time on: a package's upgrade may change a path twice.
  if (cause.times < 2) return 0;
  return cause.last + Math.min(backoffMs * 2 ** (cause.times - 2), longestPauseMs);
}
