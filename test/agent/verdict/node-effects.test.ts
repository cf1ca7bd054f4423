import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { followFile, httpGet, systemClock } from '../../../agent/verdict/node-effects.js';

const never = new AbortController().signal;
const servers: Server[] = [];
let directory: string;

before(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'vgpu-confirm-'));
});

after(() => {
  for (const server of servers) server.close();
  rmSync(directory, { recursive: true });
});

async function listen(server: Server): Promise<string> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return `http://127.0.0.1:${port}/api/version`;
}

test('a server that answers is heard, whatever its status', async () => {
  const url = await listen(
    http.createServer((request, response) => {
      response.statusCode = request.url === '/api/version' ? 200 : 404;
      response.end('{"version":"0.32.9"}');
    }),
  );
  assert.deepEqual(await httpGet(url, 60_000, never), {
    kind: 'answered',
    status: 200,
    body: '{"version":"0.32.9"}',
  });
  const missing = await httpGet(url.replace('version', 'x'), 60_000, never);
  assert.equal(missing.kind === 'answered' ? missing.status : 0, 404);
});

test('a refused connection is reported by its errno name', async () => {
  const server = createServer();
  const url = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  assert.deepEqual(await httpGet(url, 60_000, never), { kind: 'failed', message: 'ECONNREFUSED' });
});

test('a server that accepts and says nothing, drips, or floods is cut off', async () => {
  const mute = await listen(createServer(() => {}));
  const start = performance.now();
  assert.deepEqual(await httpGet(mute, 200, never), { kind: 'failed', message: 'no answer within 200 ms' });
  const drip = await listen(
    createServer((socket) => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      const timer = setInterval(() => socket.write('x'), 20);
      socket.on('close', () => clearInterval(timer)).on('error', () => {});
    }),
  );
  assert.equal((await httpGet(drip, 200, never)).kind, 'failed');
  assert.ok(performance.now() - start < 20_000);
  const flood = await listen(
    http.createServer((_request, response) => {
      response.on('error', () => {});
      response.end(Buffer.alloc(10 * 1024 * 1024));
    }),
  );
  assert.equal((await httpGet(flood, 5_000, never)).kind, 'failed');
});

test('the limit also holds while unused entries are collected', async () => {
  const mute = await listen(createServer(() => {}));
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  assert.ok(typeof collect === 'function');
  const often = setInterval(() => collect(), 10);
  // A signal that a caller passes in is referenced elsewhere; one that only AbortSignal.any() knows is not.
  const stop = new AbortController();
  const late = systemClock.sleep(5_000, stop.signal).then(() => 'it waits without end');
  const answer = await Promise.race([httpGet(mute, 300, AbortSignal.any([never, stop.signal])), late]);
  clearInterval(often);
  stop.abort();
  assert.deepEqual(answer, { kind: 'failed', message: 'no answer within 300 ms' });
});

test('a bad address and an abort are failures, not exceptions', async () => {
  assert.equal((await httpGet('http://a b:1/', 100, never)).kind, 'failed');
  assert.equal((await httpGet('', 100, never)).kind, 'failed');
  assert.equal((await httpGet('http://127.0.0.1:1/', 100, AbortSignal.abort())).kind, 'failed');
});

test('a redirect is not followed', async () => {
  const url = await listen(
    http.createServer((_request, response) => {
      response.writeHead(302, { location: 'http://192.0.2.1/' });
      response.end();
    }),
  );
  const answer = await httpGet(url, 60_000, never);
  assert.equal(answer.kind === 'answered' ? answer.status : 0, 302);
});

/** Follows `file` while `act` runs, and returns the text. `act` can wait until the text has some words. */
async function follow(
  file: string,
  offset: number,
  act: (heard: (words: string) => Promise<void>) => Promise<void>,
  wanted: string,
): Promise<string> {
  const stop = new AbortController();
  const limit = setTimeout(() => stop.abort(), 60_000);
  let text = '';
  const reading = (async () => {
    for await (const bytes of followFile(file, offset, stop.signal)) {
      text += bytes.toString('utf8');
      if (text.includes(wanted)) stop.abort();
    }
  })();
  await act(async (words) => {
    while (!text.includes(words) && !stop.signal.aborted) await systemClock.sleep(10, never);
  });
  await reading;
  clearTimeout(limit);
  return text;
}

const pause = (): Promise<void> => systemClock.sleep(150, never);

test('text appended after the offset is read, and none before it', async () => {
  const file = path.join(directory, 'append.log');
  writeFileSync(file, 'old\n');
  const text = await follow(
    file,
    4,
    async () => {
      await pause();
      appendFileSync(file, 'one\n');
      await pause();
      appendFileSync(file, `${'x'.repeat(200_000)}\nend\n`);
    },
    'end\n',
  );
  assert.equal(text, `one\n${'x'.repeat(200_000)}\nend\n`);
});

test('a file that is truncated, replaced or not there yet is read from its beginning', async () => {
  const truncated = path.join(directory, 'truncate.log');
  writeFileSync(truncated, 'a long old content\n');
  assert.equal(
    await follow(
      truncated,
      19,
      async () => {
        await pause();
        truncateSync(truncated);
        appendFileSync(truncated, 'new\n');
      },
      'new\n',
    ),
    'new\n',
  );
  const late = path.join(directory, 'late.log');
  const replace = async (heard: (words: string) => Promise<void>): Promise<void> => {
    await pause();
    writeFileSync(late, 'first\n');
    await heard('first\n');
    writeFileSync(`${late}.new`, 'second, longer\n');
    renameSync(`${late}.new`, late);
  };
  assert.equal(await follow(late, 0, replace, 'longer\n'), 'first\nsecond, longer\n');
});

test('an aborted sleep ends early and quietly', async () => {
  const stop = new AbortController();
  const start = systemClock.now();
  setTimeout(() => stop.abort(), 20);
  await systemClock.sleep(10_000, stop.signal);
  await systemClock.sleep(10_000, stop.signal);
  assert.ok(systemClock.now() - start < 9_000);
});
