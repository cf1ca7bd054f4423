/** `vgpu-agent metrics`: what the service counts, in Prometheus' text format. */
import { Command } from 'commander';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { examples } from './options.js';
import type { Outcome, Run } from './types.js';

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
