/** The status of vgpu-agent.service for the doctor: its own status document, read with care. */

import type { ServiceState } from '../../guest/look/closer-look.js';
import { VgpuError } from '../../lib/errors.js';
import type { Profile } from '../../profile/types.js';
import { findAgent } from '../../systemd/agent-client.js';
import { BusBusyError, BusError } from '../../systemd/connection.js';
import { text } from '../../systemd/properties.js';

/** Null when it does not run, does not look after this one, or is of a version that says it in another way. */
export async function serviceState(profile: Profile): Promise<ServiceState | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    const properties = await agent.properties();
    const document: unknown = JSON.parse(text(properties, 'Status', 'null'));
    const mine = stateOf(document, profile.unit);
    if (mine === null) return null;
    return { ...mine, configProblem: textOrNull(member(member(document, 'service'), 'configProblem')) };
  } finally {
    agent.close();
  }
}

/** State and problem of the service for one consumer; null when the service does not answer. */
export async function agentState(
  unit: string,
): Promise<{ readonly state: string; readonly problem: string } | null> {
  // Asked again and again: a bus that is busy now answers a later question.
  const agent = await findAgent().catch(nullWhenBusy);
  if (agent === null) return null;
  try {
    const properties = await agent.properties();
    const mine = stateOf(JSON.parse(text(properties, 'Status', 'null')), unit);
    // agent.json may name others only: then the service as a whole is what there is to wait for.
    return mine === null
      ? { state: text(properties, 'State'), problem: text(properties, 'Problem') }
      : { state: mine.state, problem: mine.problem ?? '' };
  } catch (error) {
    // It ended while it was asked.
    if (error instanceof BusError || error instanceof VgpuError) return null;
    throw error;
  } finally {
    agent.close();
  }
}

function nullWhenBusy(error: unknown): null {
  if (error instanceof BusBusyError) return null;
  throw error;
}

/** The part of the service's status document about one consumer; null: none. */
function stateOf(
  document: unknown,
  unit: string,
): { readonly state: string; readonly problem: string | null } | null {
  const consumers = member(document, 'consumers');
  const mine: unknown = Array.isArray(consumers)
    ? consumers.find((one: unknown) => member(member(one, 'unit'), 'name') === unit)
    : undefined;
  const service = member(mine, 'service');
  const state = member(service, 'state');
  return typeof state === 'string' ? { state, problem: textOrNull(member(service, 'problem')) } : null;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? Object.getOwnPropertyDescriptor(value, name)?.value
    : undefined;
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
