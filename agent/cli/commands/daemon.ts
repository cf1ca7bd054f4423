import { Command } from 'commander';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { member } from '../../lib/json.js';
import { oneLine } from '../../lib/text.js';
import type { AgentClient } from '../../systemd/agent-client.js';
import { type CommandContext, examples, type Outcome, type Run, requireRoot } from './common.js';

export function restartCommand(run: Run): Command {
  return new Command('restart')
    .description('restart the services whose restart vgpu-agent.service has postponed')
    .addHelpText(
      'after',
      `\nvgpu-agent.service does not restart a service that has a live session at the\nhost. This command makes only the restarts that were postponed for that reason;\nsessions and requests of those services end.\n${examples(
        ['vgpu-agent status', 'pending restarts, with their reasons and what delays them'],
        [
          'sudo vgpu-agent restart && sudo vgpu-agent verify',
          'restart now, then the verdict on the new start',
        ],
      )}`,
    )
    .action(() => run(restart));
}

async function restart(context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'restart');
  const remedy =
    'restart the service itself with sudo systemctl restart, or start the agent: sudo systemctl start vgpu-agent';
  const restarts = begunIn(
    await asked('restart', 'it has no restart due', remedy, (agent) => agent.restart()),
  );
  const lines = restarts.map(({ unit, reason }) => oneLine(`restarting ${unit}: ${reason}`));
  return {
    exitCode: ExitCode.done,
    document: { schema: 1, command: 'restart', restarts },
    text: () => (lines.length === 0 ? 'no restart is due' : lines.join('\n')),
  };
}

function begunIn(json: string): readonly { readonly unit: string; readonly reason: string }[] {
  const list: unknown = JSON.parse(json);
  if (!Array.isArray(list)) return [];
  return list.flatMap((one: unknown) => {
    const [unit, reason] = [member(one, 'unit'), member(one, 'reason')];
    return typeof unit === 'string' && typeof reason === 'string' ? [{ unit, reason }] : [];
  });
}

async function asked(
  operation: string,
  so: string,
  remedy: string,
  question: (agent: AgentClient) => Promise<string>,
): Promise<string> {
  const { findAgent } = await import('../../systemd/agent-client.js');
  const agent = await findAgent();
  if (agent === null) {
    const path = 'vgpu-agent.service';
    throw new VgpuError(`${path} does not run, so ${so}`, { kind: 'failed', operation, path, remedy });
  }
  try {
    return await question(agent);
  } finally {
    agent.close();
  }
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
  const remedy =
    'sudo vgpu-agent install --service installs it; if it is installed: sudo systemctl start vgpu-agent';
  const text = await asked('read the metrics', 'there are no counters', remedy, (agent) => agent.metrics());
  const document = { schema: 1, command: 'metrics', text };
  return { exitCode: ExitCode.done, document, text: () => text.trimEnd() };
}
