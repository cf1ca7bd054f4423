/** The Grafana dashboard and the alert rules: they ask for metrics and labels that the agent and vgpu-hostd have. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Board, consumerBoard } from '../../../agent/service/board.js';
import { metricsText } from '../../../agent/service/metrics.js';
import { verdict } from '../../agent/cli/output/samples.js';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory, startHost } from '../shim_host.js';
import { queriesOf } from '../support/dashboard.js';

const folder = path.join(ROOT, 'scripts/packaging/prometheus');
const dashboard: unknown = JSON.parse(readFileSync(path.join(folder, 'vgpu-agent.dashboard.json'), 'utf8'));
const rules = readFileSync(path.join(folder, 'vgpu-agent.rules.yml'), 'utf8');

/** Metrics by name, each with its labels, of a text in Prometheus' format. A metric without a value has none. */
function exported(text: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const [, name = ''] of text.matchAll(/^# TYPE (\w+) /gm)) found.set(name, new Set());
  for (const [, name = '', labels = ''] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm))
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) found.get(name)?.add(label);
  return found;
}

/** The labels of each metric that an expression selects. */
function asked(expression: string): readonly (readonly [string, readonly string[]])[] {
  return [...expression.matchAll(/\b(vgpu_\w+)(?:\{([^}]*)\})?/g)].map(([, name = '', selector = '']) => [
    name,
    [...selector.matchAll(/(\w+)=/g)].map(([, label = '']) => label),
  ]);
}

describe('dashboard and alerts', () => {
  const scratch = scratchDirectory();
  let known: Map<string, Set<string>>;

  before(async () => {
    const board = new Board();
    board.setConsumers([{ profile: 'ollama', unit: 'ollama.service' }]);
    const consumer = consumerBoard(board, 'ollama', 'ollama.service');
    consumer.update({ phase: 'settled', verdict });
    consumer.repaired(96);
    const guest = await metricsText({ snapshot: board.now, version: '0.1.0', roundTrip: 0.001 });
    const control = `${scratch.path}/control`;
    const host = await startHost({
      listen: `unix:${scratch.path}/host.sock`,
      args: ['--control', control],
    });
    const told = await runProgram(builtFile('vgpu-hostd'), ['metrics', '--control', control]);
    await host.stop();
    assert.equal(told.code, 0, told.stderr);
    known = exported(`${guest}\n${told.stdout}`);
    // No session is there now: its labels are those of host_manage.test.ts.
    for (const [name, labels] of known)
      if (name.startsWith('vgpu_hostd_session_')) for (const label of ['session', 'peer']) labels.add(label);
  });
  after(() => scratch.remove());

  const check = (expressions: readonly string[]): void => {
    for (const expression of expressions) {
      for (const [name, labels] of asked(expression)) {
        const there = known.get(name);
        assert.ok(there !== undefined, `${name} is exported by nobody: ${expression}`);
        for (const label of labels)
          assert.ok(label === 'instance' || there.has(label), `${name} has no label ${label}: ${expression}`);
      }
    }
  };

  it('the dashboard asks for what there is', () => {
    const queries = queriesOf(dashboard);
    assert.ok(queries.length > 20, `${queries.length} queries`);
    check(queries.map(({ expression }) => expression));
  });

  it('the alerts ask for what there is', () => {
    const expressions = [...rules.matchAll(/^ +expr: (.+)$/gm)].map(([, one = '']) => one);
    assert.ok(expressions.length >= 6);
    check(expressions);
  });

  it('every metric is on the dashboard', () => {
    const shown = new Set(
      queriesOf(dashboard).flatMap(({ expression }) => asked(expression).map(([name]) => name)),
    );
    const left = [...known.keys()].filter((name) => name.startsWith('vgpu_') && !shown.has(name));
    // Totals that a graph of others already shows, and the number of a look, which is no quantity.
    assert.deepEqual(left, [
      'vgpu_verdict_look',
      'vgpu_checks_total',
      'vgpu_hostd_sessions_begun_total',
      'vgpu_hostd_session_calls',
    ]);
  });
});
