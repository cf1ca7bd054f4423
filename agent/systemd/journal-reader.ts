/** Reads the journal through journalctl, which knows all of its file formats, rotation and permissions. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { errnoOf, VgpuError } from '../lib/errors.js';
import { jsonIn, member } from '../lib/json.js';
import { splitLines } from '../lib/lines.js';
import { toolEnvironment } from '../lib/run-command.js';
import type { JournalEntry, JournalReader } from './types.js';
import { namespaceOption } from './unit-facts.js';

type Journalctl = ChildProcessByStdio<null, Readable, Readable>;

export interface JournalReaderOptions {
  readonly journalctl?: string;
  /** LogNamespace= of the unit that is read, asked before each start of journalctl. */
  readonly namespace?: () => Promise<string>;
  readonly silentMs?: number;
  /** Milliseconds before a follower that ended is started again; doubled up to `maxDelayMs` while nothing comes. */
  readonly firstDelayMs?: number;
  readonly maxDelayMs?: number;
}

/** Cursors remembered to drop what a restarted follower shows again. */
const rememberedCursors = 4096;
/**
 * A longer line is dropped, not kept in memory. journald cuts a line of standard output at 48 KiB (LineMax=); by its own
 * protocol any process of the consumer can send an entry that would fill this one's heap.
 */
const maxLineBytes = 1024 * 1024;
/**
 * journalctl waits for a dead disk without an end. On a busy machine it takes seconds to start and to read from a slow disk;
 * between two entries of a long journal it may take as long, in all minutes.
 */
const silentMs = 30_000;
/** Time for journalctl to end after SIGTERM; one that waits for a dead disk does not. */
const endWithinMs = 1_000;
const keptErrorBytes = 2000;

export function journalReader(options: JournalReaderOptions = {}): JournalReader {
  const journalctl = options.journalctl ?? 'journalctl';
  const firstDelayMs = options.firstDelayMs ?? 100;
  const maxDelayMs = options.maxDelayMs ?? 2_000;
  const patienceMs = options.silentMs ?? silentMs;
  const place = async (): Promise<readonly string[]> => namespaceOption((await options.namespace?.()) ?? '');

  return {
    async tail(signal) {
      let cursor: string | null = null;
      for await (const entry of run(journalctl, [...(await place()), '--lines=1'], signal, patienceMs))
        cursor = entry.cursor;
      if (cursor === null && signal.aborted) throw unreadable(journalctl, 'stopped');
      return cursor;
    },

    async *read({ unit, invocationId, signal }) {
      yield* run(
        journalctl,
        [
          ...(await place()),
          '--lines=all',
          `_SYSTEMD_UNIT=${unit}`,
          `_SYSTEMD_INVOCATION_ID=${invocationId}`,
          '+',
          '_PID=1',
          `UNIT=${unit}`,
          `INVOCATION_ID=${invocationId}`,
        ],
        signal,
        patienceMs,
      );
    },

    async *follow({ unit, cursor, signal }) {
      const seen = new Set<string>();
      let after = cursor;
      let delayMs = firstDelayMs;
      while (!signal.aborted) {
        // By unit, not by invocation: an entry without an invocation is still found.
        const args = ['--follow', '--lines=all', `_SYSTEMD_UNIT=${unit}`, '+', '_PID=1', `UNIT=${unit}`];
        // --after-cursor drops the first entry that matches where the cursor's own does not (systemd 252).
        if (after !== null) args.unshift(`--cursor=${after}`, ...bootOf(after));
        const begin = after;
        try {
          for await (const entry of run(journalctl, [...(await place()), ...args], signal, null)) {
            if (entry.cursor === begin) continue;
            after = entry.cursor;
            if (seen.has(entry.cursor)) continue;
            seen.add(entry.cursor);
            const [oldest] = seen;
            if (seen.size > rememberedCursors && oldest !== undefined) seen.delete(oldest);
            delayMs = firstDelayMs;
            yield entry;
          }
        } catch (error) {
          if (!lacksResources(error)) throw error;
        }
        // journalctl ends by itself when the file it reads is vacuumed away; it starts again where it was.
        await sleep(delayMs, undefined, { signal }).catch(() => {});
        delayMs = Math.min(delayMs * 2, maxDelayMs);
      }
    },
  };
}

/**
 * --follow shows this boot only, and asks the kernel which that is. In a container with a boot ID of its own a
 * service with ProtectKernelTunables= sees the other one and would follow nothing; the cursor knows.
 */
function bootOf(cursor: string): readonly string[] {
  const boot = /(?:^|;)b=([0-9a-f]{32})(?:;|$)/.exec(cursor)?.[1];
  return boot === undefined ? [] : [`--boot=${boot}`];
}

/** The machine was short of processes, descriptors or memory for a moment (fork(2), pipe(2)). */
function lacksResources(error: unknown): boolean {
  const code = error instanceof VgpuError ? errnoOf(error.cause) : errnoOf(error);
  return ['EAGAIN', 'EMFILE', 'ENFILE', 'ENOMEM'].includes(code ?? '');
}

/**
 * Runs journalctl once and yields its entries. A journalctl that cannot be started is thrown. Reading also throws when it
 * failed or was silent for `patienceMs`; following (null) leaves that to the caller, who tries again. The process is gone when the generator is, whichever
 * way it is left.
 */
async function* run(
  journalctl: string,
  args: readonly string[],
  signal: AbortSignal,
  patienceMs: number | null,
): AsyncGenerator<JournalEntry, void, void> {
  const all = ['--output=json', `--output-fields=${outputFields}`, '--all', '--no-pager', '--quiet', ...args];
  const child = spawn(journalctl, all, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: toolEnvironment(process.env),
  });
  const ended = new Promise<{ readonly code: number | null; readonly error: Error | null }>((resolve) => {
    child.on('error', (error) => resolve({ code: null, error }));
    child.on('close', (code) => resolve({ code, error: null }));
  });
  if (child.pid === undefined) {
    // Without descriptors for its pipes it has no streams either.
    const { error } = await ended;
    throw unreadable(journalctl, errnoOf(error) ?? String(error), error);
  }
  let complaint = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (complaint.length < keptErrorBytes) complaint += text;
  });
  const stop = (): void => {
    child.kill('SIGTERM');
    // Ends a read that is waiting; SIGTERM alone would leave us waiting for journalctl's exit.
    child.stdout.destroy();
  };
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();

  let silent = false;
  const silence = silenceAfter(patienceMs, () => {
    silent = true;
    stop();
  });
  try {
    silence.await();
    for await (const line of lines(child)) {
      silence.end();
      const entry = parseEntry(line);
      if (entry !== null) yield entry;
      silence.await();
    }
    if (silent) throw unreadable(journalctl, `no answer within ${(patienceMs ?? 0) / 1000} s`);
    if (signal.aborted || patienceMs === null) return;
    const { code } = await ended;
    if (code !== 0 && !signal.aborted)
      throw unreadable(journalctl, complaint.trim() || `exit status ${code}`);
  } finally {
    silence.end();
    signal.removeEventListener('abort', stop);
    stop();
    const late = setTimeout(() => child.kill('SIGKILL'), endWithinMs);
    await Promise.race([ended, sleep(2 * endWithinMs, undefined, { ref: false })]);
    clearTimeout(late);
  }
}

/** Calls `act` when a wait takes `milliseconds`. A timer that is late because this process was is no sign of silence. */
function silenceAfter(
  milliseconds: number | null,
  act: () => void,
): { readonly await: () => void; readonly end: () => void } {
  let timer: NodeJS.Timeout | undefined;
  let check: NodeJS.Immediate | undefined;
  const end = (): void => {
    clearTimeout(timer);
    clearImmediate(check);
  };
  return {
    await() {
      if (milliseconds === null) return;
      end();
      // The event loop runs timers first, then takes what has come meanwhile, then calls this.
      timer = setTimeout(() => {
        check = setImmediate(act);
      }, milliseconds);
    },
    end,
  };
}

/** Lines of standard output; ends quietly when the stream is destroyed. */
async function* lines(child: Journalctl): AsyncGenerator<string, void, void> {
  try {
    for await (const { bytes, truncated } of splitLines(child.stdout, maxLineBytes))
      if (!truncated) yield bytes.toString('utf8');
  } catch (error) {
    const code = errnoOf(error);
    if (code !== 'ERR_STREAM_PREMATURE_CLOSE' && code !== 'ABORT_ERR') throw error;
  }
}

function unreadable(journalctl: string, why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot read the journal with ${journalctl}: ${why}`, {
    kind: 'failed',
    operation: 'read the journal',
    path: journalctl,
    remedy:
      'run it as root or as a member of the group systemd-journal; see `systemctl status systemd-journald`',
    ...(cause === undefined ? {} : { cause }),
  });
}

/** The fields that are read; journalctl adds `__CURSOR` by itself. */
const outputFields = ['MESSAGE', '_PID', '_SYSTEMD_INVOCATION_ID', 'INVOCATION_ID'].join(',');

/** Null if the line is no JSON object with a cursor, as in a journal that is cut short in the middle of an entry. */
export function parseEntry(line: string): JournalEntry | null {
  const fields = jsonIn(line);
  const get = (name: string): string | null => fieldText(member(fields, name));
  const cursor = get('__CURSOR');
  if (cursor === null) return null;
  const pid = get('_PID');
  return {
    cursor,
    message: get('MESSAGE') ?? '',
    pid: pid !== null && /^\d+$/.test(pid) ? Number(pid) : null,
    // systemd's own lines about a unit (`Main process exited`) name the start in the second field.
    invocationId: get('_SYSTEMD_INVOCATION_ID') ?? get('INVOCATION_ID'),
  };
}

/**
 * The value of a field in journalctl's JSON: a string; an array of byte values if it is not UTF-8; null if it is too long
 * for journalctl without --all; or an array of any of these if the entry has the field more than once
 * (systemd.journal-fields(7)).
 */
export function fieldText(value: unknown): string | null {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value) || value.length === 0) return null;
  if (value.every((item) => typeof item === 'number')) return Buffer.from(value).toString('utf8');
  const parts = value.map(fieldText).filter((part) => part !== null);
  return parts.length === 0 ? null : parts.join('\n');
}
