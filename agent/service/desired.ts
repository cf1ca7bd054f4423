/** The state that the service maintains: agent.json, then the manifest. */
import type { Consumer, Manifest } from '../contracts/manifest.js';
import { type AgentConfig, type ConfigReader, defaultConfig } from '../guest/agent-conf.js';
import { VgpuError } from '../lib/errors.js';
import { agentConf } from '../lib/paths.js';
import { forUnit, usualProfile } from '../profile/instance.js';
import type { Profile } from '../profile/types.js';
import type { Board, Record } from './board.js';

export interface Desired {
  readonly config: AgentConfig;
  /** agent.json names them; only agent.json may request an installation. */
  readonly declared: boolean;
  /** Each with its unit; never empty: the default consumer if nothing is installed. */
  readonly consumers: readonly [Profile, ...Profile[]];
  /** Installed consumers whose profile cannot be read any more, with the reason; they are not maintained. */
  readonly unreadable: readonly string[];
}

export interface DesiredOne {
  readonly config: AgentConfig;
  readonly declared: boolean;
  readonly profile: Profile;
}

type Loaded =
  | { readonly kind: 'loaded'; readonly desired: Desired }
  | { readonly kind: 'refused'; readonly problem: string };

/** `refused` names every problem of agent.json; the former declaration stays in force then. */
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

function desiredOf(
  config: AgentConfig,
  manifest: Manifest | null,
  profileOf: (name: string) => Profile,
): Desired {
  const declared = config.consumers !== 'installed';
  const read = declared
    ? config.consumers.map(({ profile: name, unit }) => {
        const profile = profileOf(name);
        return forUnit(profile, unit ?? profile.unit);
      })
    : (manifest?.consumers ?? []).map((one) => readable(one, profileOf));
  const [first = profileOf(usualProfile), ...others] = read.filter((one) => typeof one !== 'string');
  const unreadable = read.filter((one) => typeof one === 'string');
  return { config, declared, consumers: [first, ...others], unreadable };
}

function readable({ profile, unit }: Consumer, profileOf: (name: string) => Profile): Profile | string {
  try {
    return forUnit(profileOf(profile), unit);
  } catch (error) {
    if (!(error instanceof VgpuError)) throw error;
    return `${unit} is not kept: ${error.message}`;
  }
}

// The declarations in force, from agent.json and the manifest. Read at the start and on a reload, and the manifest
// again whenever a command has installed or removed a consumer.

interface DeclaredEffects {
  readonly text: () => string | null;
  readonly read: ConfigReader;
  readonly manifest: () => Promise<Manifest | null>;
  readonly profileOf: (name: string) => Profile;
  readonly board: Pick<Board, 'update'>;
  readonly record: Record;
}

export type Declared = Awaited<ReturnType<typeof declare>>;

export async function declare(effects: DeclaredEffects) {
  const { board, record, profileOf } = effects;
  const load = (manifest: Manifest | null) => loadDesired(effects.text, manifest, effects.read, profileOf);
  const refuse = (problem: string, does: string): void => {
    board.update({ configProblem: problem });
    const text = `agent.json is not valid, so the service ${does}: ${problem}`;
    record.write({ kind: 'configRefused', profile: null, unit: null, text });
  };

  const manifest = await effects.manifest();
  let mark = markOf(effects.text);
  let followed = consumersOf(manifest);
  const first = load(manifest);
  if (first.kind === 'refused') {
    refuse(first.problem, 'uses the defaults');
  }
  let now = first.kind === 'loaded' ? first.desired : desiredOf(defaultConfig, manifest, profileOf);
  const inForce = (desired: Desired): void => {
    now = desired;
    for (const text of now.unreadable) record.say(text);
  };
  inForce(now);

  return {
    get now(): Desired {
      return now;
    },
    /** Reads agent.json again. If it is refused, throws a VgpuError (`profile`) and keeps the settings. */
    async reload(): Promise<void> {
      mark = markOf(effects.text);
      const loaded = load(await effects.manifest());
      if (loaded.kind === 'refused') {
        refuse(loaded.problem, 'keeps its current settings');
        throw new VgpuError(loaded.problem, { kind: 'profile', operation: 'reload', path: agentConf });
      }
      board.update({ configProblem: null });
      inForce(loaded.desired);
      record.write({ kind: 'configLoaded', profile: null, unit: null, text: 'configuration loaded' });
    },
    isChanged: (): boolean => markOf(effects.text) !== mark,
    /** True: the manifest names other consumers than before, and `now` is updated. */
    follow(changed: Manifest | null): boolean {
      const consumers = consumersOf(changed);
      if (consumers === followed) return false;
      followed = consumers;
      try {
        inForce(desiredOf(now.config, changed, profileOf));
      } catch (error) {
        if (!(error instanceof VgpuError)) throw error;
        record.say(error.message);
        return false;
      }
      return true;
    },
  };
}

function consumersOf(manifest: Manifest | null): string {
  return JSON.stringify(manifest?.consumers.map((one) => [one.profile, one.unit]) ?? []);
}

/** Differs if agent.json differs; an unreadable file is identified by its error. */
function markOf(text: () => string | null): string | null {
  try {
    return text();
  } catch (error) {
    return `cannot be read: ${String(error)}`;
  }
}
