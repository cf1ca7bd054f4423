/** `status` from the service: what it knows already, and what it tells from now on. */
import { ExitCode, VgpuError } from '../errors.js';
import type { StatusView } from '../output/status-text.js';
import { modeText } from '../output/verdict-text.js';
import { type AgentClient, findAgent } from '../systemd/agent-client.js';
import { text as textOf } from '../systemd/properties.js';
import type { StatusDocument } from './status.js';
import type { CommandContext, Outcome } from './types.js';

/**
 * The service's own status document; null when it does not run, has not looked yet, or looks after another
 * profile than the one that is asked for.
 */
export async function serviceStatus(profile: string | undefined): Promise<StatusDocument | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    return await documentOf(agent, profile);
  } finally {
    agent.close();
  }
}

async function documentOf(agent: AgentClient, profile: string | undefined): Promise<StatusDocument | null> {
  const properties = await agent.properties();
  if (profile !== undefined && textOf(properties, 'Profile') !== profile) return null;
  const document: unknown = JSON.parse(textOf(properties, 'Status', 'null'));
  return typeof document === 'object' && document !== null && 'command' in document
    ? (document as StatusDocument)
    : null;
}

/** Prints a line now and at every signal, until the service goes or a person stops it. */
export async function watchStatus(context: CommandContext): Promise<Outcome> {
  const agent = await findAgent();
  if (agent === null) {
    throw new VgpuError('the service does not run, so there is nothing to follow', {
      kind: 'failed',
      operation: 'follow the service',
      path: 'vgpu-agent.service',
      remedy: 'sudo vgpu-agent install --service, or systemctl start vgpu-agent',
    });
  }
  const show = async (event: string): Promise<void> => {
    const document = await documentOf(agent, undefined);
    if (document !== null) context.stream({ event, ...document }, lineOf(event, document));
  };
  try {
    await new Promise<void>((resolve, reject) => {
      context.signal.addEventListener('abort', () => resolve());
      agent
        .watch((signal) => {
          if (signal === null) resolve();
          else show(signal.member).catch(reject);
        })
        .then(() => show('Status'))
        .catch(reject);
    });
  } finally {
    agent.close();
  }
  return { exitCode: ExitCode.done, document: null, text: () => '' };
}

function lineOf(event: string, view: StatusView): string {
  const { verdict, service, host, drift } = view;
  const said = verdict === null ? 'no verdict yet' : modeText(verdict);
  const parts = [
    said,
    verdict?.reason ?? '',
    service === undefined || service === null ? '' : service.state,
    drift.length === 0 ? '' : `${drift.length} drifted`,
    host.answer.kind === 'unreachable' ? `host: ${host.answer.message}` : '',
    service?.problem ?? '',
  ];
  return `${new Date().toISOString()} ${event}: ${parts.filter((part) => part !== '').join('; ')}`;
}
