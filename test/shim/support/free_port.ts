import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Below the ports that the kernel gives to connections (32768 and up), which may be taken at any moment. */
const FIRST = 10_000;
const LAST = 32_767;

function canListen(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/** A TCP port of the loopback interface on which nothing listens. Test files run side by side: no two share a number. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries += 1) {
    const port = randomInt(FIRST, LAST + 1);
    if (await canListen(port)) return port;
  }
  throw new Error(`no free port between ${FIRST} and ${LAST} on 127.0.0.1 in 100 tries`);
}
