/**
 * Keeps the process small: the engine collects when it needs room, not when there is nothing else to do, and
 * a service that sleeps for hours should not sleep on its garbage.
 */

export interface Memory {
  /** With every tick: collects when more than a little was allocated since the last time. */
  tick(): void;
}

export interface MemoryEffects {
  /** Collects everything that can be collected. */
  readonly collect: () => void;
  /** Bytes that are in use now, garbage included. */
  readonly size: () => number;
}

/**
 * Less is not worth a collection, which takes some ten milliseconds. The garbage of looks stays below it: the engine
 * collects that by itself in its young generation (--max-semi-space-size=1).
 */
const worthBytes = 1.5 * 1024 * 1024;

/** `effects`: null without `node --expose-gc`; then nothing is done. */
export function memory(effects: MemoryEffects | null): Memory {
  let floor = 0;
  return {
    tick() {
      if (effects === null || effects.size() - floor < worthBytes) return;
      // Objects that the first collection finds unused hold memory outside the heap; the second one frees it.
      effects.collect();
      effects.collect();
      floor = effects.size();
    },
  };
}

/** The engine's own collector, as far as `--expose-gc` lets us have it. */
export function engineMemory(): MemoryEffects | null {
  const { gc } = globalThis;
  if (gc === undefined) return null;
  return {
    collect() {
      gc();
      // Also code that was not run for a while: 4 MB in Node 24. Node 20 does not know it and collects a little only.
      gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    },
    size: () => {
      const { heapUsed, external } = process.memoryUsage();
      return heapUsed + external;
    },
  };
}
