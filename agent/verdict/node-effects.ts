/** The effects of confirm() that need nothing but Node: time, HTTP, a growing file. */

import { closeSync, fstatSync, read } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Look } from '../contracts/verdict.js';
import { errnoOf } from '../lib/errors.js';
import * as http from '../lib/http.js';
import { openForReading } from '../lib/trust/files.js';
import type { Clock, HttpAnswer } from './observation.js';

export const systemClock: Clock = {
  now: () => performance.now(),
  async sleep(milliseconds, signal) {
    await wait(milliseconds, undefined, { signal }).catch(() => {});
  },
};

/** Time stamps of this process; they increase even if the wall clock is set back. */
export function stamps(now: () => number = Date.now): () => Look {
  let last = 0;
  return () => {
    const at = now();
    last = Math.max(last + 1, at);
    return { id: last, at: new Date(at).toISOString() };
  };
}

const maxBody = 64 * 1024;

/** No redirects, no proxy. Never rejects. Certificates are not checked, because the request has no data. */
export async function httpGet(url: string, timeoutMs: number, signal: AbortSignal): Promise<HttpAnswer> {
  // Loaded on demand: TLS is 2 MB of code.
  const client = url.startsWith('https:') ? process.getBuiltinModule('node:https') : http;
  // A separate timer: Node 20 may garbage-collect the signals behind AbortSignal.any(), and then they never fire.
  const ended = new AbortController();
  const limit = ended.signal;
  const end = (): void => ended.abort();
  const timer = setTimeout(end, timeoutMs);
  signal.addEventListener('abort', end, { once: true });
  if (signal.aborted) end();
  const asked = new Promise<HttpAnswer>((resolve) => {
    const failed = (error: Error): void => {
      const message = limit.aborted ? `no answer within ${timeoutMs} ms` : (errnoOf(error) ?? error.message);
      resolve({ kind: 'failed', message });
    };
    try {
      const options = {
        agent: false,
        signal: limit,
        headers: { connection: 'close' },
        rejectUnauthorized: false,
      };
      const request = client.get(url, options, (response) => {
        const parts: Buffer[] = [];
        let size = 0;
        response.on('error', failed);
        response.on('data', (part: Buffer) => {
          size += part.length;
          if (size <= maxBody) parts.push(part);
          else response.destroy(new Error('the answer is too long'));
        });
        response.on('end', () => {
          const body = Buffer.concat(parts).toString('utf8');
          resolve({ kind: 'answered', status: response.statusCode ?? 0, body });
        });
      });
      request.on('error', failed);
    } catch (error) {
      failed(error instanceof Error ? error : new Error(String(error)));
    }
  });
  return asked.finally(() => {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  });
}

const fileEveryMs = 50;
const chunkBytes = 64 * 1024;
const readAsync = promisify(read);

/**
 * The bytes that are added to `path` after `offset`, as they come. A file that became shorter
 * (`StandardOutput=file:` or `truncate:`, or a rotation) is read from its beginning. The function waits for a missing
 * file. It also waits if `path` is no regular file or a link of another user (trust/files.ts), because the service's user
 * may be able to write the directory. Ends when `signal` aborts.
 */
export async function* followFile(path: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer> {
  let at = offset;
  let inode: bigint | null = null;
  while (!signal.aborted) {
    const file = openForReading(path);
    if (file === null) at = 0;
    else {
      try {
        const facts = fstatSync(file, { bigint: true });
        if ((inode !== null && inode !== facts.ino) || Number(facts.size) < at) at = 0;
        inode = facts.ino;
        for (;;) {
          const { bytesRead, buffer } = await readAsync(file, Buffer.alloc(chunkBytes), 0, chunkBytes, at);
          if (bytesRead === 0 || signal.aborted) break;
          at += bytesRead;
          yield buffer.subarray(0, bytesRead);
        }
      } finally {
        closeSync(file);
      }
    }
    await systemClock.sleep(fileEveryMs, signal);
  }
}
