/**
 * Keeps the process small: the engine collects when it needs room, not when there is nothing else to do, and
 * a service that sleeps for hours should not sleep on its garbage.
 */

export interface Memory {
  /** Work was done; collects soon after the last of it, and in a long row of it now and then. */
  used(): void;
  stop(): void;
}

const quietMs = 300;
/** A pass leaves about 1 MB behind. */
const worksBetween = 8;

/** `collect` is `globalThis.gc` (node --expose-gc), or undefined without it: then nothing is done. */
export function memory(collect: (() => void) | undefined): Memory {
  let timer: NodeJS.Timeout | null = null;
  let works = 0;
  const now = (): void => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    works = 0;
    collect?.();
  };
  return {
    used() {
      if (collect === undefined) return;
      works += 1;
      if (works >= worksBetween) {
        now();
        return;
      }
      if (timer !== null) clearTimeout(timer);
      timer = setTimeout(now, quietMs);
    },
    stop() {
      if (timer !== null) clearTimeout(timer);
      timer = null;
    },
  };
}
