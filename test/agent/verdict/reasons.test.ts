import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { reasons } from '../../../agent/contracts/verdict.js';
import { packageRoot } from '../../../agent/lib/paths.js';
import { checks } from '../../../agent/verdict/doctor/diagnose.js';

const text = readFileSync(path.join(packageRoot(), 'docs/reference/reasons.md'), 'utf8');

test('docs/reference/reasons.md explains exactly the reasons that there are', () => {
  const documented = [...text.matchAll(/^## (\S+)$/gm)].map((match) => match[1]);
  assert.deepEqual([...documented].sort(), [...reasons].sort());
  assert.equal(new Set(documented).size, documented.length);
});

test('every reason is listed once in the table, and says what is seen and what to do', () => {
  for (const reason of reasons) {
    assert.equal(text.split(`[${reason}](#${reason})`).length - 1 >= 1, true, reason);
    const section = text.split(`## ${reason}\n`)[1]?.split('\n## ')[0] ?? '';
    assert.match(section, /\*\*Seen:\*\* \S/, reason);
    assert.match(section, /\*\*Do:\*\* \S/, reason);
  }
});

test('every link in it refers to a reason', () => {
  for (const [, target] of text.matchAll(/\]\(#([^)]+)\)/g)) {
    assert.ok(
      reasons.some((reason) => reason === target),
      target,
    );
  }
});

test('the checks of the doctor that are named with a reason are there, and explain it', () => {
  let named = 0;
  for (const reason of reasons) {
    const section = text.split(`## ${reason}\n`)[1]?.split('\n## ')[0] ?? '';
    const line = /^\*\*Doctor:\*\* (.*)$/m.exec(section)?.[1];
    for (const [, id] of (line ?? '').matchAll(/`([^`]+)`/g)) {
      const check = checks.find((one) => one.id === id);
      assert.ok(check?.explains.includes(reason), `${reason}: ${id}`);
      named += 1;
    }
  }
  assert.ok(named > 10, `${named} checks are named`);
});
