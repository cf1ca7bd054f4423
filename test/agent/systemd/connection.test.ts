/** A connection to the bus among strangers: whatever they send, it goes on. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { addMatch, BusBusyError, type BusConnection, connectBus } from '../../../agent/systemd/connection.js';
import { type Daemon, knock, manyStrings, startDaemon, stranger } from './stranger.js';

const path = '/here';
const name = 'org.example.Here';
const dbus = {
  destination: 'org.freedesktop.DBus',
  path: '/org/freedesktop/DBus',
  interface: 'org.freedesktop.DBus',
};

/** Its errors are collected: the policy of a process decides about them. */
function unexpected(run: () => Promise<void>): Promise<readonly string[]> {
  const met: string[] = [];
  const hear = (error: unknown): void => void met.push(String(error));
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', hear);
  return run()
    .finally(() => {
      process.removeListener('uncaughtException', hear);
      for (const other of others) process.on('uncaughtException', other);
    })
    .then(() => met);
}

/** Closed even if the test fails: an open one would keep the file from ending. */
async function connect(t: TestContext, daemon: Daemon): Promise<BusConnection> {
  const bus = await connectBus(daemon.address);
  t.after(() => bus.close());
  return bus;
}

async function serving(
  t: TestContext,
  daemon: Daemon,
): Promise<{ readonly bus: BusConnection; readonly unique: string }> {
  const bus = await connect(t, daemon);
  bus.serve((call) => {
    switch (call.member) {
      case 'Throw':
        throw new TypeError('a handler that throws');
      case 'Reject':
        return Promise.reject(new TypeError('a handler that rejects'));
      case 'Wrong':
        return Promise.resolve({ kind: 'reply', signature: 'v', body: [Object] });
      default:
        return Promise.resolve({ kind: 'reply', signature: 's', body: ['here'] });
    }
  });
  await bus.call({ ...dbus, member: 'RequestName', signature: 'su', body: [name, 4] });
  const [unique] = await bus.call({ ...dbus, member: 'GetNameOwner', signature: 's', body: [name] });
  return { bus, unique: String(unique) };
}

const ask = (bus: BusConnection, member: string): Promise<readonly unknown[]> =>
  bus.call({ destination: name, path, interface: name, member, timeoutMs: 60_000 });

test('a handler that throws, rejects or answers nonsense is an error to its caller, and the next is answered', async (t) => {
  const daemon = await startDaemon(t);
  await serving(t, daemon);
  const client = await connect(t, daemon);
  const met = await unexpected(async () => {
    await assert.rejects(ask(client, 'Throw'), /a handler that throws$/);
    await assert.rejects(ask(client, 'Reject'), /a handler that rejects$/);
    await assert.rejects(ask(client, 'Wrong'), /Expected/);
    assert.deepEqual(await ask(client, 'Ping'), ['here']);
  });
  assert.equal(met.length, 3, met.join('\n'));
});

test('a message of an unknown type does not end the connection', async (t) => {
  const daemon = await startDaemon(t);
  const { unique } = await serving(t, daemon);
  const send = await stranger(t, daemon);
  await send({ type: 9, destination: unique, path, interface: name, member: 'Odd' });
  const client = await connect(t, daemon);
  assert.deepEqual(await ask(client, 'Ping'), ['here']);
  assert.deepEqual(await ask(client, 'Ping'), ['here']);
});

test('a listener of signals that throws hears the next one, and so do the others', async (t) => {
  const daemon = await startDaemon(t);
  const bus = await connect(t, daemon);
  await addMatch(bus, `type='signal',interface='${name}'`);
  const sender = await connect(t, daemon);
  const heard: string[] = [];
  bus.onSignal(({ member }) => {
    throw new TypeError(`a listener that throws at ${member}`);
  });
  bus.onSignal(({ member }) => void heard.push(member));
  const met = await unexpected(async () => {
    for (const member of ['One', 'Two'])
      sender.emit({ path, interface: name, member, signature: '', body: [] });
    while (heard.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  });
  assert.deepEqual(heard, ['One', 'Two']);
  assert.equal(met.length, 2);
});

test('a signal in the name of another sender is not heard, sent to all or to this connection alone', async (t) => {
  const daemon = await startDaemon(t);
  const { bus, unique } = await serving(t, daemon);
  const owned = 'org.example.Owned';
  const owner = await connect(t, daemon);
  await owner.call({ ...dbus, member: 'RequestName', signature: 'su', body: [owned, 4] });
  const signal = { path, interface: owned, signature: '', body: [] };
  owner.serve(() => {
    owner.emit({ ...signal, member: 'Last' });
    return Promise.resolve({ kind: 'reply', signature: '', body: [] });
  });
  await addMatch(bus, `type='signal',sender='${owned}',interface='${owned}'`);
  const heard: string[] = [];
  const over = new Promise<void>((resolve) => {
    bus.onSignal(({ member }) => {
      heard.push(member);
      if (member === 'Last') resolve();
    });
  });
  const other = await connect(t, daemon);
  other.emit({ ...signal, member: 'ToAll' });
  await other.call({ ...dbus, member: 'GetId' });
  const send = await stranger(t, daemon);
  await send({ type: 4, destination: unique, path, interface: owned, member: 'ToOne' });
  // The daemon hands on what one connection sends in its order.
  await send({ destination: owned, path, interface: owned, member: 'End' });
  await over;
  assert.deepEqual(heard, ['Last']);
});

test('a message that would not fit the heap of the service is dropped, and the next is answered', async (t) => {
  const daemon = await startDaemon(t, { max_message_size: 33_554_432 });
  const { unique } = await serving(t, daemon);
  const send = await stranger(t, daemon);
  const long = { destination: unique, path, interface: name, member: 'Long', signature: 'as' };
  const before = process.memoryUsage().heapUsed;
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, process.memoryUsage().heapUsed);
  }, 1);
  t.after(() => clearInterval(sampling));
  const client = await connect(t, daemon);
  // In pieces too: the socket gives 64 KiB at a time.
  for (const strings of [4_000_000, 9_000, 8_192]) {
    await send({ ...long, body: manyStrings(strings) });
    assert.deepEqual(await ask(client, 'Ping'), ['here']);
  }
  clearInterval(sampling);
  // Read, it takes more than 200 MB.
  assert.ok(most - before < 60_000_000, `${most - before} bytes`);
});

test('a bus that strangers keep from taking connections is called busy, with the time that was waited', async (t) => {
  const daemon = await startDaemon(t, { max_incomplete_connections: 4, auth_timeout: 30_000 });
  for (let strangers = 0; strangers < 6; strangers += 1) await knock(t, daemon);
  const busy = (error: unknown): boolean =>
    error instanceof BusBusyError && /is busy: it did not answer .* within 0\.3 s$/.test(error.message);
  await assert.rejects(connectBus(daemon.address, 300), busy);
});
