/** The commands and the rules of hostd.conf that docs/howto/host.md tells a person to type are accepted. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { Command } from 'commander';
import { hostCommand } from '../../../agent/cli/commands/host.js';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory } from '../shim_host.js';

const text = readFileSync(path.join(ROOT, 'docs/howto/host.md'), 'utf8');

describe('docs/howto/host.md', () => {
  const scratch = scratchDirectory();
  after(() => scratch.remove());

  it('shows rules that vgpu-hostd --check-config calls good', async () => {
    const rules = [...text.matchAll(/^```conf\n([\s\S]*?)^```/gm)].map(([, block]) => block ?? '');
    assert.ok(rules.length >= 2);
    for (const [index, block] of rules.entries()) {
      const file = `${scratch.path}/${index}`;
      writeFileSync(file, block);
      const checked = await runProgram(builtFile('vgpu-hostd'), ['--check-config', '--config', file]);
      assert.equal(checked.code, 0, block + checked.stderr);
    }
  });

  it('shows commands whose options there are', async () => {
    const lines = [...text.matchAll(/^sudo vgpu-agent (host .*)$/gm)].map(([, words]) => words ?? '');
    assert.ok(lines.length >= 6);
    for (const line of lines) {
      let ran = 0;
      const program = new Command().exitOverride();
      program.addCommand(
        hostCommand(async () => {
          ran += 1;
        }),
      );
      await program.parseAsync(line.split(' '), { from: 'user' });
      assert.equal(ran, 1, line);
    }
  });

  it('names addresses at which vgpu-hostd can listen', () => {
    // A unix socket's path has 107 bytes; the longest here is that of a jail.
    for (const [, socket = ''] of text.matchAll(/unix:(\/\S*_14833)/g))
      assert.ok(socket.length < 100, socket);
  });
});
