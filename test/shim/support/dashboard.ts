/** A Grafana dashboard as this project writes one: its panels, checked for what Grafana refuses or draws wrongly. */
import assert from 'node:assert/strict';

export interface Query {
  readonly panel: string;
  readonly expression: string;
}

function member(value: unknown, name: string): unknown {
  assert.ok(typeof value === 'object' && value !== null, `no object around "${name}"`);
  return Object.entries(value).find(([key]) => key === name)?.[1];
}

function list(value: unknown, what: string): readonly unknown[] {
  assert.ok(Array.isArray(value), `${what} is no list`);
  return value;
}

function text(value: unknown, what: string): string {
  assert.ok(typeof value === 'string' && value !== '', `${what} is no text`);
  return value;
}

/** The queries of all panels. Fails for a panel that overlaps another, has another's number, or a data source of its own. */
export function queriesOf(dashboard: unknown): readonly Query[] {
  assert.ok(Number.isInteger(member(dashboard, 'schemaVersion')), 'schemaVersion');
  text(member(dashboard, 'uid'), 'uid');
  const variables = list(member(member(dashboard, 'templating'), 'list'), 'templating.list');
  const names = variables.map((variable) => text(member(variable, 'name'), 'name of a variable'));
  assert.ok(names.includes('datasource'), 'a variable chooses the data source');
  const numbers = new Set<unknown>();
  const taken = new Set<string>();
  return list(member(dashboard, 'panels'), 'panels').flatMap((panel) => {
    const title = text(member(panel, 'title'), 'title of a panel');
    const id = member(panel, 'id');
    assert.ok(Number.isInteger(id) && !numbers.has(id), `${title}: its number is not its own`);
    numbers.add(id);
    const [x, y, w, h] = ['x', 'y', 'w', 'h'].map((name) => Number(member(member(panel, 'gridPos'), name)));
    assert.ok(x !== undefined && y !== undefined && w !== undefined && h !== undefined);
    assert.ok(x >= 0 && x + w <= 24 && h >= 1, `${title}: outside of the 24 columns`);
    for (let column = x; column < x + w; column += 1) {
      for (let row = y; row < y + h; row += 1) {
        assert.ok(!taken.has(`${column},${row}`), `${title}: overlaps another panel`);
        taken.add(`${column},${row}`);
      }
    }
    if (member(panel, 'type') === 'row') return [];
    return list(member(panel, 'targets'), `${title}: targets`).map((target) => {
      assert.equal(member(member(target, 'datasource'), 'uid'), '$' + '{datasource}', title);
      const expression = text(member(target, 'expr'), `${title}: expr`);
      for (const [, name = ''] of expression.matchAll(/\$(\w+)/g))
        assert.ok(name === '__rate_interval' || names.includes(name), `${title}: no variable ${name}`);
      return { panel: title, expression };
    });
  });
}
