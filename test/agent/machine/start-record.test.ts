// Where a start's lines begin in the file that takes them.
import assert from 'node:assert/strict';
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { parseRecord, placeOfStart } from '../../../agent/machine/start-record.js';
import { unit } from '../plan/support.js';

const start = 'ab'.repeat(16);

interface World {
  readonly log: string;
  readonly files: { readonly record: string; readonly processes: string };
}

/** A log with a former start's line in it, and a note made at its end. */
function world(t: TestContext): World {
  const directory = mkdtempSync(path.join(tmpdir(), 'start-record-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const log = path.join(directory, 'log');
  const files = { record: path.join(directory, 'record'), processes: path.join(directory, 'proc') };
  writeFileSync(log, 'old\n');
  const { dev, ino } = statSync(log, { bigint: true });
  writeFileSync(files.record, `${start} ${dev}:${ino} 4\n`);
  return { log, files };
}

describe('the place of a start in an appended file', () => {
  it('is where the file ended when this start began', async (t) => {
    const { log, files } = world(t);
    appendFileSync(log, 'new\n');
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.deepEqual(await placeOfStart(now, files), { path: log, offset: 4 });
  });

  it('is not known from the note of another start', async (t) => {
    const { log, files } = world(t);
    const now = unit({ invocationId: 'cd'.repeat(16), standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, files), null);
  });

  it('is not known when another file has the name now', async (t) => {
    const { log, files } = world(t);
    writeFileSync(`${log}.new`, 'old\nnew\n');
    renameSync(`${log}.new`, log);
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, files), null);
  });

  it('is not known without a note, nor without a file', async (t) => {
    const { log, files } = world(t);
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, { ...files, record: `${files.record}.none` }), null);
    rmSync(log);
    assert.equal(await placeOfStart(now, files), null);
    assert.equal(await placeOfStart(unit({ invocationId: start }), files), null);
  });
});

describe('the place of a start in a file that is emptied', () => {
  it('is its beginning once the main process has it open', async (t) => {
    const { log, files } = world(t);
    const now = unit({ invocationId: start, mainPid: 7, standardError: `truncate:${log}` });
    assert.equal(await placeOfStart(now, files), null);
    mkdirSync(`${files.processes}/7/fd`, { recursive: true });
    symlinkSync('/dev/null', `${files.processes}/7/fd/1`);
    symlinkSync(log, `${files.processes}/7/fd/2`);
    assert.deepEqual(await placeOfStart(now, files), { path: log, offset: 0 });
  });
});

for (const text of [
  '',
  `${start} 1:2 3`,
  `${start} 1:2 \n`,
  `${start}  \n`,
  'x 1:2 3\n',
  `${start} 1:2 3\n4\n`,
]) {
  it(`a note that reads ${JSON.stringify(text)} is none`, () => assert.equal(parseRecord(text), null));
}
