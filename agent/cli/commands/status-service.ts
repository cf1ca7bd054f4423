/** `status` from the service: what it knows already, and what it tells from now on. */

import type { Verdict } from '../../contracts/verdict.js';
import type { StatusView } from '../../contracts/views.js';
import type { Choice } from '../../install/pipeline/choose.js';
import { asOf } from '../../install/pipeline/status-view.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { agentUnit } from '../../lib/paths.js';
import { schemaCheck } from '../../lib/schema.js';
import { modeText, oneLine } from '../../lib/text.js';
import { type AgentClient, findAgent } from '../../systemd/agent-client.js';
import { BusError } from '../../systemd/connection.js';
import { text as textOf } from '../../systemd/properties.js';
import type { StatusDocument } from './status.js';
import { statusSchema } from './status-schema.js';
import type { CommandContext, Outcome } from './types.js';

/**
 * The service's own status document; null when it does not run, has not looked yet, or does not look after the one
 * that is asked for.
 */
export async function serviceStatus(choice: Choice): Promise<StatusDocument | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    return await documentOf(agent, choice);
  } finally {
    agent.close();
  }
}

async function documentOf(agent: AgentClient, choice: Choice): Promise<StatusDocument | null> {
  const properties = await agent.properties();
  const document = readStatus(textOf(properties, 'Status', 'null'));
  const chosen = document === null ? null : chosenOf(document, choice);
  return chosen === null ? null : { ...chosen, ...asOf(chosen, Date.now()) };
}

/**
 * Has the service judge again, and gives its verdict about this unit, which `status`, the bus and the metrics show too.
 * Null: it does not run, or does not look after this one.
 */
export async function serviceVerdict(unit: string): Promise<Verdict | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    if ((await documentOf(agent, { unit })) === null) return null;
    await agent.verify();
    return (await documentOf(agent, { unit }))?.verdict ?? null;
  } catch (error) {
    // It ended while it was asked, or may not be asked.
    if (error instanceof BusError || error instanceof VgpuError) return null;
    throw error;
  } finally {
    agent.close();
  }
}

/** Null: the service has not looked yet, or is of another version and says it in another way. */
export function readStatus(json: string): StatusDocument | null {
  let document: unknown;
  try {
    document = JSON.parse(json);
  } catch {
    return null;
  }
  const checked = schemaCheck<StatusDocument>(statusSchema())(document);
  return checked.kind === 'fits' ? checked.value : null;
}

/** The document with only the consumers that were asked for; null: there is none of them. */
function chosenOf(document: StatusDocument, { profile, unit }: Choice): StatusDocument | null {
  if (profile === undefined && unit === undefined) return document;
  const consumers = document.consumers.filter(
    (one) =>
      (profile === undefined || one.profile === profile) && (unit === undefined || one.unit.name === unit),
  );
  const [first] = consumers;
  if (first === undefined) return null;
  const { drift, verdict } = first;
  const installed =
    document.installed === null
      ? null
      : { ...document.installed, profile: first.profile, unit: first.unit.name };
  return { ...document, installed, consumers, unit: first.unit, drift, verdict };
}

/** A service that is not installed never sends a signal. */
function notInstalled({ profile, unit }: Choice): VgpuError {
  const [asked, again] =
    unit === undefined ? [`profile ${profile}`, `--profile ${profile}`] : [unit, `--unit ${unit}`];
  return new VgpuError(`nothing is installed for ${asked}, so there is nothing to follow`, {
    kind: 'failed',
    operation: 'follow the service',
    path: unit ?? profile ?? agentUnit,
    remedy: `vgpu-agent status shows what is installed; sudo vgpu-agent install ${again} installs it`,
  });
}

/**
 * Prints a line now and at every signal, until the service goes, a person stops it, or what was asked for is not
 * installed (any more).
 */
export async function watchStatus(context: CommandContext, choice: Choice): Promise<Outcome> {
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
    const whole = await documentOf(agent, {});
    // Before its first look the service has nothing to say; its first signal comes with it.
    if (whole === null) return;
    const document = chosenOf(whole, choice);
    if (document === null) throw notInstalled(choice);
    context.stream({ event, ...document }, lineOf(event, document));
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

function lineOf(event: string, { consumers, service, host }: StatusView): string {
  const said = consumers.map((one) => {
    const { verdict, drift, unit } = one;
    const mode = verdict === null ? 'no verdict yet' : modeText(verdict);
    const changed = drift.map(({ change }) => change).join(', ');
    const text = listed([mode, verdict?.reason ?? '', changed === '' ? '' : `drift: ${changed}`]);
    return consumers.length === 1 ? text : `${unit.name}: ${text}`;
  });
  const parts = [
    ...said,
    service === undefined || service === null ? '' : service.state,
    host.answer.kind === 'unreachable' ? `host: ${host.answer.message}` : '',
    service?.problem ?? '',
  ];
  return oneLine(`${new Date().toISOString()} ${event}: ${listed(parts)}`);
}

function listed(parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('; ');
}
