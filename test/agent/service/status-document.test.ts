// The service's status, as one line and as a document.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { statusView } from '../../../agent/install/pipeline/status-view.js';
import type { ConsumerState, Snapshot } from '../../../agent/service/board.js';
import { statusDocument, statusLine } from '../../../agent/service/overview.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import { settled } from '../install/plan/settled.js';
import { observation, ollama } from '../verdict/support.js';

const gpu: Verdict = decideVerdict(observation());
const counters = { checks: 1, drifts: 2, repairs: 3, failedRepairs: 4, restarts: 5 };
const consumer = (changes: Partial<ConsumerState> = {}): ConsumerState => ({
  profile: 'ollama',
  unit: 'ollama.service',
  phase: 'settled',
  problem: null,
  verdict: gpu,
  view: null,
  pendingRestart: null,
  counters,
  ...changes,
});
const host = { endpoint: 'unix:/x', answers: true, simulated: false, detail: 'H200' };
const snapshot = (...consumers: readonly ConsumerState[]): Snapshot => ({
  configProblem: null,
  host,
  hosts: [],
  hostLosses: 6,
  hostMoves: 0,
  repairMilliseconds: 7,
  consumers,
});

test('one line says the phase, the verdict, the host and the trouble', () => {
  const lines = [
    snapshot(),
    snapshot(consumer()),
    snapshot(consumer({ verdict: { ...gpu, mode: 'cpu', simulated: true } })),
    snapshot(consumer({ phase: 'degraded', problem: 'two\n  lines' })),
    { ...snapshot(consumer()), host: { ...host, answers: false } },
    { ...snapshot(consumer()), host: { ...host, answers: null } },
    snapshot(consumer({ problem: 'a' }), consumer({ unit: 'b.service', phase: 'waiting', problem: 'c' })),
  ].map(statusLine);
  assert.deepEqual(lines, [
    'starting, no verdict yet',
    'settled, gpu',
    'settled, cpu (simulated)',
    'degraded, gpu: two lines',
    'settled, gpu; the host does not answer',
    'settled, gpu',
    'waiting, gpu: ollama.service: a; b.service: c',
  ]);
});

const view = statusView(ollama, settled(), null, gpu);

test('the document has the view, the host as the service last heard of it, and its own counters', () => {
  assert.equal(statusDocument(snapshot(consumer()), '1.2.3'), null, 'nothing was looked at');
  const seen = consumer({ view });
  const answers = [host, { ...host, answers: false, detail: 'gone' }, { ...host, answers: null }].map(
    (state) =>
      Reflect.get(
        Reflect.get(statusDocument({ ...snapshot(seen), host: state }, '1.2.3') ?? {}, 'host'),
        'answer',
      ),
  );
  assert.deepEqual(answers, [
    { kind: 'answers', device: 'H200', simulated: false, milliseconds: 0 },
    { kind: 'unreachable', message: 'gone', word: null },
    { kind: 'unasked' },
  ]);
  const document = statusDocument(snapshot(seen), '1.2.3') ?? {};
  assert.deepEqual([Reflect.get(document, 'schema'), Reflect.get(document, 'command')], [1, 'status']);
  assert.deepEqual(Reflect.get(document, 'service'), {
    version: '1.2.3',
    state: 'settled',
    problem: null,
    configProblem: null,
    pendingRestart: null,
    ...counters,
    hostLosses: 6,
    repairMilliseconds: 7,
  });
});

test('of several hosts the document has each, which is in use, and how often that changed', () => {
  const other = { endpoint: 'tcp:10.0.0.2:1', answers: false, simulated: false, detail: 'no route' };
  const now = {
    ...snapshot(consumer({ view })),
    hosts: [
      { ...host, inUse: true },
      { ...other, inUse: false },
    ],
  };
  const document = JSON.parse(JSON.stringify(statusDocument({ ...now, hostMoves: 3 }, '1.2.3')));
  assert.deepEqual(document.host.hosts, [
    { endpoint: 'unix:/x', inUse: true, answer: document.host.answer },
    {
      endpoint: other.endpoint,
      inUse: false,
      answer: { kind: 'unreachable', message: 'no route', word: null },
    },
  ]);
  assert.equal(document.service.hostMoves, 3);
});
