import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { systemJournalReadable } from '../../../agent/systemd/journal-reader.js';

const machine = '0123456789abcdef0123456789abcdef';

test('a system journal is readable where there is none, and where one of them can be opened', (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'journal-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const [none, kept] = [path.join(directory, 'none'), path.join(directory, 'kept')];
  assert.equal(systemJournalReadable([none]), true);
  mkdirSync(path.join(kept, machine), { recursive: true });
  assert.equal(systemJournalReadable([none, kept]), true, 'a directory without a journal');
  writeFileSync(path.join(kept, machine, 'system.journal'), '');
  assert.equal(systemJournalReadable([none, kept]), true);
});

test('the journal is not readable for a user who may not open it', {
  skip: process.getuid?.() !== 0,
}, (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'journal-'));
  t.after(() => rmSync(directory, { recursive: true }));
  chmodSync(directory, 0o755);
  mkdirSync(path.join(directory, machine));
  writeFileSync(path.join(directory, machine, 'system.journal'), '', { mode: 0o640 });
  const module = new URL('../../../agent/systemd/journal-reader.js', import.meta.url).href;
  const asks = `import(${JSON.stringify(module)}).then((m) => console.log(m.systemJournalReadable([${JSON.stringify(directory)}])))`;
  const user = spawnSync(process.execPath, ['-e', asks], { uid: 65534, gid: 65534, encoding: 'utf8' });
  assert.equal(user.stdout.trim(), 'false', user.stderr);
});
