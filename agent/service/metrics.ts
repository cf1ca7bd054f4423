/** The snapshot as Prometheus text. prom-client is loaded only when metrics are requested. */
import { lstatSync, rmSync } from 'node:fs';
import type { Server } from 'node:http';
import path from 'node:path';
import type { Mode } from '../contracts/verdict.js';
import type { AgentConfig } from '../guest/agent-conf.js';
import { errnoOf, reportUnexpected, VgpuError } from '../lib/errors.js';
import { createServer } from '../lib/http.js';
import { openDirectory, replaceFile } from '../lib/trust/files.js';
import type { Snapshot } from './board.js';
import { overview, phases } from './overview.js';

const modes: readonly Mode[] = ['gpu', 'cpu', 'degraded', 'undetermined'];

interface MetricsInput {
  readonly snapshot: Snapshot;
  readonly version: string;
  readonly roundTrip: number | null;
}

interface Labelled {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A new registry for each text, so that no state is kept between requests. */
export async function metricsText({ snapshot, version, roundTrip }: MetricsInput): Promise<string> {
  const { default: prometheus } = await import('prom-client');
  const registry = new prometheus.Registry();
  const registers = [registry];
  const { host, hosts, consumers, hostLosses, hostMoves, repairMilliseconds } = snapshot;
  const { profile, unit, phase, drift, pendingRestart, counters } = overview(snapshot);

  /** One value, or one for each combination of labels. */
  const gauge = (name: string, help: string, values: number | readonly Labelled[]): void => {
    const all = typeof values === 'number' ? [{ labels: {}, value: values }] : values;
    const labelNames = Object.keys(all[0]?.labels ?? {});
    const metric = new prometheus.Gauge({ name, help, labelNames, registers });
    for (const { labels, value } of all) metric.set(labels, value);
  };
  const counter = (name: string, help: string, value: number): void => {
    new prometheus.Counter({ name, help, registers }).inc(value);
  };
  const flag = (holds: boolean): number => (holds ? 1 : 0);

  const info = [{ labels: { version, profile, unit }, value: 1 }];
  gauge('vgpu_agent_info', 'The version of the service; always 1.', info);
  gauge(
    'vgpu_verdict',
    'Verdict of each consumer: 1 for the current verdict. simulated="1": not a real GPU.',
    consumers.flatMap(({ verdict, profile: of, unit: by }) =>
      modes.map((mode) => {
        const holds = verdict?.mode === mode;
        const simulated = holds && verdict.simulated ? '1' : '0';
        const reason = holds ? (verdict.reason ?? '') : '';
        return { labels: { profile: of, unit: by, mode, simulated, reason }, value: flag(holds) };
      }),
    ),
  );
  gauge(
    'vgpu_verdict_look',
    'Time of the check behind each verdict, in milliseconds since 1970; 0: no verdict yet.',
    consumers.map(({ verdict, profile: of, unit: by }) => ({
      labels: { profile: of, unit: by },
      value: verdict?.look?.id ?? 0,
    })),
  );
  gauge(
    'vgpu_agent_state',
    'State of the service: 1 for the current state; with several consumers the worst.',
    phases.map((state) => ({ labels: { state }, value: flag(phase === state) })),
  );
  gauge('vgpu_drift', 'Files and links that differ from what was installed.', drift.length);
  gauge(
    'vgpu_config_refused',
    '1: agent.json has a mistake. The service keeps its current settings until restarted, then uses the defaults.',
    flag(snapshot.configProblem !== null),
  );
  gauge('vgpu_restart_pending', '1: a restart of a consumer is pending.', flag(pendingRestart !== null));
  gauge('vgpu_host_up', '1: the host answers.', flag(host.answers === true));
  if (hosts.length > 0) {
    gauge(
      'vgpu_hosts_up',
      '1: the host answers. in_use="1": the consumers use this host.',
      hosts.map(({ endpoint, inUse, answers }) => ({
        labels: { endpoint, in_use: inUse ? '1' : '0' },
        value: flag(answers === true),
      })),
    );
    counter('vgpu_host_moves_total', 'Times that the service switched to another host.', hostMoves);
  }
  if (roundTrip !== null)
    gauge('vgpu_host_round_trip_seconds', 'Time from a request to the host until its answer.', roundTrip);
  if (repairMilliseconds !== null) {
    const seconds = repairMilliseconds / 1000;
    gauge('vgpu_last_repair_seconds', 'Duration of the last repair, from noticing the drift.', seconds);
  }
  counter('vgpu_checks_total', 'Inspections of the machine.', counters.checks);
  counter('vgpu_drifts_total', 'Differences found.', counters.drifts);
  counter('vgpu_repairs_total', 'Repairs made.', counters.repairs);
  counter('vgpu_repairs_failed_total', 'Repairs that failed and were undone.', counters.failedRepairs);
  counter('vgpu_consumer_restarts_total', 'Restarts of the consumer by the service.', counters.restarts);
  counter('vgpu_host_losses_total', 'Times that the host stopped answering.', hostLosses);
  return registry.metrics();
}

// Other outputs of the metrics: a file for node_exporter, a listener on a unix socket or loopback.

export type MetricsOutput = ReturnType<typeof metricsOutput>;

const writeEveryMs = 1_000;
/** Limit of connections, because any user may connect, and repairs need descriptors. */
const mostConnections = 32;

export function metricsOutput(text: () => Promise<string>, complain: (message: string) => void) {
  let textfile: string | null = null;
  let listen: string | null = null;
  let server: Server | null = null;
  let timer: NodeJS.Timeout | null = null;
  let complained = '';

  const complainOnce = (message: string): void => {
    if (message !== complained) complain(message);
    complained = message;
  };
  const write = async (): Promise<void> => {
    timer = null;
    if (textfile === null) return;
    const file = textfile;
    try {
      const body = await text();
      // The setting was removed or changed while the text was made: do not write the file again.
      if (textfile !== file) return;
      // The directory may belong to node_exporter's user: never write through an existing file or link there.
      const directory = openDirectory(path.dirname(file));
      try {
        replaceFile(directory, path.basename(file), body, 0o644);
      } finally {
        directory.close();
      }
      complained = '';
    } catch (error) {
      const why = error instanceof VgpuError ? error.message : (errnoOf(error) ?? String(error));
      complainOnce(
        `cannot write ${file}: ${why}; add its directory to ReadWritePaths= of vgpu-agent.service (systemctl edit vgpu-agent)`,
      );
    }
  };
  const stopListening = (): void => {
    server?.close();
    server?.closeAllConnections();
    if (server !== null && listen?.startsWith('unix:')) removeSocket(listen.slice('unix:'.length));
    server = null;
  };
  const startListening = (address: string): void => {
    const created = createServer((request, response) => {
      if (request.method !== 'GET' || !['/metrics', '/'].includes(request.url ?? '')) {
        response.writeHead(404).end();
        return;
      }
      text()
        .then(
          (body) => response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' }).end(body),
          (error: unknown) => response.writeHead(500).end(String(error)),
        )
        .catch(reportUnexpected);
    });
    created.maxConnections = mostConnections;
    created.on('error', (error) => complainOnce(`cannot listen on ${address}: ${error.message}`));
    if (address.startsWith('unix:')) {
      const socket = address.slice('unix:'.length);
      removeSocket(socket);
      // Every user may connect. Not by chmod, because the name could refer to another file by then. bind(2) has finished
      // when this returns.
      const umask = process.umask(0o111);
      try {
        created.listen(socket);
      } finally {
        process.umask(umask);
      }
    } else {
      const at = address.lastIndexOf(':');
      const host = address.slice('tcp:'.length, at).replace(/^\[|\]$/g, '');
      created.listen(Number(address.slice(at + 1)), host);
    }
    server = created;
  };

  return {
    configure(metrics: AgentConfig['metrics']): void {
      if (metrics.textfile !== textfile) {
        if (textfile !== null) removeFile(textfile);
        textfile = metrics.textfile;
        if (textfile !== null) void write();
      }
      if (metrics.listen !== listen) {
        stopListening();
        listen = metrics.listen;
        if (listen !== null) startListening(listen);
      }
    },
    /** Writes the file again, at most once a second. */
    changed(): void {
      if (textfile === null || timer !== null) return;
      timer = setTimeout(() => void write(), writeEveryMs);
    },
    close(): void {
      if (timer !== null) clearTimeout(timer);
      // Remove it, so that old values are not scraped forever.
      if (textfile !== null) removeFile(textfile);
      textfile = null;
      stopListening();
    },
  };
}

/** Removes a name in a directory that root chose, not the target of a link. */
function removeFile(file: string): void {
  try {
    const directory = openDirectory(path.dirname(file));
    try {
      rmSync(directory.entry(path.basename(file)), { force: true });
    } finally {
      directory.close();
    }
  } catch {
    // It cannot be reached, or a directory is in its place: then the service did not make it.
  }
}

/** Removes only a socket of an earlier service: an error in the configuration must not delete a user's file. */
function removeSocket(socket: string): void {
  if (lstatSync(socket, { throwIfNoEntry: false })?.isSocket() === true) rmSync(socket, { force: true });
}
