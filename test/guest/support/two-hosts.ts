// Two hosts beside one guest, with devices that differ in their names.

import assert from 'node:assert/strict';
import type { Guest } from './guest.js';
import type { Hosts } from './hosts.js';
import { at } from './installed.js';
import { until } from './process.js';
import { documentOnBus, said } from './service.js';

export interface Named {
  readonly hosts: Hosts;
  readonly address: string;
  readonly profile: string;
  /** A part of the name of its device. */
  readonly device: string;
}

export function twoHosts(guest: Guest): readonly [Named, Named] {
  const [address, other] = ['unix:/run/vgpu/hostd.sock', 'unix:/run/vgpu/second.sock'];
  return [
    { hosts: guest.hosts, address, profile: 'h200', device: 'H200' },
    { hosts: guest.hosts.beside('second.sock'), address: other, profile: 'l40s', device: 'L40S' },
  ];
}

/** Waits until the service is settled, and the verdict is GPU with this host's device. */
export async function untilUsed(guest: Guest, { address, device }: Named): Promise<void> {
  let document: unknown = null;
  try {
    await until(`GPU at ${address}`, 180_000, async () => {
      document = await documentOnBus(guest);
      await hurry(guest, document);
      const used = [at(document, 'host', 'hosts')].flat().find((one) => at(one, 'inUse') === true);
      const fine =
        at(document, 'service', 'state') === 'settled' &&
        at(document, 'verdict', 'mode') === 'gpu' &&
        String(at(document, 'verdict', 'devices', 0, 'name')).includes(device) &&
        at(used, 'endpoint') === address;
      return fine ? true : undefined;
    });
  } catch (error) {
    throw new Error(`${String(error)}\n${JSON.stringify(document)}\n${await said(guest)}`);
  }
}

/**
 * The pauses between restarts for one cause double, up to 5 minutes. In a pause the consumer is not on the GPU. This
 * ends a pause by a manual restart.
 */
async function hurry(guest: Guest, document: unknown): Promise<void> {
  const waitsFor = String(at(document, 'service', 'pendingRestart', 'waitsFor'));
  if (!waitsFor.startsWith('the last restart was a moment ago')) return;
  assert.notEqual(at(document, 'verdict', 'mode'), 'gpu');
  await guest.must('vgpu-agent', 'restart');
}
