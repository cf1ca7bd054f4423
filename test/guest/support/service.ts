// The agent's service in guest tests: install, bus and journal.

import assert from 'node:assert/strict';
import type { Consumer } from './consumer.js';
import type { Guest } from './guest.js';
import { at, documentOf, prepareConsumer } from './installed.js';
import { journalctl } from './journal.js';
import { until } from './process.js';

export const publicLink = '/usr/lib/x86_64-linux-gnu/libcuda.so.1';

/** A configuration with limits that tests do not run into. */
export const generous = {
  schema: 1,
  repair: { perHour: 1000, backoffSeconds: 0 },
  restart: { perHour: 1000, minimumSeconds: 0 },
};

/** Installs the consumer and the service with a configuration, and waits until it is settled on the GPU. */
export async function installService(
  guest: Guest,
  config: object = generous,
  env: Readonly<Record<string, string>> = {},
  consumer: Consumer = 3,
): Promise<void> {
  await prepareConsumer(guest, consumer, env);
  await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(config));
  documentOf(await guest.agent('install', '--service', '--yes', '--json'));
  await settledOnGpu(guest);
}

/** One property of the service, as text. */
export async function property(guest: Guest, name: string): Promise<string> {
  const ran = await guest.run(
    'busctl',
    'get-property',
    'org.vgpu.Agent1',
    '/org/vgpu/Agent1',
    'org.vgpu.Agent1',
    name,
  );
  return ran.code === 0 ? ran.stdout.trim() : '';
}

/** The service's status document. */
export async function status(guest: Guest): Promise<unknown> {
  return JSON.parse((await guest.agent('status', '--json')).stdout);
}

/** The service's document on the bus; null: the service does not run, or has not checked yet. */
export async function documentOnBus(guest: Guest): Promise<unknown> {
  const ran = await guest.run(
    ...['busctl', '--json=short', 'get-property'],
    ...['org.vgpu.Agent1', '/org/vgpu/Agent1', 'org.vgpu.Agent1', 'Status'],
  );
  return ran.code === 0 ? JSON.parse(String(at(JSON.parse(ran.stdout), 'data'))) : null;
}

/** Queries the bus, because `vgpu-agent status` makes its own verdict if the service has none yet. */
export async function settledOnGpu(guest: Guest, timeoutMs = 180_000): Promise<void> {
  try {
    await until('the service is settled and the verdict GPU', timeoutMs, async () => {
      const document = await documentOnBus(guest);
      const fine =
        at(document, 'service', 'state') === 'settled' &&
        at(document, 'verdict', 'mode') === 'gpu' &&
        at(document, 'service', 'pendingRestart') === null;
      return fine ? true : undefined;
    });
  } catch (error) {
    throw new Error(`${String(error)}\n${await said(guest)}`);
  }
}

/** Everything that the service wrote to the journal in this boot, one line an entry. */
export async function said(guest: Guest): Promise<string> {
  return journalctl(guest, '-q', '--no-pager', '-o', 'short-monotonic', '-u', 'vgpu-agent');
}

/** Messages of the entries with this MESSAGE_ID. */
export async function entries(guest: Guest, id: string): Promise<readonly string[]> {
  const text = await journalctl(guest, '-q', '--no-pager', '-o', 'cat', `MESSAGE_ID=${id}`);
  return text.split('\n').filter((line) => line !== '');
}

/** Waits until there is an entry with this ID beyond those that `before` counted. */
export async function untilEntry(guest: Guest, id: string, before = 0, timeoutMs = 180_000): Promise<string> {
  try {
    return await until(`an entry ${id}`, timeoutMs, async () => (await entries(guest, id))[before]);
  } catch (error) {
    throw new Error(`${String(error)}\n${await said(guest)}`);
  }
}

export async function linkTarget(guest: Guest, path = publicLink): Promise<string> {
  return (await guest.run('readlink', path)).stdout.trim();
}

/** Makes a drift, waits for the repair, and checks that the journal has both and that the consumer is on the GPU. */
export async function repairs(
  guest: Guest,
  drift: () => Promise<unknown>,
  repaired: () => Promise<boolean>,
): Promise<string> {
  const { messageIds } = await import('../../../agent/systemd/journal-writer.js');
  const before = await entries(guest, messageIds.repaired);
  await drift();
  try {
    await until('the drift is repaired', 180_000, async () => ((await repaired()) ? true : undefined));
  } catch (error) {
    throw new Error(`${String(error)}\n${await said(guest)}`);
  }
  const line = await untilEntry(guest, messageIds.repaired, before.length);
  await settledOnGpu(guest);
  assert.match(line, /^ollama\.service: repaired in \d+ ms: /);
  return line;
}
