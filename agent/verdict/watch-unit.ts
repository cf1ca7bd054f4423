/** Watches the unit: does it run, and is it still the same start? */
import type { UnitFacts } from '../contracts/unit.js';
import type { ConfirmEffects } from './observation.js';

const unitEveryMs = 250;
const maxRestarts = 3;
/** A unit that is inactive this long after a restart job is not starting. */
const idleLooks = 4;

export function watchUnit(
  effects: Pick<ConfirmEffects, 'unit' | 'clock'>,
  first: UnitFacts,
  expected: { readonly invocationId: string | null; readonly restarts: number | null },
  onStart: (invocationId: string) => void,
  signal: AbortSignal,
) {
  let unit = first;
  let invocationId = expected.invocationId;
  let base = expected.restarts;
  let changes = 0;
  let counted = 0;
  let idle = 0;
  let trouble: 'failed' | 'restarting' | null = null;
  let lastFailure: UnitFacts | null = null;

  const consider = (seen: UnitFacts): void => {
    unit = seen;
    if (seen.kind !== 'loaded') {
      trouble = 'failed';
      return;
    }
    if (seen.result !== 'success' && seen.result !== '') lastFailure = seen;
    base ??= seen.restarts;
    // `systemctl restart` resets the counter, so a smaller number is a new beginning.
    base = Math.min(base, seen.restarts);
    counted = Math.max(counted, seen.restarts - base);
    if (seen.invocationId !== null && seen.invocationId !== invocationId) {
      if (invocationId !== null) changes += 1;
      invocationId = seen.invocationId;
      onStart(seen.invocationId);
    }
    const down = seen.activeState === 'inactive' || seen.activeState === 'deactivating';
    idle = down ? idle + 1 : 0;
    if (seen.activeState === 'failed' || idle >= idleLooks) trouble = 'failed';
    else if (Math.max(changes, counted) >= maxRestarts) trouble = 'restarting';
    else trouble = null;
  };

  const look = async (): Promise<void> => {
    // The bus may be unavailable briefly (daemon-reload); keep the last state.
    const seen = await effects.unit().catch(() => null);
    if (seen !== null && !signal.aborted) consider(seen);
  };

  const run = async (): Promise<void> => {
    // `onStart` reaches for watches that the caller is still putting together.
    await Promise.resolve();
    consider(first);
    while (!signal.aborted) {
      await effects.clock.sleep(unitEveryMs, signal);
      if (!signal.aborted) await look();
    }
  };

  return {
    unit: () => unit,
    /** The state after its last failure, because a unit that runs again no longer has it. */
    lastFailure: () => lastFailure,
    invocationId: () => invocationId,
    restarts: () => Math.max(changes, counted),
    look,
    /** `failed`: systemd will not start it again; `restarting`: it was started too often. */
    trouble: () => trouble,
    done: run(),
  };
}
