/**
 * Milliseconds that only go forward, whatever happens to the machine's clock: limits, pauses and durations are counted in
 * them. They begin with the time of day at which the service began, so that a later moment can be shown as a time of day; it
 * is off by what the clock was set meanwhile.
 */
export function steadyNow(): number {
  return performance.timeOrigin + performance.now();
}
