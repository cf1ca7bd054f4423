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
import { parseNote, placeAfterRestart, placeOfStart } from '../../../../agent/guest/unit/start-record.js';
import { unit } from '../../install/plan/support.js';

const start = 'ab'.repeat(16);

interface World {
  readonly log: string;
  /** The journal's entries of the start `start`; it has none of another start. */
  readonly said: (invocationId: string) => Promise<readonly string[]>;
  readonly processes: string;
}

/** A log with a former start's line in it, and a note made at its end. */
function world(t: TestContext): World {
  const directory = mkdtempSync(path.join(tmpdir(), 'start-record-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const log = path.join(directory, 'log');
  writeFileSync(log, 'old\n');
  const { dev, ino } = statSync(log, { bigint: true });
  const note = `vgpu-agent: the log of this start is ${dev}:${ino}, after 4 bytes`;
  const later = `vgpu-agent: the log of this start is ${dev}:${ino}, after 0 bytes`;
  const said = async (invocationId: string) =>
    invocationId === start ? ['Starting ollama.service...', note, later] : [];
  return { log, said, processes: path.join(directory, 'proc') };
}

describe('the place of a start in an appended file', () => {
  it('is where the file ended when this start began', async (t) => {
    const { log, said, processes } = world(t);
    appendFileSync(log, 'new\n');
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.deepEqual(await placeOfStart(now, said, processes), { path: log, offset: 4 });
  });

  it('is not known from the note of another start', async (t) => {
    const { log, said, processes } = world(t);
    const now = unit({ invocationId: 'cd'.repeat(16), standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, said, processes), null);
  });

  it('is not known when another file has the name now', async (t) => {
    const { log, said, processes } = world(t);
    writeFileSync(`${log}.new`, 'old\nnew\n');
    renameSync(`${log}.new`, log);
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, said, processes), null);
  });

  it('is not known without a note, nor without a file', async (t) => {
    const { log, said, processes } = world(t);
    const now = unit({ invocationId: start, standardError: `append:${log}` });
    assert.equal(await placeOfStart(now, async () => [], processes), null);
    rmSync(log);
    assert.equal(await placeOfStart(now, said, processes), null);
    assert.equal(await placeOfStart(unit({ invocationId: start }), said, processes), null);
  });
});

describe('the place of a start in a file that is emptied', () => {
  it('is its beginning once the main process has it open', async (t) => {
    const { log, said, processes } = world(t);
    const now = unit({ invocationId: start, mainPid: 7, standardError: `truncate:${log}` });
    assert.equal(await placeOfStart(now, said, processes), null);
    mkdirSync(`${processes}/7/fd`, { recursive: true });
    symlinkSync('/dev/null', `${processes}/7/fd/1`);
    symlinkSync(log, `${processes}/7/fd/2`);
    assert.deepEqual(await placeOfStart(now, said, processes), { path: log, offset: 0 });
  });
});

describe('after a restart, a file that is emptied', () => {
  const before = 'cd'.repeat(16);
  const opened = (processes: string, log: string): void => {
    mkdirSync(`${processes}/7/fd`, { recursive: true });
    symlinkSync(log, `${processes}/7/fd/2`);
  };

  it('is read from its beginning, although it is as long as before already', async (t) => {
    const { log, processes } = world(t);
    opened(processes, log);
    const now = unit({ invocationId: start, mainPid: 7, standardError: `truncate:${log}` });
    const mark = { invocationId: before, outputFile: { path: log, offset: 4 } };
    assert.deepEqual(await placeAfterRestart(now, mark, processes), { path: log, offset: 0 });
  });

  it('is read from its former end while the former start runs, or the new one has not opened it', async (t) => {
    const { log, processes } = world(t);
    const now = unit({ invocationId: start, mainPid: 7, standardError: `truncate:${log}` });
    const outputFile = { path: log, offset: 4 };
    assert.equal(await placeAfterRestart(now, { invocationId: before, outputFile }, processes), outputFile);
    opened(processes, log);
    assert.equal(await placeAfterRestart(now, { invocationId: start, outputFile }, processes), outputFile);
  });

  it('is not taken for one that is appended to', async (t) => {
    const { log, processes } = world(t);
    opened(processes, log);
    const now = unit({ invocationId: start, mainPid: 7, standardError: `append:${log}` });
    const outputFile = { path: log, offset: 4 };
    assert.equal(await placeAfterRestart(now, { invocationId: before, outputFile }, processes), outputFile);
  });
});

for (const text of [
  '',
  'vgpu-agent: the log of this start is 1:2, after bytes',
  'vgpu-agent: the log of this start is 1, after 3 bytes',
  ' vgpu-agent: the log of this start is 1:2, after 3 bytes',
  'vgpu-agent: the log of this start is 1:2, after 3 bytes\n',
]) {
  it(`a note that reads ${JSON.stringify(text)} is none`, () => assert.equal(parseNote(text), null));
}
