// Which consumers a status has to judge for itself, and where those verdicts go.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import type { ConsumerView, StatusView } from '../../../../agent/contracts/views.js';
import { unjudged, withVerdictOf } from '../../../../agent/install/pipeline/status-view.js';

const verdict: Verdict = {
  mode: 'gpu',
  simulated: false,
  devices: [],
  reason: null,
  evidence: [],
  profile: 'ollama',
  unit: 'ollama.service',
  invocationId: null,
  consumerVersion: null,
  summary: '',
  next: '',
};

function consumer(name: string, active: string | null, known: Verdict | null): ConsumerView {
  const unit = { name, load: 'loaded', active, invocationId: null, restarts: 0 } as const;
  return { profile: 'ollama', unit, drift: [], verdict: known };
}

function view(first: ConsumerView, ...others: readonly ConsumerView[]): StatusView {
  const { unit, drift } = first;
  return {
    installed: {
      agent: '0.1.0',
      profile: 'ollama',
      unit: unit.name,
      storeId: '1',
      endpoint: 'vsock:2:14833',
      items: 1,
    },
    interrupted: false,
    consumers: [first, ...others],
    drift,
    unit,
    host: { endpoint: 'vsock:2:14833', from: 'default', answer: { kind: 'unasked' } },
    verdict: first.verdict,
  };
}

test('a consumer that runs and has no verdict is unjudged', () => {
  const all = view(
    consumer('a.service', 'active (running)', null),
    consumer('b.service', 'active (running)', verdict),
    consumer('c.service', 'inactive (dead)', null),
    consumer('d.service', 'activating (auto-restart)', null),
    consumer('e.service', null, null),
  );
  assert.deepEqual(unjudged(all), ['a.service']);
});

test('where nothing is installed nothing is unjudged', () => {
  assert.deepEqual(
    unjudged({ ...view(consumer('a.service', 'active (running)', null)), installed: null }),
    [],
  );
});

test('a verdict goes to its consumer, and to the whole if that is the first', () => {
  const [a, b] = [
    consumer('a.service', 'active (running)', null),
    consumer('b.service', 'active (running)', null),
  ];
  const first = withVerdictOf(view(a, b), 'a.service', verdict);
  assert.deepEqual([first.verdict, ...first.consumers.map((one) => one.verdict)], [verdict, verdict, null]);
  const second = withVerdictOf(view(a, b), 'b.service', verdict);
  assert.deepEqual([second.verdict, ...second.consumers.map((one) => one.verdict)], [null, null, verdict]);
});
