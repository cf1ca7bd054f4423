/** What the service is to keep true: agent.json over what was installed. */
import type { Manifest } from '../apply/types.js';
import { VgpuError } from '../errors.js';
import { agentConf } from '../paths.js';
import type { Profile } from '../profile/types.js';
import { type AgentConfig, type ConfigReader, defaultConfig } from './config.js';

export interface Desired {
  readonly config: AgentConfig;
  /** agent.json is there: it alone may ask for an installation. */
  readonly declared: boolean;
  readonly profile: Profile;
}

export type Loaded =
  | { readonly kind: 'loaded'; readonly desired: Desired }
  | { readonly kind: 'refused'; readonly problem: string };

/**
 * Reads agent.json and the profile that it, or the manifest, names. A file that does not fit is `refused`
 * with every problem in it; whoever had a former one keeps that in force.
 */
export function loadDesired(
  text: string | null,
  manifest: Manifest | null,
  read: ConfigReader,
  profileOf: (name: string) => Profile,
): Loaded {
  try {
    const config = text === null ? defaultConfig : read(text, agentConf);
    const profile = profileOf(config.profile ?? manifest?.profile ?? 'ollama');
    return { kind: 'loaded', desired: { config, declared: text !== null, profile } };
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return { kind: 'refused', problem: error.message };
  }
}
