/** The effects of confirm() that need nothing but Node: time, HTTP, a growing file. */
import { open, stat } from 'node:fs/promises';
import http from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { errnoOf } from '../errors.js';
import type { Clock, HttpAnswer } from './effects.js';

export const systemClock: Clock = {
  now: () => performance.now(),
  async sleep(milliseconds, signal) {
    await wait(milliseconds, undefined, { signal }).catch(() => {});
  },
};

/** No readiness answer is longer; what is, is not read. */
const maxBody = 64 * 1024;

/**
 * One GET: no redirects, no proxy, no keep-alive. Never rejects. A certificate is
 * not checked: only whether somebody answers is asked, nothing is sent.
 */
export async function httpGet(url: string, timeoutMs: number, signal: AbortSignal): Promise<HttpAnswer> {
  // TLS is 2 MB of code that a consumer at home on this machine needs of nobody.
  const client = url.startsWith('https:') ? (await import('node:https')).default : http;
  return new Promise((resolve) => {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
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
}

const fileEveryMs = 50;
const chunkBytes = 64 * 1024;

/**
 * What is added to `path` after `offset`, as it comes. A file that became shorter
 * (`StandardOutput=file:` or `truncate:`, or a rotation) is read from its
 * beginning; one that is not there yet is waited for. Ends when `signal` aborts.
 */
export async function* followFile(path: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer> {
  let at = offset;
  let inode: bigint | null = null;
  while (!signal.aborted) {
    try {
      const facts = await stat(path, { bigint: true });
      const size = Number(facts.size);
      if ((inode !== null && inode !== facts.ino) || size < at) at = 0;
      inode = facts.ino;
      if (facts.isFile() && size > at) {
        const file = await open(path, 'r');
        try {
          for (;;) {
            const { bytesRead, buffer } = await file.read(Buffer.alloc(chunkBytes), 0, chunkBytes, at);
            if (bytesRead === 0 || signal.aborted) break;
            at += bytesRead;
            yield buffer.subarray(0, bytesRead);
          }
        } finally {
          await file.close();
        }
      }
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
      at = 0;
    }
    await systemClock.sleep(fileEveryMs, signal);
  }
}
