/** The state that the service keeps: agent.json over what was installed. */
import type { Consumer, Manifest } from '../contracts/manifest.js';
import { type AgentConfig, type ConfigReader, defaultConfig } from '../guest/agent-conf.js';
import { VgpuError } from '../lib/errors.js';
import { agentConf } from '../lib/paths.js';
import { forUnit } from '../profile/instance.js';
import type { Profile } from '../profile/types.js';

export interface Desired {
  readonly config: AgentConfig;
  /** agent.json names them: it alone may ask for an installation. */
  readonly declared: boolean;
  /** Each with the unit that it is for; never empty: the usual one is looked at where nothing is installed. */
  readonly consumers: readonly [Profile, ...Profile[]];
  /** Installed consumers whose profile cannot be read any more, each with why: they are not kept. */
  readonly unreadable: readonly string[];
}

/** As one consumer's keeper and judge see it. */
export interface DesiredOne {
  readonly config: AgentConfig;
  readonly declared: boolean;
  readonly profile: Profile;
}

export type Loaded =
  | { readonly kind: 'loaded'; readonly desired: Desired }
  | { readonly kind: 'refused'; readonly problem: string };

const usualProfile = 'ollama';

/**
 * Reads agent.json and the profiles that it, or the manifest, names. A file that does not fit is `refused`
 * with every problem in it; the former declaration stays in force then.
 */
export function loadDesired(
  textOf: () => string | null,
  manifest: Manifest | null,
  read: ConfigReader,
  profileOf: (name: string) => Profile,
): Loaded {
  try {
    const text = textOf();
    const config = text === null ? defaultConfig : read(text, agentConf);
    return { kind: 'loaded', desired: desiredOf(config, manifest, profileOf) };
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return { kind: 'refused', problem: error.message };
  }
}

/** Throws a VgpuError (`profile`) when a profile that the configuration names cannot be read. */
export function desiredOf(
  config: AgentConfig,
  manifest: Manifest | null,
  profileOf: (name: string) => Profile,
): Desired {
  const installed = manifest?.consumers ?? [];
  if (config.consumers !== 'installed') {
    const named = config.consumers.map((one) => {
      const profile = profileOf(one.profile);
      return forUnit(profile, one.unit ?? profile.unit);
    });
    return made(config, true, named, profileOf, []);
  }
  // A bad name is reported at once, even when it is not needed now.
  const first = config.first === null ? null : profileOf(config.first);
  if (installed.length === 0)
    return made(config, first !== null, first === null ? [] : [first], profileOf, []);
  const read = installed.map((one) => readable(one, profileOf));
  const consumers = read.filter((one) => typeof one !== 'string');
  return made(
    config,
    first !== null,
    consumers,
    profileOf,
    read.filter((one) => typeof one === 'string'),
  );
}

function made(
  config: AgentConfig,
  declared: boolean,
  [first, ...others]: readonly Profile[],
  profileOf: (name: string) => Profile,
  unreadable: readonly string[],
): Desired {
  const consumers: Desired['consumers'] =
    first === undefined ? [profileOf(usualProfile)] : [first, ...others];
  return { config, declared: declared && first !== undefined, consumers, unreadable };
}

/** The profile, or why there is none: one consumer that cannot be kept must not stop the others. */
function readable({ profile, unit }: Consumer, profileOf: (name: string) => Profile): Profile | string {
  try {
    return forUnit(profileOf(profile), unit);
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return `${unit} is not kept: ${error.message}`;
  }
}
