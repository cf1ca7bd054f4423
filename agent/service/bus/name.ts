/** The service's name on the bus: wanted, but nothing depends on it. */
import { type BusConnection, BusError } from '../../systemd/connection.js';

const bus = {
  destination: 'org.freedesktop.DBus',
  path: '/org/freedesktop/DBus',
  interface: 'org.freedesktop.DBus',
} as const;
const doNotQueue = 4;
const owner = 1;
const tries = 5;

/**
 * Requests the name; null on success, else the reason. The policy file may have been written a moment ago, so the bus
 * is asked to read its configuration again.
 */
export async function takeName(
  connection: BusConnection,
  name: string,
  sleep: (milliseconds: number) => Promise<void>,
): Promise<string | null> {
  let why = '';
  for (let attempt = 0; attempt < tries; attempt += 1) {
    try {
      const [result] = await connection.call({
        ...bus,
        member: 'RequestName',
        signature: 'su',
        body: [name, doNotQueue],
      });
      // 4: it was ours already.
      if (result === owner || result === 4) return null;
      return `${name} is taken by another process`;
    } catch (error) {
      if (!(error instanceof BusError)) throw error;
      why = error.message;
      await connection.call({ ...bus, member: 'ReloadConfig' }).catch(() => {});
      await sleep(100 * 2 ** attempt);
    }
  }
  return why;
}
