/** Whether the lines of a unit reach the journal, and which of its namespaces. Pure. */
import type { UnitFacts } from '../contracts/unit.js';

export interface Bypass {
  /** As a unit file has it: `StandardError=null`. */
  readonly setting: string;
  readonly repair: string;
}

/** The setting that keeps what the unit writes from the journal, or null. Consumers log to standard error. */
export function journalBypass(unit: UnitFacts): Bypass | null {
  if (unit.kind !== 'loaded') return null;
  const target =
    unit.standardError === 'inherit' || unit.standardError === '' ? unit.standardOutput : unit.standardError;
  if (!/^(?:journal|kmsg|syslog|inherit|$)/.test(target)) {
    const repair = 'set StandardOutput=journal and StandardError=journal';
    return { setting: `StandardError=${target}`, repair };
  }
  const levelMax = unit.logging?.levelMax ?? null;
  return levelMax === null ? null : { setting: `LogLevelMax=${levelMax}`, repair: 'set LogLevelMax=info' };
}

/** LogNamespace= of the unit; empty: the system's own journal. */
export function logNamespace(unit: UnitFacts): string {
  return unit.kind === 'loaded' ? (unit.logging?.namespace ?? '') : '';
}

/**
 * The option of journalctl(1) that shows a namespace beside the system's journal, where systemd's own entries about a
 * unit go. None for the system's own: journalctl before systemd 245 does not have the option.
 */
export function namespaceOption(namespace: string): readonly string[] {
  return namespace === '' ? [] : [`--namespace=+${namespace}`];
}
