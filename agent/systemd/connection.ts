/**
 * One connection to the system bus, with what dbus-next leaves out: a limit on every wait, failures as
 * VgpuError, and an end that ends. dbus-next is loaded here and nowhere else.
 *
 * Seen in dbus-next 0.10.2: calls that are under way when the stream ends are never settled; the process
 * does not exit without disconnect(); match rules that were added are never removed, so signals are
 * subscribed once for the connection's life.
 */
import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { errnoOf, messageOf, reportUnexpected, VgpuError } from '../lib/errors.js';
import { member } from '../lib/json.js';

const systemBusSocket = '/run/dbus/system_bus_socket';
const connectTimeoutMs = 10_000;
/** D-Bus's own default for a reply. */
const callTimeoutMs = 25_000;
/** ALLOW_INTERACTIVE_AUTHORIZATION of the D-Bus specification; dbus-next has no name for it. */
const allowInteractive = 4;

export interface BusCall {
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: readonly unknown[];
  readonly timeoutMs?: number;
}

interface Message {
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly body: readonly unknown[];
}

export interface BusSignal extends Message {
  /** The unique name, which the bus vouches for. */
  readonly sender: string;
}

export interface IncomingCall extends BusSignal {
  /** The caller can wait for a person to be asked for a password. */
  readonly interactive: boolean;
}

interface OutgoingSignal extends Message {
  readonly signature: string;
}

export class BusError extends Error {
  override readonly name = 'BusError';
  readonly type: string;

  constructor(type: string, message: string) {
    super(message);
    this.type = type;
  }
}

export type BusAnswer =
  | { readonly kind: 'reply'; readonly signature: string; readonly body: readonly unknown[] }
  | { readonly kind: 'error'; readonly type: string; readonly message: string };

export interface BusConnection {
  /** Rejects with a BusError (the service's answer) or `failed` (the bus is gone, or silent for 25 s). */
  call(call: BusCall): Promise<readonly unknown[]>;
  /**
   * Hears every broadcast signal that the bus delivers, until the returned function is called. Does not add a match rule; the
   * sender= of that rule is what the bus checks. A signal to this connection alone is not heard: the bus delivers it whatever
   * the rules are, so any user can send one in systemd's name.
   */
  onSignal(listener: (signal: BusSignal) => void): () => void;
  /** Answers method calls to this connection; `handler` gives null for what is not its business. */
  serve(handler: (call: IncomingCall) => Promise<BusAnswer> | null): void;
  /** Sends a signal to all listeners; silently nothing when the connection is over. */
  emit(signal: OutgoingSignal): void;
  variant(signature: string, value: unknown): unknown;
  /** To systemd itself: there is no bus that takes match rules. */
  readonly direct: boolean;
  /** Resolves when the connection is over, whichever end closed it. */
  readonly closed: Promise<void>;
  close(): void;
}

export const busDaemon = {
  destination: 'org.freedesktop.DBus',
  path: '/org/freedesktop/DBus',
  interface: 'org.freedesktop.DBus',
} as const;

/** Asks the bus for the signals that `rule` describes; they are delivered until the connection ends. */
export async function addMatch(bus: BusConnection, rule: string): Promise<void> {
  if (!bus.direct) await bus.call({ ...busDaemon, member: 'AddMatch', signature: 's', body: [rule] });
}

/** Ends what `addMatch` asked for. dbus-next's own removeMatch never reaches the bus. */
export async function removeMatch(bus: BusConnection, rule: string): Promise<void> {
  if (!bus.direct) await bus.call({ ...busDaemon, member: 'RemoveMatch', signature: 's', body: [rule] });
}

/** Rejects with `failed` when the bus does not answer within ten seconds (or `withinMs`). */
export async function connectBus(
  address: string | undefined = process.env['DBUS_SYSTEM_BUS_ADDRESS'],
  withinMs = connectTimeoutMs,
): Promise<BusConnection> {
  return connect(address, withinMs, false);
}

/** systemd's own socket, which only root may use and which needs no bus: systemctl uses it, too. */
const systemdSocket = '/run/systemd/private';

export async function connectSystemd(): Promise<BusConnection> {
  return connect(`unix:path=${systemdSocket}`, connectTimeoutMs, true);
}

async function connect(
  address: string | undefined,
  withinMs: number,
  direct: boolean,
): Promise<BusConnection> {
  const { default: dbus } = await import('dbus-next');
  const bus = opened(address, (usable) => dbus.sessionBus({ busAddress: usable }));
  const wire = connectionOf(bus);
  // Only a bus knows Hello, which dbus-next has queued until it is connected.
  if (direct) wire?.unsent.splice(0);

  let over = false;
  let finish: () => void = () => {};
  const closed = new Promise<void>((resolve) => {
    finish = () => {
      over = true;
      resolve();
    };
  });
  let gone: VgpuError | null = null;
  // Not a race with one promise for the connection's life: that would keep every answer there ever was.
  const waiting = new Set<(error: VgpuError) => void>();
  const fail = (cause: unknown): void => {
    finish();
    gone ??= busGone(address, cause);
    for (const reject of [...waiting]) reject(gone);
  };
  const stream = wire?.stream ?? null;
  let connected = false;
  // Both stay for good: a late error event without a listener would end the process. dbus-next also reports a message here
  // that it cannot read, such as one of an unknown type: any user can send it, and the connection goes on.
  bus.on('error', (cause: unknown) => {
    if (!connected || stream === null || stream.destroyed) fail(cause);
  });
  stream?.on('close', () => fail(new Error('the connection was closed')));

  const withLimit = async <T>(work: Promise<T>, milliseconds: number, late: () => VgpuError): Promise<T> => {
    let refuse: (error: VgpuError) => void = () => {};
    const refused = new Promise<never>((_, reject) => {
      refuse = reject;
    });
    const timer = setTimeout(() => refuse(late()), milliseconds);
    waiting.add(refuse);
    if (gone !== null) refuse(gone);
    try {
      return await Promise.race([work, refused]);
    } finally {
      clearTimeout(timer);
      waiting.delete(refuse);
    }
  };

  const close = (): void => {
    if (!over) bus.disconnect();
    finish();
  };

  try {
    await withLimit(
      new Promise<void>((resolve) => (direct ? wire?.events : bus)?.once('connect', resolve)),
      withinMs,
      () => new BusBusyError(address, `it did not answer a new connection within ${withinMs / 1000} s`),
    );
    connected = true;
    if (stream !== null) limitMessages(stream);
  } catch (error) {
    close();
    // disconnect() waits for an end that a silent bus does not send, and the process with it.
    stream?.destroy();
    throw error;
  }

  return {
    closed,
    close,
    direct,
    async call(request) {
      if (over) throw busGone(address, new Error('the connection was closed'));
      const message = new dbus.Message({
        destination: request.destination,
        path: request.path,
        interface: request.interface,
        member: request.member,
        signature: request.signature ?? '',
        body: [...(request.body ?? [])],
      });
      try {
        const milliseconds = request.timeoutMs ?? callTimeoutMs;
        const reply = await withLimit(bus.call(message), milliseconds, () =>
          noAnswer(request.member, milliseconds),
        );
        return reply?.body ?? [];
      } catch (error) {
        if (error instanceof dbus.DBusError) throw new BusError(error.type, error.text);
        throw error;
      }
    },
    onSignal(listener) {
      const hear = (message: InstanceType<typeof dbus.Message>): void => {
        // Declared for every message, but a broadcast has none.
        if (message.type !== dbus.MessageType.SIGNAL || message.destination) return;
        try {
          listener({
            sender: message.sender,
            path: message.path,
            interface: message.interface,
            member: message.member,
            body: message.body ?? [],
          });
        } catch (error) {
          reportUnexpected(error);
        }
      };
      bus.on('message', hear);
      return () => bus.removeListener('message', hear);
    },
    serve(handler) {
      bus.addMethodHandler((message: InstanceType<typeof dbus.Message>) => {
        if (message.type !== dbus.MessageType.METHOD_CALL) return false;
        const send = (answer: BusAnswer): void => {
          if (over || message.flags & dbus.MessageFlag.NO_REPLY_EXPECTED) return;
          bus.send(
            answer.kind === 'reply'
              ? dbus.Message.newMethodReturn(message, answer.signature, [...answer.body])
              : // Message.newError() and replySerial are declared with other types than they take.
                Object.assign(
                  new dbus.Message({
                    type: dbus.MessageType.ERROR,
                    replySerial: '1',
                    destination: message.sender,
                    errorName: answer.type,
                    signature: 's',
                    body: [answer.message],
                  }),
                  { replySerial: message.serial },
                ),
          );
        };
        // An answer that cannot be sent as D-Bus's types is one more failure.
        const refuse = (error: unknown): void => {
          if (!(error instanceof VgpuError)) reportUnexpected(error);
          send(failure(error));
        };
        try {
          const answering = handler({
            sender: message.sender,
            path: message.path,
            interface: message.interface ?? '',
            member: message.member,
            body: message.body ?? [],
            interactive: (message.flags & allowInteractive) !== 0,
          });
          if (answering === null) return false;
          answering.then(send).catch(refuse).catch(reportUnexpected);
        } catch (error) {
          refuse(error);
        }
        return true;
      });
    },
    emit({ path, interface: name, member, signature, body }) {
      if (over) return;
      try {
        bus.send(dbus.Message.newSignal(path, name, member, signature, [...body]));
      } catch (error) {
        reportUnexpected(error);
      }
    },
    variant: (signature, value) => new dbus.Variant(signature, value),
  };
}

function failure(error: unknown): BusAnswer {
  const message = messageOf(error);
  return { kind: 'error', type: 'org.freedesktop.DBus.Error.Failed', message };
}

/** dbus-next throws plain errors for an address that it does not understand, and runs a program for `unixexec:`. */
function opened<T>(address: string | undefined, open: (usable: string) => T): T {
  const usable = busAddress(address)
    .split(';')
    .filter((one) => /^(?:unix:(?:[^;]*,)?socket=[^,]|tcp:(?:[^;]*,)?port=\d)/.test(one));
  try {
    if (usable.length === 0) throw new Error('it names neither unix:path=PATH nor tcp:host=NAME,port=NUMBER');
    return open(usable.join(';'));
  } catch (cause) {
    const why = messageOf(cause);
    throw new VgpuError(
      `DBUS_SYSTEM_BUS_ADDRESS=${JSON.stringify(address)} is not an address of a bus: ${why}`,
      {
        kind: 'failed',
        operation: 'connect to the system bus',
        remedy: `unset DBUS_SYSTEM_BUS_ADDRESS, or set it to unix:path=${systemBusSocket}`,
        cause,
      },
    );
  }
}

/**
 * `unix:path=` becomes `unix:socket=`, which dbus-next opens with node:net; for `path` it tries the native
 * `usocket` first, whose handle outlives disconnect().
 */
function busAddress(address: string | undefined): string {
  if (address === undefined || address === '') return `unix:socket=${systemBusSocket}`;
  return address.replace(/\bunix:path=/g, 'unix:socket=').replace(/\bunix:abstract=/g, 'unix:socket=\0');
}

interface Wire {
  readonly stream: Socket;
  readonly events: EventEmitter;
  readonly unsent: unknown[];
}

/** The parts of a dbus-next bus that are not in its types. */
function connectionOf(bus: object): Wire | null {
  const events = member(bus, '_connection');
  const [stream, unsent] = [member(events, 'stream'), member(events, '_messages')];
  const known = stream instanceof Socket && events instanceof EventEmitter && Array.isArray(unsent);
  return known ? { stream, events, unsent } : null;
}

function placeOf(address: string | undefined): string {
  return address === undefined || address === '' ? systemBusSocket : address;
}

export class BusAwayError extends VgpuError {}

/**
 * The bus is there and takes no connection now: dbus-daemon accepts none while as many as max_incomplete_connections have
 * not said who they are. It closes each of them after auth_timeout, 5 s by default.
 */
export class BusBusyError extends BusAwayError {
  constructor(address: string | undefined, why: string) {
    const where = placeOf(address);
    super(`the system bus at ${where} is busy: ${why}`, {
      kind: 'failed',
      operation: 'connect to the system bus',
      path: where,
      remedy:
        'run the command again in a minute: the bus closes connections that never log in; sudo ss -xp | grep system_bus_socket shows whose they are',
    });
  }
}

function busGone(address: string | undefined, cause: unknown): VgpuError {
  const where = placeOf(address);
  // unix(7)
  if (errnoOf(cause) === 'EAGAIN') {
    return new BusBusyError(address, 'the queue of connections that it has not accepted is full');
  }
  const why = errnoOf(cause) ?? messageOf(cause);
  return new BusAwayError(`cannot connect to the system bus at ${where}: ${why}`, {
    kind: 'failed',
    operation: 'connect to the system bus',
    path: where,
    remedy: 'start it (systemctl start dbus), then run the command again',
    cause,
  });
}

function noAnswer(member: string, milliseconds: number): VgpuError {
  return new VgpuError(`no answer to ${member} on the system bus within ${milliseconds / 1000} s`, {
    kind: 'failed',
    operation: `call ${member}`,
    remedy: 'look at `systemctl status dbus` and `journalctl -b -u dbus`, then run the command again',
  });
}

// A limit on the messages that strangers may send to a connection of dbus-next, which reads a message of any size.

/**
 * Any user may send calls and signals of up to 32 MiB (dbus-daemon's max_message_size), and JavaScript makes up to a hundred
 * bytes of each of theirs. Ours are shorter than this by far.
 */
const longestBytes = 64 * 1024;
/** A reply comes from the service that was called: systemd's may be long. */
const replies: readonly (number | undefined)[] = [2, 3];
const headerBytes = 16;

/** Bytes after a message's first 16: header fields padded to eight, and the body (D-Bus specification, Message Format). */
function restOf(header: Buffer): number {
  const little = header[0] === 'l'.charCodeAt(0);
  const body = little ? header.readUInt32LE(4) : header.readUInt32BE(4);
  const fields = little ? header.readUInt32LE(12) : header.readUInt32BE(12);
  return Math.ceil(fields / 8) * 8 + body;
}

/**
 * Drops what is longer, without keeping it in memory. dbus-next takes a message from the stream in two reads: the first 16
 * bytes, then with a second argument the rest.
 */
function limitMessages(stream: Readable): void {
  const read = stream.read.bind(stream);
  let skip = 0;
  stream.read = (size?: number, ...rest: readonly unknown[]): unknown => {
    if (size !== headerBytes || rest.length > 0) return read(size);
    for (;;) {
      while (skip > 0) {
        // With nothing there this asks for more: the event `readable` comes again.
        const part: unknown = read(Math.min(skip, Math.max(1, stream.readableLength)));
        if (!Buffer.isBuffer(part)) return null;
        skip -= part.length;
      }
      const header: unknown = read(headerBytes);
      if (!Buffer.isBuffer(header) || header.length < headerBytes) return header;
      const length = restOf(header);
      if (length <= longestBytes || replies.includes(header[1])) return header;
      skip = length;
    }
  };
}
