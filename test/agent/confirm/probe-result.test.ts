import assert from 'node:assert/strict';
import { test } from 'node:test';
import { probeResult } from '../../../agent/confirm/probe-result.js';
import type { ProbeRun } from '../../../agent/contracts/probe.js';
import { report } from './support.js';

function ran(changes: Partial<Extract<ProbeRun, { kind: 'ran' }>> = {}): ProbeRun {
  return {
    kind: 'ran',
    exitCode: 0,
    signal: null,
    timedOut: false,
    stdout: `${JSON.stringify(report())}\n`,
    stderr: '',
    milliseconds: 80,
    ...changes,
  };
}

test('a good answer is an answer', () => {
  assert.deepEqual(probeResult(ran()), {
    kind: 'answered',
    report: report(),
    milliseconds: 80,
    noHost: null,
  });
});

test('what the shim says of the host is kept', () => {
  const failed = report({
    ok: false,
    devices: [],
    roundTrip: null,
    error: { step: 'cuInit', code: 100, name: 'CUDA_ERROR_NO_DEVICE', message: 'x' },
  });
  const result = probeResult(
    ran({
      exitCode: 1,
      stdout: JSON.stringify(failed),
      stderr: 'vgpu: other\nvgpu[12]: no host: cannot connect to unix:/run/x: Connection refused\n',
    }),
  );
  assert.equal(
    result.kind === 'answered' ? result.noHost : null,
    'cannot connect to unix:/run/x: Connection refused',
  );
});

test('a probe that was ended, timed out or not run is no answer', () => {
  assert.deepEqual(probeResult(ran({ signal: 'SEGV', exitCode: null })), {
    kind: 'crashed',
    message: 'vgpu-probe was ended by SEGV',
  });
  assert.deepEqual(probeResult(ran({ timedOut: true })), { kind: 'timed-out', milliseconds: 80 });
  assert.deepEqual(probeResult({ kind: 'not-run', message: 'x' }), { kind: 'not-run', message: 'x' });
});

test('other output than the agreed document is a crash', () => {
  for (const stdout of [
    '',
    'null',
    '[]',
    '{"schema":1}',
    JSON.stringify({ ...report(), schema: 2 }),
    JSON.stringify({ ...report(), devices: [{}] }),
    '{"ok":true}',
  ]) {
    assert.equal(probeResult(ran({ stdout })).kind, 'crashed', stdout);
  }
});

test('a document that the exit status gives the lie is not believed', () => {
  assert.equal(probeResult(ran({ exitCode: 1 })).kind, 'crashed');
  assert.equal(probeResult(ran({ stdout: JSON.stringify(report({ ok: false })) })).kind, 'crashed');
});
