import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { noteStart } from '../../../agent/service/own-process.js';

function inDirectory(run: (file: string) => void): void {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-starts-'));
  try {
    run(path.join(directory, 'starts'));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('a service that crashes again and again waits longer each time, and never more than 30 s', () => {
  inDirectory((file) => {
    const pauses: number[] = [];
    let now = 1_000;
    for (let start = 0; start < 20; start += 1) {
      const { pauseMs } = noteStart(file, now);
      pauses.push(pauseMs);
      now += pauseMs + 300;
    }
    assert.deepEqual(pauses.slice(0, 8), [0, 0, 0, 0, 0, 0, 0, 0], 'the first are answered at once');
    assert.deepEqual(pauses.slice(8, 12), [400, 800, 1_600, 3_200]);
    assert.deepEqual(pauses.slice(16), [30_000, 30_000, 30_000, 30_000]);
    // Ten quiet minutes.
    assert.deepEqual(noteStart(file, now + 600_000).pauseMs, 0);
  });
});

test('a clean stop forgets the crashes', () => {
  inDirectory((file) => {
    for (let start = 0; start < 9; start += 1) noteStart(file, start);
    const last = noteStart(file, 10);
    assert.equal(last.recent, 9);
    last.forget();
    assert.equal(noteStart(file, 11).recent, 0);
  });
});

test('nonsense in the file, a clock that went back and a missing directory cost nothing', () => {
  inDirectory((file) => {
    writeFileSync(file, '{"length": 9');
    assert.equal(noteStart(file, 5_000).pauseMs, 0);
    assert.equal(noteStart(file, 1_000).recent, 0);
    const nowhere = noteStart(path.join(file, 'below', 'starts'), 1);
    assert.equal(nowhere.pauseMs, 0);
    nowhere.forget();
  });
});
