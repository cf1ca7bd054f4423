/** Kernels as evidence: what the probe's numbers make of a verdict. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ProbeReport } from '../../../agent/contracts/probe.js';
import type { ProbeFailure } from '../../../agent/contracts/shim-codes.js';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { probeCommand } from '../../../agent/systemd/run-in-unit.js';
import { probeResult } from '../../../agent/verdict/confirm.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { answered, findingsOf, observation, report, unit, withoutPreload } from './support.js';

const right = { ok: true, values: 1000, wrong: 0, microseconds: 70 };
const wrong = { ok: false, values: 1000, wrong: 7, microseconds: 70 };
const begun = { ok: false, values: 0, wrong: 0, microseconds: 0 };

function failed(
  kind: ProbeFailure,
  step: string,
  name: string | null,
  message: string,
): Partial<ProbeReport> {
  return { ok: false, error: { kind, step, code: name === null ? null : 1, name, message } };
}

function judged(changes: Partial<Observation>): Verdict {
  return decideVerdict(observation({ computeAsked: true, ...changes }));
}

const evidence = (verdict: Verdict) =>
  verdict.evidence.filter(({ kind }) => kind === 'compute').map(({ weight, text }) => `${weight}: ${text}`);

test('right numbers speak for the GPU, and the summary says so', () => {
  const verdict = judged({ probe: answered({ compute: right }) });
  assert.equal(verdict.mode, 'gpu');
  assert.match(evidence(verdict).join(), /^for: the test kernels ran there: 1000 numbers, each .* in 70 us$/);
  assert.match(verdict.summary, /compute the right numbers on it/);
});

describe('no GPU where the numbers are wrong or the kernels do not run', () => {
  const cases: readonly (readonly [string, Partial<ProbeReport>, RegExp])[] = [
    [
      'wrong numbers',
      {
        compute: wrong,
        ...failed('compute', 'compare', null, '7 of 1000 numbers that the kernels computed are wrong'),
      },
      /7 of 1000 numbers/,
    ],
    [
      'a launch that is refused',
      {
        compute: begun,
        ...failed('call', 'cuLaunchKernel', 'CUDA_ERROR_NOT_SUPPORTED', 'cuLaunchKernel failed with 801'),
      },
      /CUDA_ERROR_NOT_SUPPORTED/,
    ],
    [
      'a kernel that does not end',
      { compute: begun, ...failed('timeout', 'cuCtxSynchronize', null, 'no answer within 60 s') },
      /cuCtxSynchronize: no answer within 60 s/,
    ],
  ];
  for (const [what, changes, detail] of cases) {
    test(what, () => {
      const verdict = judged({ probe: answered(changes) });
      assert.equal(verdict.mode, 'degraded');
      assert.equal(verdict.reason, 'compute-failed');
      assert.match(verdict.summary, detail);
      assert.match(verdict.next ?? '', /vgpu-probe --json --compute$/);
      assert.match(evidence(verdict).join(), /^against: /);
      const probe = verdict.evidence.find(({ kind }) => kind === 'probe');
      assert.equal(probe?.weight, 'for', 'the device itself is there');
    });
  }
});

test('a host that is lost while kernels run is a lost host, not a device that computes wrong', () => {
  const lost = answered({
    compute: begun,
    ...failed('call', 'cuCtxSynchronize', 'CUDA_ERROR_SYSTEM_NOT_READY', 'cuCtxSynchronize failed with 802'),
  });
  assert.equal(judged({ probe: lost }).reason, 'host-unreachable');
});

test('kernels that could not be tried leave it undetermined; not asked for, they are not missed', () => {
  const notRun = { kind: 'not-run', message: 'systemd-run is missing' } as const;
  for (const probe of [notRun, answered(), null]) {
    const verdict = decideVerdict(withoutPreload(observation({ computeAsked: true, probe })));
    assert.equal(verdict.mode, 'undetermined', JSON.stringify(probe));
    assert.equal(verdict.reason, 'compute-failed');
    assert.match(evidence(verdict).join(), /^neutral: /);
    const unasked = decideVerdict(withoutPreload(observation({ computeAsked: false, probe })));
    assert.equal(unasked.mode, 'gpu');
    assert.deepEqual(evidence(unasked), []);
  }
});

test('a CPU verdict stays, whatever the test kernels do', () => {
  const log = findingsOf('0.32.9_count0_debug0');
  assert.equal(judged({ log, probe: answered({ compute: right }) }).mode, 'cpu');
});

test('a probe of another version that does not know --compute is not run, not crashed', () => {
  const run = { exitCode: 2, signal: null, timedOut: false, stdout: '', stderr: 'usage', milliseconds: 1 };
  const result = probeResult({ kind: 'ran', ...run });
  assert.equal(result.kind, 'not-run');
});

test('an answer with an invalid compute member does not count', () => {
  const run = { exitCode: 0, signal: null, timedOut: false, stderr: '', milliseconds: 1 };
  const stdout = JSON.stringify({ ...report(), compute: { ok: 'yes' } });
  assert.equal(probeResult({ kind: 'ran', ...run, stdout }).kind, 'crashed');
});

test('the probe runs kernels only when they are requested', () => {
  const base = { unit: unit(), program: '/p', timeoutMs: 1000 };
  assert.equal(probeCommand({ ...base, compute: true }).args.at(-1), '--compute');
  assert.ok(!probeCommand(base).args.includes('--compute'));
});
