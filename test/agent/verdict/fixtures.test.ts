import assert from 'node:assert/strict';
import { createReadStream, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { explainLog } from '../../../agent/verdict/log/judge.js';

interface Expected {
  readonly file: string;
  readonly version: string;
  readonly mode: string;
  readonly devices: readonly unknown[];
  readonly reason: string | null;
}

const directory = path.join(packageRoot(), 'test/fixtures/ollama-logs');
const manifest: readonly Expected[] = JSON.parse(readFileSync(path.join(directory, 'manifest.json'), 'utf8'));
const profile = loadProfile('ollama');

test('there are 76 logs of real servers to judge', () => {
  assert.equal(manifest.length, 76);
});

for (const expected of manifest) {
  test(`${expected.file} is judged ${expected.mode}, ${expected.reason}`, async () => {
    const findings = await explainLog(profile, createReadStream(path.join(directory, expected.file)));
    assert.equal(findings.mode, expected.mode);
    assert.equal(findings.reason, expected.reason);
    assert.deepEqual(findings.devices, expected.devices);
    assert.equal(findings.simulated, false);
    assert.equal(findings.version, expected.version);
    assert.notEqual(findings.evidence.length, 0);
  });
}

interface Reported extends Pick<Expected, 'file' | 'mode' | 'reason'> {
  readonly profile: string;
  readonly shows: string;
}

const reported = path.join(packageRoot(), 'test/fixtures/reported-logs');
const reports: readonly Reported[] = JSON.parse(readFileSync(path.join(reported, 'manifest.json'), 'utf8'));

for (const { file, profile: name, mode, reason, shows } of reports) {
  test(`a log as public reports have it, ${shows}: ${mode}, ${reason}`, async () => {
    const findings = await explainLog(loadProfile(name), createReadStream(path.join(reported, file)));
    assert.deepEqual([findings.mode, findings.reason], [mode, reason]);
  });
}
