// vgpu-agent's page in Cockpit: asks the service on the system bus (org.vgpu.Agent1), follows the journal, and has a button
// for each method. show.js draws the answers.

import { at, badge, byId, element, show, showNothing, text } from './show.js';

const busName = 'org.vgpu.Agent1';
const busPath = '/org/vgpu/Agent1';
const properties = 'org.freedesktop.DBus.Properties';
const readTimeoutMs = 10_000;
// Verify waits for the log of each consumer, which can take minutes.
const actTimeoutMs = 900_000;
const retryMs = 3_000;
const journalLines = 50;

// The MESSAGE_IDs of agent/systemd/journal-writer.ts that this page shows.
const messageIds = [
  '89c46e78561542d4bb0a4255da0e7399', // drift
  '4de2833d91af4de285d2f203d2adcc3d', // repaired
  'e9762b2bda4741eba4abd3aa63fab619', // repairFailed
  '0c1bc92d7f394427a0d7e6d70c3c0217', // repairLimit
  'afd5a6ffeee74b16a28492d435a11686', // hostLost
  'f62d4d9376e342efb15557f9ac2feeb5', // hostBack
  '9d7ddf0a5ff74db0b95915023ecd12db', // hostMoved
];

const methods = [
  { member: 'Verify', label: 'Verify', busy: 'Verifying every consumer.' },
  { member: 'Repair', label: 'Repair', busy: 'Looking for drift and repairing it.' },
  { member: 'Reload', label: 'Reload agent.json', busy: 'Reading agent.json.' },
];

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
      // The close event has reported the reason.
      if (!this.#open) return;
      const name = text(at(error, 'name'));
      showNothing(/\.(ServiceUnknown|NameHasNoOwner)$/.test(name) ? notRunning : plain(error));
      // A service that hangs sends no signal: query it again.
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
// Reloads this page when administrative access is turned on or off, because open channels keep their rights.
cockpit.permission({ admin: true });
connect();
followJournal();
