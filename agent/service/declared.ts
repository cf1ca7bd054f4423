/**
 * The declarations in force, from agent.json and the manifest. Read at the start and on a reload, and the manifest
 * again whenever a command has installed or removed a consumer.
 */
import type { Manifest } from '../contracts/manifest.js';
import { type ConfigReader, defaultConfig } from '../guest/agent-conf.js';
import { VgpuError } from '../lib/errors.js';
import { agentConf } from '../lib/paths.js';
import type { Profile } from '../profile/types.js';
import type { Board } from './board.js';
import { type Desired, desiredOf, loadDesired } from './desired.js';
import type { Record } from './record.js';

export interface DeclaredEffects {
  /** The text of agent.json; null when there is none. */
  readonly text: () => string | null;
  readonly read: ConfigReader;
  readonly manifest: () => Promise<Manifest | null>;
  readonly profileOf: (name: string) => Profile;
  readonly board: Pick<Board, 'update'>;
  readonly record: Record;
}

export interface Declared {
  readonly now: Desired;
  /** Reads agent.json again. Throws a VgpuError (`profile`) when it is refused: the settings stay as they are. */
  reload(): Promise<void>;
  /** agent.json is not what was read last. */
  isChanged(): boolean;
  /** True: the manifest names other consumers than before, and `now` is what follows from it. */
  follow(manifest: Manifest | null): boolean;
}

export async function declare(effects: DeclaredEffects): Promise<Declared> {
  const { board, record, profileOf } = effects;
  const load = (manifest: Manifest | null) => loadDesired(effects.text, manifest, effects.read, profileOf);
  const refuse = (problem: string, text: string): void => {
    board.update({ configProblem: problem });
    record.write({ kind: 'configRefused', profile: null, unit: null, text });
  };

  const manifest = await effects.manifest();
  let mark = markOf(effects.text);
  let followed = consumersOf(manifest);
  const first = load(manifest);
  if (first.kind === 'refused') {
    refuse(first.problem, `agent.json is not valid, so the service uses the defaults: ${first.problem}`);
  }
  let now = first.kind === 'loaded' ? first.desired : desiredOf(defaultConfig, manifest, profileOf);
  const inForce = (desired: Desired): void => {
    now = desired;
    for (const text of now.unreadable) record.say(text);
  };
  inForce(now);

  return {
    get now() {
      return now;
    },
    async reload() {
      mark = markOf(effects.text);
      const loaded = load(await effects.manifest());
      if (loaded.kind === 'refused') {
        refuse(
          loaded.problem,
          `agent.json is not valid, so the service keeps the settings that it has: ${loaded.problem}`,
        );
        throw new VgpuError(loaded.problem, { kind: 'profile', operation: 'reload', path: agentConf });
      }
      board.update({ configProblem: null });
      inForce(loaded.desired);
      record.write({ kind: 'configLoaded', profile: null, unit: null, text: 'configuration loaded' });
    },
    isChanged: () => markOf(effects.text) !== mark,
    follow(changed) {
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

/** Differs when agent.json does; one that cannot be read is known by its problem. */
function markOf(text: () => string | null): string | null {
  try {
    return text();
  } catch (error) {
    return `cannot be read: ${String(error)}`;
  }
}
