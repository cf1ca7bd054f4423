import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProbeRun } from '../../../agent/contracts/probe.js';
import { probeResult } from '../../../agent/verdict/confirm.js';
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

test("the shim's report on the host is kept, as codes", () => {
  const word = hostWord('unreachable', { errno: 'ECONNREFUSED' });
  const failed = report({ ok: false, devices: [], roundTrip: null, host: word, error });
  const result = probeResult(ran({ exitCode: 1, stdout: JSON.stringify(failed) }));
  assert.deepEqual(result.kind === 'answered' ? result.report.host : null, word);
});

test('a document with a code that is not known is no answer, and its place is named', () => {
  for (const [changes, place] of [
    [{ host: 'unreachable' }, '/host'],
    [{ host: { ...hostWord('unreachable', {}), code: 'beamed' } }, '/host/code'],
    [{ error: { ...error, kind: 'beamed' } }, '/error/kind'],
  ] as const) {
    const stdout = JSON.stringify({ ...report({ ok: false, error }), ...changes });
    const result = probeResult(ran({ exitCode: 1, stdout }));
    assert.match(result.kind === 'crashed' ? result.message : result.kind, new RegExp(`: ${place} must`));
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

test('a document that contradicts the exit status does not count', () => {
  assert.equal(probeResult(ran({ exitCode: 1 })).kind, 'crashed');
  assert.equal(probeResult(ran({ stdout: JSON.stringify(report({ ok: false })) })).kind, 'crashed');
});

test("the error has the beginning of the probe's standard error", () => {
  const messageOf = (run: ProbeRun): string => {
    const result = probeResult(run);
    return 'message' in result ? result.message : result.kind;
  };
  const bare = messageOf(ran({ stdout: 'x', stderr: ' \n' }));
  assert.ok(bare.length > 0 && !bare.includes('it said'));
  const said = messageOf(ran({ stdout: 'x', stderr: `\n${'e'.repeat(400)}\n` }));
  assert.equal(said, `${bare}; it said: ${'e'.repeat(300)}`);
  assert.equal(messageOf(ran({ exitCode: 1 })), 'vgpu-probe says ok=true but exits with 1');
  assert.match(
    messageOf(ran({ exitCode: 2 })),
    /does not know these options; sudo vgpu-agent install brings its own$/,
  );
});

test('a result from the container is marked so, and no other', () => {
  const of = (run: ProbeRun): unknown => Reflect.get(probeResult(run), 'inContainer');
  assert.deepEqual(
    [of(ran({ inContainer: true })), of(ran({ inContainer: false })), of(ran())],
    [true, undefined, undefined],
  );
});
