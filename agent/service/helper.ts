/**
 * vgpu-watch, the small C process beside the service: it writes to systemd's notify socket, keeps a session
 * with each host (Node has no vsock) and reads POSIX locks. It runs as long as the service, so that a ping of the
 * watchdog starts no process.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { reportUnexpected } from '../lib/errors.js';
import type { Board, HostState, Record } from './board.js';
import { steadyNow } from './pacer.js';

export type HostEvent =
  | { readonly kind: 'up'; readonly device: string; readonly simulated: boolean }
  | { readonly kind: 'down'; readonly reason: string };

type Helper = ReturnType<typeof startHelper>;

interface HelperOptions {
  readonly program: string;
  /** `VGPU_WATCH` of the environment: vgpu-watch has started this process; its value is the two descriptors. */
  readonly inherited: string | undefined;
  /** `place`: of the host in the list, from 0. */
  readonly onHost: (event: HostEvent, place: number) => void;
  /** It ended without being stopped. A helper that the service started is started again automatically. */
  readonly onLost: (message: string) => void;
}

const firstDelayMs = 100;
const maxDelayMs = 5_000;
const answerMs = 5_000;

interface Ends {
  readonly input: Writable;
  readonly output: Readable;
  onEnd(listener: (message: string) => void): void;
}

function spawned(program: string): Ends {
  const child = spawn(program, [], { stdio: ['pipe', 'pipe', 'inherit'] });
  return {
    input: child.stdin,
    output: child.stdout,
    onEnd(listener) {
      child.on('error', (error) => listener(`cannot run ${program}: ${error.message}`));
      child.on('close', (code, signal) => listener(`${program} ended with ${signal ?? code}`));
    },
  };
}

function inheritedEnds(text: string | undefined): Ends | null {
  const match = /^(\d+),(\d+)$/.exec(text ?? '');
  if (match === null) return null;
  const input = new Socket({ fd: Number(match[1]), readable: false, writable: true });
  const output = new Socket({ fd: Number(match[2]), readable: true, writable: false });
  return {
    input,
    output,
    onEnd: (listener) => output.on('close', () => listener('vgpu-watch, the parent process, has ended')),
  };
}

export function startHelper(options: HelperOptions) {
  let child: Ends | null = null;
  let endpoint: string | null = null;
  let stopped = false;
  let delayMs = firstDelayMs;
  const inherited = inheritedEnds(options.inherited);
  /** By question, in the order of asking. */
  const waiting = new Map<string, ((value: number | null) => void)[]>();

  const send = (line: string): void => {
    child?.input.write(`${line}\n`);
  };
  const giveUp = (): void => {
    for (const all of waiting.values()) for (const settle of all.splice(0)) settle(null);
  };
  const answer = (question: string, value: number | null): void => waiting.get(question)?.shift()?.(value);
  const hear = (line: string): void => {
    delayMs = firstDelayMs;
    const host = /^host (?:(\d+) )?(?:up ([01])|down) (.*)$/.exec(line);
    if (host !== null) {
      // vgpu-watch numbers the hosts of a list from 1.
      const [, number = '1', simulated, text = ''] = host;
      const event: HostEvent =
        simulated === undefined
          ? { kind: 'down', reason: text }
          : { kind: 'up', simulated: simulated === '1', device: text };
      options.onHost(event, Number(number) - 1);
      return;
    }
    const trip = /^round-trip (-?\d+)$/.exec(line)?.[1];
    if (trip !== undefined) answer('round-trip', Number(trip) < 0 ? null : Number(trip));
    const [, holder, file] = /^(?:locked (\d+)|free) (.*)$/.exec(line) ?? [];
    if (file !== undefined) answer(`locked ${file}`, holder === undefined ? null : Number(holder));
  };

  const start = (): void => {
    const started = inherited ?? spawned(options.program);
    child = started;
    let pending = '';
    started.input.on('error', () => {});
    started.output.on('error', () => {});
    started.output.setEncoding('utf8').on('data', (text: string) => {
      const lines = (pending + text).split('\n');
      pending = lines.pop() ?? '';
      for (const line of lines) {
        try {
          hear(line);
        } catch (error) {
          reportUnexpected(error);
        }
      }
    });
    let over = false;
    const ended = (message: string): void => {
      if (over) return;
      over = true;
      if (child === started) child = null;
      giveUp();
      if (stopped) return;
      options.onLost(message);
      // A vgpu-watch that started this process is the unit's main process: systemd restarts both.
      if (inherited !== null) return;
      setTimeout(() => {
        if (stopped) return;
        start();
        if (endpoint !== null) send(`host ${endpoint}`);
      }, delayMs).unref();
      delayMs = Math.min(delayMs * 2, maxDelayMs);
    };
    started.onEnd(ended);
  };
  start();

  const asked = (question: string, line: string): Promise<number | null> =>
    new Promise((resolve) => {
      if (child === null) return resolve(null);
      const timer = setTimeout(() => resolve(null), answerMs);
      const settle = (value: number | null): void => {
        clearTimeout(timer);
        resolve(value);
      };
      waiting.set(question, [...(waiting.get(question) ?? []), settle]);
      send(line);
    });

  return {
    /** sd_notify(3): assignments of one datagram. No effect outside of a Type=notify unit. */
    notify: (...assignments: readonly string[]): void => send(`notify ${assignments.join('\t')}`),
    tick: (): void => send('tick'),
    /** Keeps a session with each host of the list (null: with none); `onHost` is called at its beginning and end. */
    watchHost(next: string | null): void {
      endpoint = next;
      send(`host ${next ?? ''}`);
    },
    /** Duration of the last check of the host at that place of the list (from 0), in microseconds; null: there was none. */
    roundTrip: (place: number) => asked('round-trip', place === 0 ? 'round-trip' : `round-trip ${place + 1}`),
    lockHolder: (file: string) => asked(`locked ${file}`, `locked ${file}`),
    stop(): void {
      stopped = true;
      giveUp();
      child?.input.end();
      child?.output.destroy();
    },
  };
}

/** Held with fcntl(2) while dpkg, apt or rpm work. */
const lockedFiles = ['/var/lib/dpkg/lock-frontend', '/var/lib/dpkg/lock', '/var/lib/rpm/.rpm.lock'];
/** Exists while pacman runs. */
const markerFiles = ['/var/lib/pacman/db.lck'];

export async function packageManagerAtWork(helper: Pick<Helper, 'lockHolder'>): Promise<string | null> {
  const marker = markerFiles.find((file) => existsSync(file));
  if (marker !== undefined) return marker;
  for (const file of lockedFiles) {
    if (!existsSync(file)) continue;
    const holder = await helper.lockHolder(file);
    if (holder !== null) return `process ${holder}, which holds ${file}`;
  }
  return null;
}

/** Updates the host on the board, and logs when it is lost and when it is back. `now`: milliseconds. */
export function hostWatch(board: Board, record: Record, now: () => number = steadyNow) {
  let lostAt: number | null = null;
  const write = (
    kind: 'hostLost' | 'hostBack' | 'hostMoved',
    text: string,
    fields: Readonly<{ [name: string]: string }>,
  ): void => record.write({ kind, profile: null, unit: null, text, fields });
  return {
    moved(endpoint: string) {
      lostAt = null;
      board.update({ host: seenAt(endpoint, null) });
    },
    left(endpoint: string, event: HostEvent) {
      const former = board.now.host.endpoint;
      lostAt = null;
      board.count('hostMoves');
      board.update({ host: seenAt(endpoint, event) });
      const text = `the host at ${endpoint} is in use instead of that at ${former}`;
      write('hostMoved', text, { ENDPOINT: endpoint, FORMER: former });
    },
    host(event: HostEvent) {
      const { host } = board.now;
      const fields = { ENDPOINT: host.endpoint };
      if (event.kind === 'down') {
        lostAt = now();
        board.count('hostLosses');
        board.update({ host: { ...host, answers: false, detail: event.reason } });
        write('hostLost', `the host at ${host.endpoint} does not answer: ${event.reason}`, fields);
        return;
      }
      board.update({ host: seenAt(host.endpoint, event) });
      if (lostAt === null) return;
      const seconds = ((now() - lostAt) / 1000).toFixed(1);
      lostAt = null;
      const text = `the host at ${host.endpoint} answers again after ${seconds} s: ${event.device}`;
      write('hostBack', text, { ...fields, SECONDS: seconds });
    },
  };
}

export function seenAt(endpoint: string, event: HostEvent | null): HostState {
  if (event === null) return { endpoint, answers: null, simulated: false, detail: 'not asked yet' };
  return event.kind === 'up'
    ? { endpoint, answers: true, simulated: event.simulated, detail: event.device }
    : { endpoint, answers: false, simulated: false, detail: event.reason };
}
