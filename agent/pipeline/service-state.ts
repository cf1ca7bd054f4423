/** What vgpu-agent.service says of itself, for the doctor: its own status document, read with care. */
import type { ServiceState } from '../machine/closer-look.js';
import type { Profile } from '../profile/types.js';
import { findAgent } from '../systemd/agent-client.js';
import { text } from '../systemd/properties.js';

/** Null when it does not run, looks after another profile, or is of a version that says it in another way. */
export async function serviceState(profile: Profile): Promise<ServiceState | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    const properties = await agent.properties();
    if (text(properties, 'Profile') !== profile.name) return null;
    const document: unknown = JSON.parse(text(properties, 'Status', 'null'));
    const service = member(document, 'service');
    const state = member(service, 'state');
    if (typeof state !== 'string') return null;
    return {
      state,
      problem: textOrNull(member(service, 'problem')),
      configProblem: textOrNull(member(service, 'configProblem')),
    };
  } finally {
    agent.close();
  }
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? Object.getOwnPropertyDescriptor(value, name)?.value
    : undefined;
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
