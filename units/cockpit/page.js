// vgpu-agent's page in Cockpit. It shows what the service says of itself on the system bus (org.vgpu.Agent1), the
// journal's entries about drift, and has a button for each method. Log lines and names come from other programs: they
// reach the page as text nodes only, never as HTML.

const busName = 'org.vgpu.Agent1';
const busPath = '/org/vgpu/Agent1';
const properties = 'org.freedesktop.DBus.Properties';
const readTimeoutMs = 10_000;
// Judging a consumer waits for its log; each profile has its own limit, in minutes.
const actTimeoutMs = 900_000;
const retryMs = 3_000;
const journalLines = 50;

// The MESSAGE_IDs of agent/contracts/journal-messages.ts that this page shows.
const messageIds = [
  '89c46e78561542d4bb0a4255da0e7399', // drift
  '4de2833d91af4de285d2f203d2adcc3d', // repaired
  'e9762b2bda4741eba4abd3aa63fab619', // repairFailed
  '0c1bc92d7f394427a0d7e6d70c3c0217', // repairLimit
  'afd5a6ffeee74b16a28492d435a11686', // hostLost
  'f62d4d9376e342efb15557f9ac2feeb5', // hostBack
];

const methods = [
  { member: 'Verify', label: 'Verify', busy: 'Verifying every consumer.' },
  { member: 'Repair', label: 'Repair', busy: 'Looking for drift and repairing it.' },
  { member: 'Reload', label: 'Reload agent.json', busy: 'Reading agent.json.' },
];

const modes = ['gpu', 'cpu', 'degraded', 'undetermined'];
const weights = { for: 'for GPU', against: 'against GPU', neutral: 'neutral' };

/** @type {(value: unknown, ...keys: string[]) => unknown} */
function at(value, ...keys) {
  return keys.reduce(
    (inner, key) =>
      typeof inner === 'object' && inner !== null
        ? Object.getOwnPropertyDescriptor(inner, key)?.value
        : undefined,
    value,
  );
}

/** @type {(value: unknown) => string} */
function text(value) {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

/** @type {(value: unknown) => readonly unknown[]} */
function list(value) {
  return Array.isArray(value) ? value : [];
}

/** @type {(id: string) => HTMLElement} */
function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`index.html has no element "${id}"`);
  return found;
}

/**
 * An element with children; strings become text nodes.
 * @type {<K extends keyof HTMLElementTagNameMap>(tag: K, ...children: (string | Node)[]) => HTMLElementTagNameMap[K]}
 */
function element(tag, ...children) {
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
function badge(verdict) {
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
function show(status) {
  const service = at(status, 'service');
  const count = (/** @type {string} */ name) => text(at(service, name));
  byId('service').replaceChildren(
    terms([
      ['Version', text(at(service, 'version'))],
      ['State', text(at(service, 'state'))],
      ['Problem', text(at(service, 'problem'))],
      ['agent.json is not in force', text(at(service, 'configProblem'))],
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
function showNothing(why) {
  byId('facts').hidden = true;
  for (const id of ['service', 'consumers', 'host', 'result']) byId(id).replaceChildren();
  byId('notice').textContent = why;
}

/** @type {(error: unknown) => string} */
function plain(error) {
  const name = text(at(error, 'name'));
  const message = text(at(error, 'message')) || (error instanceof Error ? error.message : '');
  if (name.endsWith('.AccessDenied')) {
    return `${message}. Turn on administrative access in Cockpit, or ask an administrator.`;
  }
  if (name.endsWith('.NoReply') || name.endsWith('.Timeout')) {
    return 'The service did not answer in time. Look at its journal: journalctl -u vgpu-agent';
  }
  return message || text(at(error, 'problem')) || 'The reason is not known.';
}

const notRunning = 'The service is not running: systemctl start vgpu-agent';

/** @type {Record<string, string>} */
const problems = {
  'not-found': notRunning,
  'access-denied': 'You may not talk to the system bus.',
  terminated: 'The session has ended. Log in again.',
  disconnected: 'The connection to this machine is lost.',
};

/** One connection to the service; replaced when it closes. */
class Connection {
  #client = cockpit.dbus(busName, { bus: 'system', superuser: 'try' });
  #open = true;
  #reading = false;
  #again = false;

  constructor() {
    this.#client.subscribe({ path: busPath, interface: properties, member: 'PropertiesChanged' }, () =>
      this.read(),
    );
    this.#client.addEventListener('owner', (_, owner) => {
      if (owner === null) showNothing(notRunning);
      else this.read();
    });
    this.#client.addEventListener('close', (_, { problem }) => {
      this.#open = false;
      showNothing(problems[problem ?? ''] ?? `The system bus cannot be reached: ${problem ?? 'closed'}`);
      setTimeout(connect, retryMs);
    });
    this.read();
  }

  /** Reads the status; once more where it changed meanwhile. */
  async read() {
    if (this.#reading) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    do {
      this.#again = false;
      await this.#readOnce();
    } while (this.#again && this.#open);
    this.#reading = false;
  }

  async #readOnce() {
    try {
      const answer = await this.#client.call(busPath, properties, 'Get', [busName, 'Status'], {
        type: 'ss',
        timeout: readTimeoutMs,
      });
      /** @type {unknown} */
      const status = JSON.parse(text(at(answer, '0', 'v')));
      if (!this.#open || this.#again) return;
      if (status === null) showNothing('The service has started and inspects this machine.');
      else show(status);
    } catch (error) {
      // The close event has told why.
      if (!this.#open) return;
      const name = text(at(error, 'name'));
      showNothing(/\.(ServiceUnknown|NameHasNoOwner)$/.test(name) ? notRunning : plain(error));
      // A service that hangs is not heard: ask again.
      setTimeout(() => this.#open && this.read(), retryMs);
    }
  }

  /** @type {(member: string) => Promise<readonly unknown[]>} */
  async act(member) {
    return this.#client.call(busPath, busName, member, [], { type: '', timeout: actTimeoutMs });
  }
}

/** @type {Connection} */
let connection;

function connect() {
  connection = new Connection();
}

/** @type {(member: string, answer: readonly unknown[]) => string} */
function resultText(member, answer) {
  switch (member) {
    case 'Verify': {
      /** @type {unknown} */
      const verdict = JSON.parse(text(answer[0]));
      return `Verified: ${badge(verdict).textContent}. ${text(at(verdict, 'summary'))}`;
    }
    case 'Repair':
      return `Repair ended; state: ${text(answer[0])}. ${text(answer[1])}`;
    default:
      return 'agent.json was read, and is in force.';
  }
}

function addButtons() {
  const buttons = methods.map(({ member, label, busy }) => {
    const button = element('button', label);
    button.type = 'button';
    button.dataset['method'] = member;
    button.addEventListener('click', async () => {
      const result = byId('result');
      for (const one of buttons) one.disabled = true;
      result.textContent = busy;
      try {
        result.textContent = resultText(member, await connection.act(member));
      } catch (error) {
        result.textContent = `${label} failed: ${plain(error)}`;
      } finally {
        for (const one of buttons) one.disabled = false;
      }
    });
    return button;
  });
  byId('buttons').replaceChildren(...buttons);
}

/** @type {(line: string) => void} */
function addEntry(line) {
  /** @type {unknown} */
  const entry = JSON.parse(line);
  const when = new Date(Number(text(at(entry, '__REALTIME_TIMESTAMP'))) / 1_000);
  const time = element('time', when.toLocaleString());
  time.dateTime = when.toISOString();
  // journalctl gives a message that is not UTF-8 as an array of bytes.
  const item = element('li', time, text(at(entry, 'MESSAGE')) || '(not text)');
  const journal = byId('journal');
  journal.prepend(item);
  while (journal.children.length > journalLines) journal.lastElementChild?.remove();
}

/**
 * _SYSTEMD_UNIT is set by journald, so that no other program's entries are shown. --system: without it, a user who may not
 * read the system's journal gets the user's own, and an empty list would look as if nothing had happened.
 */
function followJournal() {
  const wanted = messageIds.map((id) => `MESSAGE_ID=${id}`);
  const command = [
    'journalctl',
    '--system',
    '--quiet',
    '--follow',
    `--lines=${journalLines}`,
    '--output=json',
  ];
  let rest = '';
  cockpit
    .spawn([...command, '_SYSTEMD_UNIT=vgpu-agent.service', ...wanted], { superuser: 'try', err: 'message' })
    .stream((chunk) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line !== '') addEntry(line);
    })
    .catch((error) => {
      byId('journal-problem').textContent =
        `The journal cannot be read: ${plain(error)} Turn on administrative access in Cockpit to read it.`;
    });
}

/** Cockpit's own choice of light or dark, which its pages share in localStorage. */
function followStyle() {
  const style = localStorage.getItem('shell:style') ?? 'auto';
  document.documentElement.style.colorScheme = style === 'auto' ? 'light dark' : style;
}

window.addEventListener('storage', followStyle);
window.addEventListener('cockpit-style', followStyle);
followStyle();
addButtons();
// It loads this page again when administrative access is turned on or off: what was opened before keeps its rights.
cockpit.permission({ admin: true });
connect();
followJournal();
