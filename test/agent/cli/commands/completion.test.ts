/** Completion knows every command and option; bash really completes by it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { Command } from 'commander';
import { describeProgram } from '../../../../agent/cli/commands/command-line.js';
import { completionFile as fileOf, shells } from '../../../../agent/cli/commands/completion.js';

async function program(): Promise<Command> {
  const made = new Command('vgpu-agent');
  await describeProgram(made, async () => {}, { write: () => {} });
  return made;
}

for (const shell of shells) {
  test(`${shell} takes it`, (context) => {
    const ran = spawnSync(shell, ['-n', fileOf(shell)], { encoding: 'utf8' });
    if (ran.error !== undefined) {
      context.skip(`${shell} is not installed`);
      return;
    }
    assert.equal(ran.status, 0, ran.stderr);
  });
}

/** The words that bash offers for the last of these words. */
function offered(...words: readonly string[]): readonly string[] {
  const script = `source ${fileOf('bash')}
    vgpu-agent() { [ "$*" = 'profiles --names' ] && printf 'ollama\\nvllm\\n'; }
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _vgpu_agent; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const ran = spawnSync('bash', ['-c', script, 'bash', ...words], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout.split('\n').filter((line) => line !== '');
}

test('bash completes commands, the options of one, profiles and shells', async () => {
  assert.deepEqual(offered('vgpu-agent', 'un'), ['uninstall']);
  assert.deepEqual(offered('vgpu-agent', '--json', 'install', '--ro'), ['--rollback-on-failure']);
  assert.deepEqual(offered('vgpu-agent', 'status', '--profile', ''), ['ollama', 'vllm']);
  assert.deepEqual(offered('vgpu-agent', 'completion', 'f'), ['fish']);
  assert.deepEqual(offered('vgpu-agent', 'host', 'un'), ['uninstall']);
  assert.deepEqual(offered('vgpu-agent', 'host', 'install', '--dev'), ['--device']);
  assert.deepEqual(offered('vgpu-agent', 'verify', '--rollback'), []);
  const known = (await program()).commands.map((command) => command.name());
  for (const name of known) assert.ok(offered('vgpu-agent', name).includes(name), name);
});
