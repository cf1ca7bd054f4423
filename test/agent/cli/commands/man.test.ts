/** The man page tells what the command has. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { doctorCommand } from '../../../../agent/cli/commands/doctor.js';
import { hostCommand } from '../../../../agent/cli/commands/host.js';
import { installCommand, planCommand } from '../../../../agent/cli/commands/install.js';
import { runCommand } from '../../../../agent/cli/commands/run.js';
import { statusCommand } from '../../../../agent/cli/commands/status.js';
import { uninstallCommand } from '../../../../agent/cli/commands/uninstall.js';
import { verifyCommand } from '../../../../agent/cli/commands/verify.js';
import { messageIds } from '../../../../agent/systemd/journal-writer.js';
import { checks } from '../../../../agent/verdict/doctor/diagnose.js';

const page = fileURLToPath(new URL('../../../../../docs/man/vgpu-agent.8', import.meta.url));
const text = readFileSync(page, 'utf8');
const haveMandoc = spawnSync('mandoc', ['-T', 'lint', page], { encoding: 'utf8' });

test('mandoc finds nothing to complain about', {
  skip: haveMandoc.error !== undefined && 'no mandoc',
}, () => {
  // Messages about other pages (mandoc.db) are about this machine, not about these pages.
  const complaints = haveMandoc.stdout
    .split('\n')
    .filter((line) => line.includes(page) && !/referenced manual not found: Xr vgpu-/.test(line));
  assert.deepEqual(complaints, []);
});

test('every option of every command is on the page, in its synopsis and explained', () => {
  const run = async (): Promise<void> => {};
  for (const make of [
    installCommand,
    planCommand,
    statusCommand,
    verifyCommand,
    doctorCommand,
    uninstallCommand,
    runCommand,
  ]) {
    const command = make(run);
    const [, part = ''] = text.split(`.Cm ${command.name()}\n`);
    const synopsis = part.split('.Nm\n')[0] ?? '';
    for (const option of command.options) {
      const long = option.long?.slice(2) ?? '';
      const short = option.short?.slice(1);
      const flag = short === undefined ? `Fl -${long}` : `Fl ${short}`;
      assert.ok(synopsis.includes(flag), `${command.name()}: ${flag}`);
      assert.match(text, new RegExp(`^\\.It (Fl \\w , )?(Fl )?-${long}\\b`, 'm'), long);
    }
  }
});

test('every option of the host commands is on their page, in its synopsis and explained', () => {
  const hostText = readFileSync(page.replace('vgpu-agent.8', 'vgpu-agent-host.8'), 'utf8');
  const { commands } = hostCommand(async () => {});
  assert.deepEqual(
    commands.map((command) => command.name()),
    ['install', 'uninstall'],
  );
  for (const command of commands) {
    const synopsis = hostText.split(`.Cm host ${command.name()}\n`)[1]?.split('.Nm ')[0] ?? '';
    for (const { long, short } of command.options) {
      const flag = short === undefined ? `Fl -${long?.slice(2)}` : `Fl ${short.slice(1)}`;
      assert.ok(synopsis.includes(flag), `host ${command.name()}: ${flag}`);
      assert.match(hostText, new RegExp(`^\\.It (Fl \\w , )?(Fl )?-${long?.slice(2)}\\b`, 'm'), long);
    }
  }
});

test('the message IDs on the page are those of the journal entries', () => {
  for (const id of Object.values(messageIds)) assert.ok(text.includes(id), id);
});

test('vgpu-doctor(7) explains every check, in the order in which they are made, and no other', () => {
  const doctor = fileURLToPath(new URL('../../../../../docs/man/vgpu-doctor.7', import.meta.url));
  const section = readFileSync(doctor, 'utf8').split('.Sh CHECKS\n')[1] ?? '';
  const explained = [...section.matchAll(/^\.It Sy (\S+)$/gm)].map(([, id]) => id);
  assert.deepEqual(
    explained,
    checks.map(({ id }) => id),
  );
  const lint = spawnSync('mandoc', ['-T', 'lint', doctor], { encoding: 'utf8' });
  const complaints = (lint.stdout ?? '')
    .split('\n')
    .filter((line) => line.includes(doctor) && !/referenced manual not found: Xr vgpu-/.test(line));
  assert.deepEqual(complaints, []);
});

test('checks have ids and titles that fit the list that a person reads', () => {
  assert.equal(new Set(checks.map(({ id }) => id)).size, checks.length);
  for (const { id, title } of checks) {
    assert.match(id, /^[a-z][a-z-]{1,19}$/);
    assert.ok(title.length <= 50, `${id}: ${title}`);
  }
});
