/** The snapshot as Prometheus text. prom-client is loaded only when metrics are requested. */
import type { Mode } from '../contracts/verdict.js';
import type { Snapshot } from './board.js';
import { overview } from './overview.js';

const modes: readonly Mode[] = ['gpu', 'cpu', 'degraded', 'undetermined'];
const phases = [
  'starting',
  'idle',
  'settled',
  'repairing',
  'waiting',
  'restart-pending',
  'degraded',
] as const;

export interface MetricsInput {
  readonly snapshot: Snapshot;
  readonly version: string;
  /** Seconds of the last look at the host; null: none. */
  readonly roundTrip: number | null;
}

/** A registry of its own for each text: nothing is kept between two questions. */
export async function metricsText({ snapshot, version, roundTrip }: MetricsInput): Promise<string> {
  const { default: prometheus } = await import('prom-client');
  const registry = new prometheus.Registry();
  const registers = [registry];
  const { host, consumers, hostLosses, repairMilliseconds } = snapshot;
  const { profile, unit, phase, drift, pendingRestart, counters } = overview(snapshot);

  const gauge = (name: string, help: string, value: number): void => {
    new prometheus.Gauge({ name, help, registers }).set(value);
  };
  const counter = (name: string, help: string, value: number): void => {
    new prometheus.Counter({ name, help, registers }).inc(value);
  };

  new prometheus.Gauge({
    name: 'vgpu_agent_info',
    help: 'The version of the service; always 1.',
    labelNames: ['version', 'profile', 'unit'],
    registers,
  }).set({ version, profile, unit }, 1);
  const verdicts = new prometheus.Gauge({
    name: 'vgpu_verdict',
    help: 'What each consumer uses: 1 for the verdict in force. simulated="1" is no real GPU.',
    labelNames: ['profile', 'unit', 'mode', 'simulated', 'reason'],
    registers,
  });
  for (const { verdict, profile: of, unit: by } of consumers) {
    for (const mode of modes) {
      const holds = verdict?.mode === mode;
      const simulated = holds && verdict.simulated ? '1' : '0';
      const reason = holds ? (verdict.reason ?? '') : '';
      verdicts.set({ profile: of, unit: by, mode, simulated, reason }, holds ? 1 : 0);
    }
  }
  const looks = new prometheus.Gauge({
    name: 'vgpu_verdict_look',
    help: 'The look that each verdict rests on, in milliseconds since 1970; 0: none so far.',
    labelNames: ['profile', 'unit'],
    registers,
  });
  for (const { verdict, profile: of, unit: by } of consumers)
    looks.set({ profile: of, unit: by }, verdict?.look?.id ?? 0);
  const states = new prometheus.Gauge({
    name: 'vgpu_agent_state',
    help: 'What the service is doing: 1 for the state in force, of several consumers the worst.',
    labelNames: ['state'],
    registers,
  });
  for (const state of phases) states.set({ state }, phase === state ? 1 : 0);
  gauge('vgpu_drift', 'Files and links that differ from what was installed.', drift.length);
  gauge(
    'vgpu_config_refused',
    '1: agent.json has a mistake. The service keeps the settings that it has; after a start, the defaults.',
    snapshot.configProblem === null ? 0 : 1,
  );
  gauge(
    'vgpu_restart_pending',
    '1: a restart of a consumer is due and waits.',
    pendingRestart === null ? 0 : 1,
  );
  gauge('vgpu_host_up', '1: the host answers.', host.answers === true ? 1 : 0);
  if (roundTrip !== null)
    gauge('vgpu_host_round_trip_seconds', 'Time from a question to the host to its answer.', roundTrip);
  if (repairMilliseconds !== null) {
    gauge(
      'vgpu_last_repair_seconds',
      'Time from drift noticed to drift repaired, the last time.',
      repairMilliseconds / 1000,
    );
  }
  counter('vgpu_checks_total', 'Inspections of the machine.', counters.checks);
  counter('vgpu_drifts_total', 'Differences found.', counters.drifts);
  counter('vgpu_repairs_total', 'Repairs made.', counters.repairs);
  counter('vgpu_repairs_failed_total', 'Repairs that failed and were undone.', counters.failedRepairs);
  counter('vgpu_consumer_restarts_total', 'Restarts of the consumer by the service.', counters.restarts);
  counter('vgpu_host_losses_total', 'Times that the host stopped answering.', hostLosses);
  return registry.metrics();
}
