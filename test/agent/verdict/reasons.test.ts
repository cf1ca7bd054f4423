import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { reasons } from '../../../agent/contracts/verdict.js';
import { packageRoot } from '../../../agent/lib/paths.js';
import { checks } from '../../../agent/verdict/doctor/diagnose.js';

const text = readFileSync(path.join(packageRoot(), 'docs/reference/reasons.md'), 'utf8');

/** A row of the table: `reason`, meaning, what to do, checks. */
const rows = text
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.slice(2, -2).split(' | '));

test('docs/reference/reasons.md has a line for each reason, with what to do', () => {
  assert.deepEqual(rows.map(([reason]) => reason?.slice(1, -1)).sort(), [...reasons].sort());
  for (const [reason, meaning, todo] of rows)
    assert.ok((meaning ?? '') !== '' && (todo ?? '') !== '', reason);
});

test('the checks of the doctor that are named with a reason are those that explain it', () => {
  for (const [named = '', , , list = ''] of rows) {
    for (const [, id] of list.matchAll(/`([^`]+)`/g)) {
      const check = checks.find((one) => one.id === id);
      assert.ok(
        check?.explains.some((reason) => named === `\`${reason}\``),
        `${named}: ${id}`,
      );
    }
  }
});
