// The metrics, word for word: names and labels are what dashboards and alerts are built on.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Board, consumerBoard, type Snapshot } from '../../../agent/service/board.js';
import { metricsText } from '../../../agent/service/metrics.js';
import { cpuVerdict, verdict } from '../cli/output/samples.js';
import { expected } from '../expected.js';

const file = expected('metrics');

function boardOf(...units: readonly string[]): Board {
  const board = new Board();
  board.setConsumers(units.map((unit) => ({ profile: 'ollama', unit })));
  return board;
}

const says = (title: string, snapshot: Snapshot, roundTrip: number | null) =>
  file.text(title, async () => (await metricsText({ snapshot, version: '0.1.0', roundTrip })).trimEnd());

says('nothing is known yet', boardOf('ollama.service').now, null);

const busy = boardOf('ollama@1.service', 'ollama@2.service');
busy.update({
  configProblem: 'line 1',
  host: { endpoint: 'unix:/x', answers: true, simulated: true, detail: 'GPU' },
});
busy.count('hostLosses');
const first = consumerBoard(busy, 'ollama', 'ollama@1.service');
first.update({ phase: 'settled', verdict });
for (const [name, times] of [
  ['checks', 7],
  ['drifts', 5],
  ['failedRepairs', 3],
  ['restarts', 2],
] as const) {
  for (let count = 0; count < times; count += 1) first.count(name);
}
first.repaired(96);
consumerBoard(busy, 'ollama', 'ollama@2.service').update({
  phase: 'waiting',
  verdict: cpuVerdict,
  pendingRestart: { reason: 'former files', waitsFor: 'requests' },
});
says('a simulated GPU, a consumer on the CPU that waits, and everything counted', busy.now, 0.00003);

file.nothingElse();

test('each metric has a type and a help', async () => {
  const text = await metricsText({ snapshot: busy.now, version: '0.1.0', roundTrip: 1 });
  const names = new Set([...text.matchAll(/^(vgpu_\w+)/gm)].map((one) => one[1]));
  for (const name of names)
    assert.match(text, new RegExp(`^# HELP ${name} .+\n# TYPE ${name} (gauge|counter)$`, 'm'));
});
