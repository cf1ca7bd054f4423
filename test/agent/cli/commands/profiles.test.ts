/** `profiles` and `completion` as documents, and the names as completion reads them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Command } from 'commander';
import { describeProgram } from '../../../../agent/cli/commands/command-line.js';
import type { CommandContext, Outcome } from '../../../../agent/cli/commands/common.js';
import { styleFor } from '../../../../agent/lib/text.js';
import { listProfiles } from '../../../../agent/profile/load.js';
import { assertDocument } from './json-schemas.js';

const plain = styleFor({ isTty: false, columns: 80, wanted: false, env: {} });

/** The result of a command that needs nothing of its context. */
async function outcomeOf(...argv: readonly string[]): Promise<Outcome> {
  let outcome: Outcome | null = null;
  const program = new Command('vgpu-agent');
  await describeProgram(
    program,
    async (work) => {
      outcome = await work({ json: true, isRoot: false } as CommandContext);
    },
    { write: () => {} },
  );
  await program.parseAsync([...argv], { from: 'user' });
  assert.ok(outcome !== null);
  return outcome;
}

test('profiles tells every profile, and names alone for completion', async () => {
  const names = listProfiles().map(({ name }) => name);
  assert.ok(names.includes('ollama'));
  const { document, text } = await outcomeOf('profiles');
  assertDocument('profiles', JSON.stringify(document));
  for (const name of names) assert.match(text(plain), new RegExp(`^${name}  \\S+\\.service$`, 'm'));
  assert.equal((await outcomeOf('profiles', '--names')).text(plain), names.join('\n'));
});

test('completion prints a document that fits its schema', async () => {
  for (const shell of ['bash', 'zsh', 'fish']) {
    assertDocument('completion', JSON.stringify((await outcomeOf('completion', shell)).document));
  }
});
