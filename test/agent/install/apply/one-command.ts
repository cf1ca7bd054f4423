/** A process that installs or uninstalls on a world's tree with the real disk: to be killed for real. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import type { ReadyPlan } from '../../../../agent/contracts/plan.js';
import { apply, recover } from '../../../../agent/install/apply/apply.js';
import { nodeDisk } from '../../../../agent/install/apply/disk.js';
import type { ApplyEffects } from '../../../../agent/install/apply/effects.js';
import { spawnRunner } from '../../../../agent/lib/run-command.js';

const done = async (): Promise<string> => 'done';
const [root = '', command = '', planFile = ''] = process.argv.slice(2);
if (!existsSync(root) || readdirSync(root).length === 0) throw new Error(`no tree at ${root}`);

const runner = spawnRunner();
const effects: ApplyEffects = {
  disk: nodeDisk(runner, root),
  runner: {
    run: (file, args, options) => {
      if (file === '/sbin/ldconfig') return runner.run(file, ['-r', root, ...args], options);
      if (file === 'update-alternatives') {
        return runner.run(file, ['--root', root, '--log', '/alternatives.log', '--quiet', ...args], options);
      }
      throw new Error(`nobody should run ${file}`);
    },
  },
  manager: { reload: async () => {}, restart: done, start: done, stop: done },
  readSource: async (file) => readFileSync(file),
  mappedUnder: async () => new Set(),
  loadProblem: async () => null,
  agentVersion: '0.1.0',
  restartTimeoutMs: 1000,
};

const recovery = await recover(effects, () => {});
if (command === 'apply') {
  await apply(JSON.parse(readFileSync(planFile, 'utf8')) as ReadyPlan, effects, () => {});
}
process.stdout.write(`${recovery.kind}\n`);
