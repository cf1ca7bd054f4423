// Draws the answers of the service. Log lines and names come from other programs, so they are added as text nodes, never
// as HTML.

const modes = ['gpu', 'cpu', 'degraded', 'undetermined'];
const weights = { for: 'for GPU', against: 'against GPU', neutral: 'neutral' };

/** @type {(value: unknown, ...keys: string[]) => unknown} */
export function at(value, ...keys) {
  return keys.reduce(
    (inner, key) =>
      typeof inner === 'object' && inner !== null
        ? Object.getOwnPropertyDescriptor(inner, key)?.value
        : undefined,
    value,
  );
}

/** @type {(value: unknown) => string} */
export function text(value) {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

/** @type {(value: unknown) => readonly unknown[]} */
function list(value) {
  return Array.isArray(value) ? value : [];
}

/** @type {(id: string) => HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no element "${id}"`);
  return found;
}

/**
 * An element with children; strings become text nodes.
 * @type {<K extends keyof HTMLElementTagNameMap>(tag: K, ...children: (string | Node)[]) => HTMLElementTagNameMap[K]}
 */
export function element(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

/**
 * A list of terms; without those that have no text.
 * @type {(rows: readonly (readonly [string, string])[]) => HTMLElement}
 */
function terms(rows) {
  const shown = rows.filter(([, value]) => value !== '');
  return element('dl', ...shown.flatMap(([term, value]) => [element('dt', term), element('dd', value)]));
}

/** @type {(verdict: unknown) => HTMLElement} */
export function badge(verdict) {
  const mode = text(at(verdict, 'mode'));
  const known = modes.includes(mode);
  const simulated = at(verdict, 'simulated') === true ? ' (simulated)' : '';
  const made = element('span', known ? `${mode.toUpperCase()}${simulated}` : 'no verdict yet');
  made.className = `verdict ${known ? mode : 'none'}`;
  return made;
}

/** @type {(verdict: unknown) => HTMLElement} */
function evidence(verdict) {
  const rows = list(at(verdict, 'evidence')).map((one) => {
    const weight = text(at(one, 'weight'));
    return element(
      'tr',
      element('td', text(at(weights, weight)) || weight),
      element('td', text(at(one, 'kind'))),
      // A cursor of the journal is for programs; a person finds the line by its text.
      element('td', text(at(one, 'text'))),
      element('td', text(at(one, 'source')).replace(/^journal cursor .*/, 'journal')),
    );
  });
  const head = ['Weight', 'Kind', 'What was found', 'Where'].map((title) => element('th', title));
  return element(
    'table',
    element('caption', 'Evidence'),
    element('thead', element('tr', ...head)),
    element('tbody', ...rows),
  );
}

/** @type {(due: unknown) => string} */
function restart(due) {
  const reason = text(at(due, 'reason'));
  return reason === '' ? '' : `${reason}; waits: ${text(at(due, 'waitsFor'))}`;
}

/** @type {(drift: unknown) => string} */
function driftText(drift) {
  const items = list(drift).map((one) => `${text(at(one, 'change'))}: ${text(at(one, 'reason'))}`);
  return items.length === 0 ? 'none' : items.join('\n');
}

/** @type {(consumer: unknown) => HTMLElement} */
function consumerArticle(consumer) {
  const verdict = at(consumer, 'verdict');
  const unit = text(at(consumer, 'unit', 'name'));
  const devices = list(at(verdict, 'devices')).map((one) => text(at(one, 'name')));
  const article = element(
    'article',
    element('h3', `${unit} (${text(at(consumer, 'profile'))})`, badge(verdict)),
    terms([
      ['Summary', text(at(verdict, 'summary'))],
      ['Reason', text(at(verdict, 'reason'))],
      ['Next', text(at(verdict, 'next'))],
      ['Devices', devices.join(', ')],
      ['Transport', text(at(verdict, 'carrier'))],
      ['Unit', text(at(consumer, 'unit', 'active')) || text(at(consumer, 'unit', 'load'))],
      ['State', text(at(consumer, 'service', 'state'))],
      ['Problem', text(at(consumer, 'service', 'problem'))],
      ['Restart due', restart(at(consumer, 'service', 'pendingRestart'))],
      ['Drift now', driftText(at(consumer, 'drift'))],
    ]),
  );
  if (list(at(verdict, 'evidence')).length > 0) article.append(evidence(verdict));
  article.dataset['unit'] = unit;
  return article;
}

/** @type {(status: unknown) => string} */
function hostAnswer(status) {
  const answer = at(status, 'host', 'answer');
  switch (at(answer, 'kind')) {
    case 'answers': {
      const device = text(at(answer, 'device'));
      const said = at(answer, 'simulated') === true && !device.includes('(simulated)');
      return `answers: ${device}${said ? ' (simulated)' : ''}`;
    }
    case 'unreachable':
      return `does not answer: ${text(at(answer, 'message'))}`;
    default:
      return 'not asked yet';
  }
}

/**
 * Fills the sections with what the service said last.
 * @type {(status: unknown) => void}
 */
export function show(status) {
  const service = at(status, 'service');
  const count = (/** @type {string} */ name) => text(at(service, name));
  byId('service').replaceChildren(
    terms([
      ['Version', text(at(service, 'version'))],
      ['State', text(at(service, 'state'))],
      ['Problem', text(at(service, 'problem'))],
      ['agent.json is not in force', text(at(service, 'configProblem'))],
      ['agent.json is not valid', text(at(status, 'configProblem'))],
      ['Restart due', restart(at(service, 'pendingRestart'))],
      [
        'Since its start',
        `drifts found: ${count('drifts')}, repairs: ${count('repairs')}, failed repairs: ${count('failedRepairs')}, ` +
          `restarts of consumers: ${count('restarts')}, losses of the host: ${count('hostLosses')}`,
      ],
    ]),
  );
  byId('consumers').replaceChildren(...list(at(status, 'consumers')).map(consumerArticle));
  byId('host').replaceChildren(
    terms([
      ['Address', text(at(status, 'host', 'endpoint'))],
      ['State', hostAnswer(status)],
    ]),
  );
  byId('notice').textContent = '';
  byId('facts').hidden = false;
}

/**
 * Without an answer of the service nothing is known: what it said before is taken off the page.
 * @type {(why: string) => void}
 */
export function showNothing(why) {
  byId('facts').hidden = true;
  for (const id of ['service', 'consumers', 'host', 'result']) byId(id).replaceChildren();
  byId('notice').textContent = why;
}
