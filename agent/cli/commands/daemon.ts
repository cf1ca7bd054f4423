/** `vgpu-agent daemon`: the service, as its unit starts it. */
import { Command } from 'commander';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { oneLine } from '../../lib/text.js';
import { type CommandContext, examples, type Outcome, type Run, requireRoot } from './common.js';

export function daemonCommand(run: Run): Command {
  return new Command('daemon')
    .description("run the agent's service, which repairs drift (systemd starts it)")
    .addHelpText(
      'after',
      `\nIt logs to the journal; vgpu-agent logs shows it.\n${examples(
        ['sudo vgpu-agent install --service', 'installs and enables the service'],
        ['systemctl reload vgpu-agent', 'reads /etc/vgpu-agent/agent.json again'],
      )}`,
    )
    .action(() => run(daemon));
}

async function daemon(context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'daemon');
  const { serve } = await import('../../service/run.js');
  await serve(context.say);
  return { exitCode: ExitCode.done, document: { schema: 1, command: 'daemon' }, text: () => '' };
}

// `vgpu-agent restart`: makes the restarts now that vgpu-agent.service has due and that wait.

interface Begun {
  readonly unit: string;
  readonly reason: string;
}

export interface RestartDocument {
  readonly schema: 1;
  readonly command: 'restart';
  readonly restarts: readonly Begun[];
}

export function restartCommand(run: Run): Command {
  return new Command('restart')
    .description("make pending restarts of the agent's service now")
    .addHelpText(
      'after',
      `\nThe agent's service does not restart a service that has a live session at the host. This command makes only restarts\nthat are pending; sessions and requests of those services end.\n${examples(
        ['vgpu-agent status', 'what is due, why, and what it waits for'],
        ['sudo vgpu-agent restart && sudo vgpu-agent verify', 'now, and the verdict on the new start'],
      )}`,
    )
    .action(() => run(restart));
}

async function restart(context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'restart');
  const { findAgent } = await import('../../systemd/agent-client.js');
  const agent = await findAgent();
  if (agent === null) {
    throw new VgpuError('vgpu-agent.service does not run, so it has no restart due', {
      kind: 'failed',
      operation: 'restart',
      path: 'vgpu-agent.service',
      remedy: 'sudo systemctl restart the service itself, or sudo systemctl start vgpu-agent',
    });
  }
  try {
    const restarts = readBegun(await agent.restart());
    const document: RestartDocument = { schema: 1, command: 'restart', restarts };
    const lines =
      restarts.length === 0
        ? ['no restart is due']
        : restarts.map(({ unit, reason }) => oneLine(`restarting ${unit}: ${reason}`));
    return { exitCode: ExitCode.done, document, text: () => lines.join('\n') };
  } finally {
    agent.close();
  }
}

function readBegun(json: string): readonly Begun[] {
  const list: unknown = JSON.parse(json);
  if (!Array.isArray(list)) return [];
  return list.flatMap((one: unknown) => {
    const unit: unknown = Reflect.get(Object(one), 'unit');
    const reason: unknown = Reflect.get(Object(one), 'reason');
    return typeof unit === 'string' && typeof reason === 'string' ? [{ unit, reason }] : [];
  });
}

// `vgpu-agent metrics`: what the service counts, in Prometheus' text format.

export interface MetricsDocument {
  readonly schema: 1;
  readonly command: 'metrics';
  readonly text: string;
}

export function metricsCommand(run: Run): Command {
  return new Command('metrics')
    .description("print the counters of the agent's service in the text format of Prometheus")
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent metrics', 'verdict, drift, repairs, restarts, host, version'],
        [
          'vgpu-agent metrics >/var/lib/prometheus/node-exporter/vgpu.prom',
          'once; "metrics" in agent.json keeps such a file up to date',
        ],
      ),
    )
    .action(() => run(metrics));
}

async function metrics(): Promise<Outcome> {
  const { findAgent } = await import('../../systemd/agent-client.js');
  const agent = await findAgent();
  if (agent === null) {
    throw new VgpuError('vgpu-agent.service does not run, so there are no counters', {
      kind: 'failed',
      operation: 'read the metrics',
      path: 'vgpu-agent.service',
      remedy:
        'sudo vgpu-agent install --service installs it; if it is installed: sudo systemctl start vgpu-agent',
    });
  }
  try {
    const text = await agent.metrics();
    const document: MetricsDocument = { schema: 1, command: 'metrics', text };
    return { exitCode: ExitCode.done, document, text: () => text.trimEnd() };
  } finally {
    agent.close();
  }
}
