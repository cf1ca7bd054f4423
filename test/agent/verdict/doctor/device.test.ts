// The checks of the device and of the service's answers; every verdict is explained by a check.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { type Reason, reasons } from '../../../../agent/contracts/verdict.js';
import { device, readiness } from '../../../../agent/verdict/doctor/checks/device.js';
import { checks, diagnose } from '../../../../agent/verdict/doctor/diagnose.js';
import { expected } from '../../expected.js';
import { answered, findingsOf, report, unit } from '../support.js';
import { says } from './findings.js';
import { doctorFacts, toNamespace } from './support.js';

const file = expected('doctor-device');
const probed = (step: string, name: string | null, kind: 'call' | 'signal' = 'call') =>
  doctorFacts({
    observation: {
      probe: answered({
        ok: false,
        error: { kind, step, code: null, name, message: `${step}: ${name ?? kind}` },
      }),
    },
  });
const t4 = report().devices.map((one) => ({ ...one, name: 'Tesla T4', compute: '7.5' }));
const cpu = findingsOf('0.32.9_count0_debug0');

says(file, device, {
  'all is well': doctorFacts(),
  'no probe': doctorFacts({ observation: { probe: null } }),
  'the probe could not be run': doctorFacts({ observation: { probe: { kind: 'not-run', message: 'gone' } } }),
  'the driver does not start': probed('cuInit', 'CUDA_ERROR_UNKNOWN'),
  'no context can be made': probed('cuDevicePrimaryCtxRetain', 'CUDA_ERROR_OUT_OF_MEMORY'),
  'the probe was ended by a signal': probed('cuInit', null, 'signal'),
  'the probe crashed before it said anything': doctorFacts({
    observation: { probe: { kind: 'crashed', message: 'vgpu-probe was ended by SIGSEGV' } },
  }),
  'what others tell': probed('cuInit', 'CUDA_ERROR_NO_DEVICE'),
  'its log says that the driver does not start, and it does now': doctorFacts({
    observation: { log: { ...cpu, reason: 'driver-init-failed' } },
  }),
  'its log says that a process crashed': doctorFacts({
    observation: { log: { ...cpu, mode: 'degraded', reason: 'probe-crashed' } },
    verdict: { invocationId: 'abc' },
  }),
  'its log in a namespace says that a process crashed': doctorFacts({
    observation: { log: { ...cpu, mode: 'degraded', reason: 'probe-crashed' }, unit: unit(toNamespace) },
    verdict: { invocationId: 'abc' },
  }),
  'its log says that the capability cannot be read': doctorFacts({
    observation: { log: { ...cpu, reason: 'compute-capability-unreadable' } },
  }),
  'its log names a reason of its own, and it is on the GPU': doctorFacts({
    observation: { log: { ...findingsOf('0.32.9_gpu-mode_debug0'), reason: 'probe-crashed' } },
  }),
  'its log names a reason that other checks tell': doctorFacts({
    observation: { log: { ...cpu, reason: 'no-device' } },
  }),
  'its log says that the driver does not start, and no probe now': doctorFacts({
    observation: { log: { ...cpu, reason: 'driver-init-failed' }, probe: null },
  }),
  'its log says that a process crashed, of an unknown start': doctorFacts({
    observation: {
      log: {
        ...cpu,
        mode: 'degraded',
        reason: 'probe-crashed',
        evidence: [...cpu.evidence, { kind: 'probe', weight: 'against', text: 'no line', source: 'x' }],
      },
    },
    verdict: { invocationId: null },
  }),
  'it names another device than the probe': doctorFacts({
    observation: { probe: answered({ devices: t4 }) },
  }),
});

const silent = {
  readiness: { kind: 'silent', url: 'http://127.0.0.1:11434/api/version', lastError: 'ECONNREFUSED' },
  elapsedMs: 2_000,
} as const;
says(file, readiness, {
  'it answers': doctorFacts(),
  'it was not asked': doctorFacts({ observation: { readiness: { kind: 'unasked', why: 'x' } } }),
  'it does not answer': doctorFacts({ observation: silent, verdict: { reason: 'readiness-timeout' } }),
  'it does not answer, and logs to a namespace': doctorFacts({
    observation: { ...silent, unit: unit(toNamespace) },
    verdict: { reason: 'readiness-timeout' },
  }),
  'it does not answer for another reason': doctorFacts({
    observation: silent,
    verdict: { reason: 'host-slow' },
  }),
});
file.nothingElse();

/** The reasons that no check explains, and why that is right. */
const unexplained: Partial<Readonly<Record<Reason, string>>> = {
  'no-work-yet': 'nothing is broken: it has the GPU and has had no request; the verdict says so',
  'evidence-stale': 'only the service says so, of a verdict that is too old; the doctor looks itself',
  'unsupported-log-version':
    'the verdict names the version, and an update of the consumer is all there is to do',
  'compute-failed': 'the doctor runs no kernels: verify --compute does, and names the call or the numbers',
};

test('every reason for not being on the GPU is explained by a check, or is listed with why not', () => {
  const explained = new Set(checks.flatMap((one) => one.explains));
  for (const reason of reasons)
    assert.notEqual(explained.has(reason), reason in unexplained, `${reason}: exactly one of both`);
});

test('docs/reference/reasons.md names for each reason the checks that explain it', () => {
  const text = readFileSync(
    path.join(import.meta.dirname, '../../../../../docs/reference/reasons.md'),
    'utf8',
  );
  for (const reason of reasons) {
    const line = text.split('\n').find((one) => one.startsWith(`| \`${reason}\` |`));
    assert.ok(line !== undefined, reason);
    const named = line.split(' | ')[3] ?? '';
    const first = checks.some(({ id, explains }) => explains.includes(reason) && named.includes(`\`${id}\``));
    assert.equal(first, !(reason in unexplained), `${reason}: ${named}`);
  }
});

test('each check is the first that reports the reasons which it explains', () => {
  const first = (facts: Parameters<typeof diagnose>[0]) => diagnose(facts).broken[0]?.check.id;
  assert.equal(first(probed('cuCtxCreate_v3', 'CUDA_ERROR_NOT_SUPPORTED')), 'device');
  assert.equal(first(probed('cuInit', 'CUDA_ERROR_UNKNOWN')), 'device');
  assert.equal(first(doctorFacts({ observation: { probe: answered({ devices: t4 }) } })), 'device');
});
