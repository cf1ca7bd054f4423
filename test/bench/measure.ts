// Measurements and their comparisons: samples taken in turn, A B A B, so that whatever else the
// machine does meets both alike. The number that counts is the ratio.

export type Unit = 'ms' | 'us' | 'GB/s' | 'M/s' | 'calls' | 'tokens/s';

export interface Series {
  readonly name: string;
  readonly unit: Unit;
  /** One a round; those of one comparison belong together by their place. */
  readonly samples: readonly number[];
}

/** The aim for the median of the ratios: at most, or at least, this. */
export type Aim = { readonly atMost: number } | { readonly below: number } | { readonly atLeast: number };

export interface BesideSeries extends Series {
  readonly aim?: Aim;
}

export interface Comparison {
  readonly title: string;
  /** Ours. */
  readonly subject: Series;
  /** The comparison in the same rounds. */
  readonly beside: readonly BesideSeries[];
}

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** An entry of the benchmark. It runs inside the guest, unless it starts a machine of its own. */
export interface Entry {
  readonly name: string;
  /** One sentence. */
  readonly what: string;
  /** Rounds unless --runs says otherwise. */
  readonly runs: number;
  /** Why it cannot be measured here; left out: it always can. */
  readonly missing?: string | false;
  /** It runs outside of the guest. */
  readonly outside?: boolean;
  measure(runs: number): Promise<readonly Comparison[]>;
}

/** Throws for no samples: an entry that measured nothing must not look like a measurement. */
export function spread(samples: readonly number[]): Spread {
  const sorted = [...samples].sort((a, b) => a - b);
  const [min] = sorted;
  const max = sorted.at(-1);
  const low = sorted[Math.floor((sorted.length - 1) / 2)];
  const high = sorted[Math.ceil((sorted.length - 1) / 2)];
  if (min === undefined || max === undefined || low === undefined || high === undefined) {
    throw new Error('no samples');
  }
  return { median: (low + high) / 2, min, max };
}

/** The spread of subject / other, round by round. */
export function ratio(subject: Series, other: Series): Spread {
  return spread(
    subject.samples.map((value, index) => {
      const beside = other.samples[index];
      if (beside === undefined || !(beside > 0)) {
        throw new Error(`${subject.name} has nothing beside it in round ${index}: ${other.name}`);
      }
      return value / beside;
    }),
  );
}

export function isReached(aim: Aim, { median }: Spread): boolean {
  if ('atMost' in aim) return median <= aim.atMost;
  return 'below' in aim ? median < aim.below : median >= aim.atLeast;
}

/** One side of a comparison: does the thing once and gives the sample, in `unit`. */
export interface Side {
  readonly name: string;
  readonly unit: Unit;
  once(): number | Promise<number>;
}

/**
 * Takes `runs` samples of each side, in turn. A round before them is thrown away: it reads programs from the
 * disk and fills caches.
 */
export async function inTurn(
  title: string,
  runs: number,
  [subject, ...beside]: readonly [Side, ...Side[]],
): Promise<Comparison> {
  const sides = [subject, ...beside];
  const samples = sides.map((): number[] => []);
  for (let round = 0; round <= runs; round++) {
    for (const [index, side] of sides.entries()) {
      const value = await side.once();
      if (round > 0) samples[index]?.push(value);
    }
  }
  const [first, ...rest] = sides.map(({ name, unit }, index) => ({
    name,
    unit,
    samples: samples[index] ?? [],
  }));
  if (first === undefined) throw new Error('a comparison without sides');
  return { title, subject: first, beside: rest };
}
