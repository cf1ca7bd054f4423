/** How often the service may do something: per-cause back-off and a ceiling an hour. Pure; times in milliseconds. */

export interface Limits {
  readonly perHour: number;
  /** The pause after the second time in a row; doubled each time. */
  readonly backoffMs: number;
  /** Between any two, whatever their cause. */
  readonly minimumMs: number;
}

export type Permission =
  | { readonly kind: 'now' }
  /** Not before `at`. */
  | { readonly kind: 'later'; readonly at: number }
  /** The ceiling is reached; the first of the hour's falls out of the window at `at`. */
  | { readonly kind: 'exhausted'; readonly at: number; readonly times: number };

const hourMs = 3_600_000;
/** A cause that kept quiet so long begins anew. */
const forgetMs = 600_000;
const longestPauseMs = 300_000;
/** Causes are paths and units; more than this at once is no order of things that we know. */
const maxCauses = 500;

interface Cause {
  times: number;
  last: number;
}

export class Limiter {
  readonly #causes = new Map<string, Cause>();
  #done: number[] = [];
  #limits: Limits;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  set limits(limits: Limits) {
    this.#limits = limits;
  }

  /** May it be done now, for all of these causes? */
  ask(causes: readonly string[], now: number): Permission {
    this.#done = this.#done.filter((at) => now - at < hourMs);
    const { perHour, minimumMs } = this.#limits;
    if (this.#done.length >= perHour) {
      const first = this.#done[this.#done.length - perHour] ?? now;
      return { kind: 'exhausted', at: first + hourMs, times: this.#done.length };
    }
    const last = this.#done.at(-1);
    const at = Math.max(
      last === undefined ? 0 : last + minimumMs,
      ...causes.map((cause) => this.#notBefore(cause, now)),
    );
    return at > now ? { kind: 'later', at } : { kind: 'now' };
  }

  /** It was done (or tried) for these causes. */
  note(causes: readonly string[], now: number): void {
    // Kept up to the ceiling only: what is older cannot matter.
    this.#done.push(now);
    if (this.#done.length > this.#limits.perHour) this.#done.shift();
    for (const name of causes) {
      const cause = this.#causes.get(name);
      const times = cause === undefined || now - cause.last >= forgetMs ? 1 : cause.times + 1;
      this.#causes.delete(name);
      this.#causes.set(name, { times, last: now });
    }
    for (const name of this.#causes.keys()) {
      if (this.#causes.size <= maxCauses) break;
      this.#causes.delete(name);
    }
  }

  /** Everything is forgotten: a person has looked at it. */
  reset(): void {
    this.#causes.clear();
    this.#done = [];
  }

  #notBefore(name: string, now: number): number {
    const cause = this.#causes.get(name);
    if (cause === undefined || now - cause.last >= forgetMs) return 0;
    // Twice is an accident (a package's upgrade does things twice); from the third on it is a pattern.
    if (cause.times < 2) return 0;
    const pause = Math.min(this.#limits.backoffMs * 2 ** (cause.times - 2), longestPauseMs);
    return cause.last + pause;
  }
}
