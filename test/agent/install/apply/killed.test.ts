import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { startingStates } from './starting-states.js';
import { profile, ready, scratch } from './world.js';

const here = path.dirname(fileURLToPath(import.meta.url));
const program = path.join(here, 'one-command.js');
const hook = pathToFileURL(path.join(here, '../../../guest/support/at-checkpoint.js')).href;

function run(
  args: readonly string[],
  environment: Record<string, string> = {},
): ReturnType<typeof spawnSync> {
  return spawnSync(process.execPath, ['--import', hook, program, ...args], {
    env: { ...process.env, ...environment },
    encoding: 'utf8',
  });
}

describe('a process that is killed with SIGKILL', () => {
  for (const command of ['install', 'uninstall'] as const) {
    it(`leaves an ${command} that the next process takes back or finishes, wherever it died`, async () => {
      const state = startingStates[2];
      assert.ok(state);
      const start = await state.make({ realTools: true });
      const scratchFiles = mkdtempSync(path.join(scratch, 'vgpu-killed-'));
      const planFile = path.join(scratchFiles, 'plan.json');
      const log = path.join(scratchFiles, 'checkpoints');
      if (command === 'uninstall') await start.install();
      const plan =
        command === 'install'
          ? ready(await start.planInstall())
          : ready(planUninstall(profile, await start.facts(), { restart: true }));
      writeFileSync(planFile, JSON.stringify(plan));
      const before = start.listing();

      const whole = start.clone();
      assert.equal(run([whole.root, 'apply', planFile], { VGPU_TEST_TRACE: log }).status, 0);
      const names = readFileSync(log, 'utf8').trim().split('\n');
      const undone = new Set<string>();
      // Every fifteenth: each is two processes. Every single one is killed in cut-short.test.ts, within one process.
      for (let at = 3; at <= names.length; at += 15) {
        const world = start.clone();
        const died = run([world.root, 'apply', planFile], { VGPU_TEST_AT: String(at) });
        assert.equal(died.signal, 'SIGKILL', names[at - 1]);
        const next = run([world.root, 'recover']);
        assert.equal(next.status, 0, `${names[at - 1]}: ${String(next.stderr)}`);
        const outcome = String(next.stdout).trim();
        undone.add(outcome);
        if (outcome === 'rolled-back') assert.deepEqual(world.listing(), before, names[at - 1]);
        world.dispose();
      }
      assert.ok(undone.has('rolled-back'));
      whole.dispose();
      start.dispose();
      rmSync(scratchFiles, { recursive: true });
    });
  }
});
