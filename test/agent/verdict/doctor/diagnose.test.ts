// From findings to a diagnosis: which comes first, what a check that throws does, and the exit status.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exitCodeOf } from '../../../../agent/cli/commands/doctor.js';
import type { Reason } from '../../../../agent/contracts/verdict.js';
import { ExitCode } from '../../../../agent/lib/errors.js';
import { checks, diagnose, isHealthy } from '../../../../agent/verdict/doctor/diagnose.js';
import { broken, byHand, type Check, ok } from '../../../../agent/verdict/doctor/finding.js';
import { linkTo } from '../../install/plan/support.js';
import { doctorFacts } from './support.js';

const made = (id: string, explains: readonly Reason[], examine: Check['examine']): Check => ({
  id,
  title: id,
  looksAt: id,
  explains,
  examine,
});
const wrong = () => broken({ cause: 'c', evidence: [], remedy: byHand('t', 'c') });
const healthy = made('fine', [], () => ok());

test('the finding that explains the verdict comes first, then the others in the order of causes', () => {
  const facts = doctorFacts({ verdict: { mode: 'cpu', reason: 'no-device' } });
  const all = [
    made('a', [], wrong),
    healthy,
    made('b', ['no-device'], wrong),
    made('c', ['host-slow'], wrong),
  ];
  const { results, broken: bad } = diagnose(facts, all);
  assert.deepEqual(
    results.map(({ check }) => check.id),
    ['a', 'fine', 'b', 'c'],
  );
  assert.deepEqual(
    bad.map(({ check }) => check.id),
    ['b', 'a', 'c'],
  );
  const unexplained = diagnose(doctorFacts({ verdict: { reason: null } }), all);
  assert.deepEqual(
    unexplained.broken.map(({ check }) => check.id),
    ['a', 'b', 'c'],
  );
});

test('a check that throws is unknown, with its message, and hides no other check', () => {
  const thrown = (what: unknown) =>
    made('x', [], () => {
      throw what;
    });
  const { results } = diagnose(doctorFacts(), [thrown(new Error('boom')), thrown('bang'), healthy]);
  assert.deepEqual(
    results.map(({ finding }) =>
      finding.kind === 'unknown' ? [finding.why, ...finding.evidence] : finding.kind,
    ),
    [
      ['the check itself failed, which is a bug in vgpu-agent', 'boom'],
      ['the check itself failed, which is a bug in vgpu-agent', 'bang'],
      'ok',
    ],
  );
});

test('the exit status is the verdict’s; GPU mode beside something broken is degraded', () => {
  const codes = (['gpu', 'cpu', 'degraded', 'undetermined'] as const).map((mode) =>
    [healthy, made('x', [], wrong)].map((check) => {
      const diagnosis = diagnose(doctorFacts({ verdict: { mode } }), [check]);
      return [isHealthy(diagnosis), exitCodeOf(diagnosis)];
    }),
  );
  const { done, cpu, degraded, undetermined } = ExitCode;
  assert.deepEqual(codes, [
    [
      [true, done],
      [false, degraded],
    ],
    [
      [false, cpu],
      [false, cpu],
    ],
    [
      [false, degraded],
      [false, degraded],
    ],
    [
      [false, undetermined],
      [false, undetermined],
    ],
  ]);
});

test('a library of the store that is cut short comes before the service that it ends', () => {
  const id = '0123456789abcdef';
  const target = `versions/${id}`;
  const seen = { end: 'unit-restarting', restarts: 3 } as const;
  for (const reason of ['unit-restarting', 'unit-failed'] as const) {
    const { store } = doctorFacts().machine;
    const cutShort = {
      ...store,
      current: linkTo(target),
      versions: [{ id, intact: false }],
    } as const;
    const facts = doctorFacts({ observation: seen, verdict: { reason }, machine: { store: cutShort } });
    const { broken: bad } = diagnose(facts);
    assert.deepEqual(
      bad.slice(0, 2).map(({ check }) => check.id),
      ['store', 'unit-runs'],
    );
  }
});

test('all checks are run', () => {
  assert.deepEqual(
    diagnose(doctorFacts()).results.map(({ check }) => check.id),
    checks.map(({ id }) => id),
  );
});
