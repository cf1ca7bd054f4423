/** The view that `status` shows, made from facts and verdict; the service keeps the same view on the bus. */

import type { MachineFacts } from '../../contracts/facts.js';
import type { Manifest } from '../../contracts/manifest.js';
import type { Change, Plan } from '../../contracts/plan.js';
import type { UnitFacts } from '../../contracts/unit.js';
import type { Verdict } from '../../contracts/verdict.js';
import type { ConsumerView, StatusView } from '../../contracts/views.js';
import type { Profile } from '../../profile/types.js';
import { changeTitle } from '../plan/change-title.js';
import { findConsumer } from '../plan/owned.js';

export function statusView(
  profile: Profile,
  facts: MachineFacts,
  plan: Plan | null,
  verdict: Verdict | null,
): StatusView {
  const { manifest } = facts;
  const unit = unitOf(facts.unit);
  const drift = driftOf(plan).map((change) => ({ change: changeTitle(change), reason: change.reason }));
  return {
    installed: installedOf(manifest, profile),
    interrupted: facts.interrupted,
    consumers: [{ profile: profile.name, unit, drift, verdict }],
    drift,
    unit,
    host: facts.host,
    verdict,
  };
}

/** All of them, looked at one after the other: what is the machine's is as it was seen last. */
export function allInOne(views: readonly [StatusView, ...StatusView[]]): StatusView {
  const [first] = views;
  const last = views.at(-1) ?? first;
  const { interrupted, host } = last;
  const installed = views.find((view) => view.installed !== null)?.installed ?? null;
  return {
    ...first,
    installed,
    interrupted,
    host,
    consumers: views.flatMap((view) => view.consumers),
  };
}

export function withVerdict(view: StatusView, verdict: Verdict | null): StatusView {
  const consumers = view.consumers.map((one): ConsumerView => ({ ...one, verdict }));
  return { ...view, consumers, verdict };
}

export function withVerdictOf(view: StatusView, unit: string, verdict: Verdict | null): StatusView {
  const consumers = view.consumers.map((one) => (one.unit.name === unit ? { ...one, verdict } : one));
  return { ...view, consumers, verdict: view.unit.name === unit ? verdict : view.verdict };
}

export const freshMs = 15_000;

/** The view as it is to be shown at `now` (milliseconds): the service may have stopped looking. */
export function asOf(view: StatusView, now: number): StatusView {
  return view.consumers.reduce((shown, { unit, verdict }) => {
    const age = verdict?.look === undefined ? 0 : now - Date.parse(verdict.look.at);
    if (verdict === null || age <= freshMs || unit.active?.startsWith('active ') !== true) return shown;
    const seconds = Math.round(age / 1000);
    return withVerdictOf(shown, unit.name, oldVerdict(verdict, `the last check was ${seconds} s ago`));
  }, view);
}

/** For a consumer that cannot be seen now: gives the last verdict with its time, not as the present one. */
export function oldVerdict(before: Verdict, why: string): Verdict {
  const was = `${before.mode}${before.reason === null ? '' : ` (${before.reason})`}`;
  const at = before.look === undefined ? '' : ` at ${before.look.at}`;
  return {
    ...before,
    mode: 'undetermined',
    simulated: false,
    devices: [],
    reason: 'evidence-stale',
    evidence: [{ kind: 'host', text: why, weight: 'neutral', source: null }, ...before.evidence],
    summary: `${before.unit} cannot be judged now: ${why}. The last verdict was ${was}${at}.`,
    next: `sudo vgpu-agent verify --unit ${before.unit}`,
  };
}

export function unjudged({ installed, consumers }: StatusView): readonly string[] {
  if (installed === null) return [];
  const running = consumers.filter(({ unit }) => unit.active?.startsWith('active ') === true);
  return running.filter(({ verdict }) => verdict === null).map(({ unit }) => unit.name);
}

/** The changes that would repair drift. A restart is not drift, and neither is vgpu-agent.service that does not run. */
export function driftOf(plan: Plan | null): readonly Change[] {
  if (plan?.kind !== 'ready') return [];
  return plan.changes.filter((change) => change.kind !== 'restart' && change.kind !== 'service');
}

function installedOf(manifest: Manifest | null, { unit }: Profile): StatusView['installed'] {
  const consumer = findConsumer(manifest, unit);
  if (manifest === null || consumer === undefined) return null;
  const { agent, storeId, endpoint, items } = manifest;
  return { agent, profile: consumer.profile, unit: consumer.unit, storeId, endpoint, items: items.length };
}

function unitOf(unit: UnitFacts): StatusView['unit'] {
  if (unit.kind !== 'loaded') {
    return { name: unit.name, load: unit.kind, active: null, invocationId: null, restarts: null };
  }
  const { name, activeState, subState, invocationId, restarts } = unit;
  return { name, load: 'loaded', active: `${activeState} (${subState})`, invocationId, restarts };
}
