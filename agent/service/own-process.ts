/**
 * Starts after crashes. systemd restarts the service without a limit, so that drift is repaired eventually. Before
 * systemd 254 there is no RestartSteps= to lengthen the pauses, so the service itself waits, and reports it.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { getHeapSpaceStatistics } from 'node:v8';

const windowMs = 600_000;
/** Number of crashes without a pause, as in an upgrade or a restart of the bus. */
const free = 8;
const firstPauseMs = 400;
const longestPauseMs = 30_000;
const mostKept = 64;

/** `now`: milliseconds since boot; `file` is in /run, so its times are of the same boot. */
export function noteStart(file: string, now: number) {
  const starts = [...startsIn(file).filter((at) => at <= now && now - at < windowMs), now].slice(-mostKept);
  const forget = (): void => rmSync(file, { force: true });
  const recent = starts.length - 1;
  const pauseMs = recent < free ? 0 : Math.min(firstPauseMs * 2 ** (recent - free), longestPauseMs);
  try {
    writeFileSync(file, JSON.stringify(starts), { mode: 0o600 });
  } catch {
    // No directory in /run (started by hand) or no space: no pause.
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

// Keeps the process small: the engine collects garbage only when it needs memory, but this service sleeps for hours.

export type Memory = ReturnType<typeof memory>;

interface Size {
  readonly old: number;
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

/**
 * The ticks after a collection at which others follow. What the work in progress holds during a collection, such as the
 * judgement after a boot, becomes garbage that makes the heap no larger than it was.
 */
const followUps: ReadonlySet<number> = new Set([1, 2, 4, 8]);

/** `effects`: null without `node --expose-gc`; then this does nothing. */
export function memory(effects: MemoryEffects | null) {
  let floor: Size = { old: 0, external: 0 };
  /** Since the last collection that was worth it. */
  let ticks = 0;
  return {
    /** Called with every tick: collects if enough was allocated since the last collection, and several times after that. */
    tick(): void {
      if (effects === null) return;
      const { old, external } = effects.size();
      const isWorth = old - floor.old >= worthBytes.old || external - floor.external >= worthBytes.external;
      ticks = isWorth ? 0 : ticks + 1;
      if (!isWorth && !followUps.has(ticks)) return;
      // Objects that the first collection finds unused hold memory outside the heap; the second one frees it.
      effects.collect();
      effects.collect();
      floor = effects.size();
    },
  };
}

export function engineMemory(): MemoryEffects | null {
  const { gc } = globalThis;
  if (gc === undefined) return null;
  return {
    collect() {
      gc();
      // Also collects unused compiled code: 4 MB in Node 24. Node 20 ignores the option.
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

// One timer for all periodic work: the watchdog, the host, removal of old versions, and full inspections.

const defaultTickMs = 5_000;

interface PulseEffects {
  /** `WATCHDOG_USEC` of the environment: systemd ends a service without a ping for this time. */
  readonly watchdog: string | undefined;
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
