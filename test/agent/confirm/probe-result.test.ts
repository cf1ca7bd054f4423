import assert from 'node:assert/strict';
import { test } from 'node:test';
import { probeResult } from '../../../agent/confirm/probe-result.js';
import type { ProbeRun } from '../../../agent/contracts/probe.js';
import { hostWord, report } from './support.js';

const error = {
  kind: 'call',
  step: 'cuInit',
  code: 100,
  name: 'CUDA_ERROR_NO_DEVICE',
  message: 'x',
} as const;

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
  });
});

test('what the shim tells of the host is kept, as codes', () => {
  const word = hostWord('unreachable', { errno: 'ECONNREFUSED' });
  const failed = report({ ok: false, devices: [], roundTrip: null, host: word, error });
  const result = probeResult(ran({ exitCode: 1, stdout: JSON.stringify(failed) }));
  assert.deepEqual(result.kind === 'answered' ? result.report.host : null, word);
});

test('codes that only a newer probe knows, and a probe that is too old to tell, are no word of the host', () => {
  for (const host of [undefined, null, 'unreachable', {}, { code: 'beamed' }, { code: 4 }]) {
    const stdout = JSON.stringify({ ...report({ ok: false, error }), host });
    const result = probeResult(ran({ exitCode: 1, stdout }));
    assert.equal(result.kind === 'answered' ? result.report.host : result, null, JSON.stringify(host));
  }
  for (const [kind, code, read] of [
    ['beamed', 100, 'call'],
    [undefined, 100, 'call'],
    [undefined, null, 'other'],
    ['timeout', null, 'timeout'],
  ] as const) {
    const stdout = JSON.stringify({ ...report(), ok: false, error: { ...error, kind, code } });
    const result = probeResult(ran({ exitCode: 1, stdout }));
    assert.equal(result.kind === 'answered' ? result.report.error?.kind : result, read);
  }
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
