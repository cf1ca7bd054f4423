/** The effects of the running system. */
import fs from 'node:fs/promises';
import { machine } from 'node:os';
import { ContentCache } from '../../guest/files/content.js';
import { canLoad, describeLoadCheck } from '../../guest/unit/access.js';
import { mappedUnder } from '../../guest/unit/processes.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { nodeDisk } from './disk.js';
import type { ApplyEffects } from './effects.js';

/** Everything real: `/`, spawned tools, systemd. */
export function systemEffects(what: {
  readonly runner: CommandRunner;
  readonly manager: ApplyEffects['manager'];
  readonly agentVersion: string;
  readonly restartTimeoutMs: number;
}): ApplyEffects {
  return {
    ...what,
    disk: nodeDisk(what.runner),
    readSource: (file) => fs.readFile(file),
    mappedUnder: (directory) => mappedUnder(directory),
    loadProblem: async (user, file) => {
      // A new cache each time: the file has just been written.
      const effects = { runner: what.runner, contents: new ContentCache(), architecture: machine() };
      const check = await canLoad(effects, user, file);
      return check.kind === 'loadable' ? null : describeLoadCheck(file, user, check);
    },
  };
}
