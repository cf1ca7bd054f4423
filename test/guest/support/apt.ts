// apt-get in a guest that has the packages.

import assert from 'node:assert/strict';
import type { Guest } from './guest.js';
import { complaints } from './packages.js';
import type { Ran } from './process.js';

export async function apt(guest: Guest, ...args: readonly string[]): Promise<Ran> {
  return guest.runWith(
    { timeoutMs: 180_000, env: { DEBIAN_FRONTEND: 'noninteractive' } },
    ...(['apt-get', '-y', '-q', ...args] as const),
  );
}

export async function mustApt(guest: Guest, ...args: readonly string[]): Promise<string> {
  const ran = await apt(guest, ...args);
  assert.equal(ran.code, 0, `apt-get ${args.join(' ')}\n${ran.stdout}${ran.stderr}`);
  assert.equal(await complaints(guest), '', `after apt-get ${args.join(' ')}`);
  return ran.stdout + ran.stderr;
}
