/**
 * Starts after crashes. systemd starts the service again however often it ends, because drift must be repaired again some
 * time. RestartSteps=, which lengthens the pauses, is of systemd 254, so the service itself waits, and reports it.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { getHeapSpaceStatistics } from 'node:v8';

interface Crashes {
  /** Ends without a clean stop within the last ten minutes. */
  readonly recent: number;
  readonly pauseMs: number;
  forget(): void;
}

const windowMs = 600_000;
/** An upgrade, a bus that restarts: so many in a row are answered at once. */
const free = 8;
const firstPauseMs = 400;
const longestPauseMs = 30_000;
const mostKept = 64;

/** `now`: milliseconds since boot; `file` lies in /run, so the times in it are of the same boot. */
export function noteStart(file: string, now: number): Crashes {
  const starts = [...startsIn(file).filter((at) => at <= now && now - at < windowMs), now].slice(-mostKept);
  const forget = (): void => rmSync(file, { force: true });
  const recent = starts.length - 1;
  const pauseMs = recent < free ? 0 : Math.min(firstPauseMs * 2 ** (recent - free), longestPauseMs);
  try {
    writeFileSync(file, JSON.stringify(starts), { mode: 0o600 });
  } catch {
    // Run by hand without its directory in /run, or no space is left: there is no pause then.
    return { recent: 0, pauseMs: 0, forget() {} };
  }
  return { recent, pauseMs, forget };
}

function startsIn(file: string): readonly number[] {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return Array.isArray(value) ? value.filter((at) => typeof at === 'number') : [];
  } catch {
    return [];
  }
}

// Keeps the process small: the engine collects when it needs room, not when there is nothing else to do, and
// a service that sleeps for hours should not sleep on its garbage.

interface Memory {
  /** With every tick: collects when more than a little was allocated since the last time. */
  tick(): void;
}

interface Size {
  readonly old: number;
  /** Of buffers. */
  readonly external: number;
}

interface MemoryEffects {
  readonly collect: () => void;
  readonly size: () => Size;
}

/**
 * Less is not worth a collection, which takes as long as twenty looks. Looks leave a megabyte of buffers behind, which the
 * engine frees with its young generation (--max-semi-space-size=1) three times a minute.
 */
const worthBytes: Size = { old: 1.5 * 1024 * 1024, external: 4 * 1024 * 1024 };

/** `effects`: null without `node --expose-gc`; then nothing is done. */
export function memory(effects: MemoryEffects | null): Memory {
  let floor: Size = { old: 0, external: 0 };
  return {
    tick() {
      if (effects === null) return;
      const { old, external } = effects.size();
      if (old - floor.old < worthBytes.old && external - floor.external < worthBytes.external) return;
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
    size: () => ({
      old: getHeapSpaceStatistics().reduce(
        (sum, { space_name, space_used_size }) => sum + (space_name === 'new_space' ? 0 : space_used_size),
        0,
      ),
      external: process.memoryUsage().external,
    }),
  };
}

// One timer for everything that is periodic: the watchdog, the host, removal of old versions, and now and then a full
// inspection.

/** Without systemd's watchdog the host is looked at so often. */
const defaultTickMs = 5_000;

interface PulseEffects {
  /** `WATCHDOG_USEC` of the environment: systemd ends a service that is silent for so long. */
  readonly watchdog: string | undefined;
  /** Minutes between two full looks. It may change while the service runs. */
  readonly checkMinutes: () => number;
  readonly tick: () => void;
  readonly check: () => void;
}

export function pulse({ watchdog, checkMinutes, tick, check }: PulseEffects): () => void {
  // Twice in the time that the watchdog allows, as sd_watchdog_enabled(3) says.
  const half = Number(watchdog ?? '0') / 2_000;
  const everyMs = half > 0 ? half : defaultTickMs;
  let sinceCheck = 0;
  const timer = setInterval(() => {
    tick();
    sinceCheck += everyMs;
    if (sinceCheck < checkMinutes() * 60_000) return;
    sinceCheck = 0;
    check();
  }, everyMs);
  return () => clearInterval(timer);
}
