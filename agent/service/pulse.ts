/**
 * One timer for everything that is periodic: the watchdog, the host, removal of old versions, and now and then a full
 * inspection.
 */

/** Without systemd's watchdog the host is looked at so often. */
const defaultTickMs = 5_000;

export interface PulseEffects {
  /** `WATCHDOG_USEC` of the environment: systemd ends a service that is silent for so long. */
  readonly watchdog: string | undefined;
  /** Minutes between two full looks. It may change while the service runs. */
  readonly checkMinutes: () => number;
  readonly tick: () => void;
  readonly check: () => void;
}

/** Answers what stops it. */
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
