import { readFileSync } from 'node:fs';
import type { LoadedUnit } from '../../contracts/unit.js';
import { member, own } from '../../lib/json.js';
import type { Profile } from '../../profile/types.js';
import { httpGet } from '../../verdict/node-effects.js';
import type { HttpAnswer } from '../../verdict/observation.js';
import { readinessUrls } from '../../verdict/watch-readiness.js';

interface ServingEffects {
  get(url: string, timeoutMs: number, signal: AbortSignal): Promise<HttpAnswer>;
  sockets(pid: number): readonly string[];
}

const procSockets: ServingEffects['sockets'] = (pid) =>
  ['tcp', 'tcp6'].map((name) => {
    try {
      return readFileSync(`/proc/${pid}/net/${name}`, 'utf8');
    } catch {
      return '';
    }
  });

const answerMs = 2_000;

/**
 * A sentence about the open requests, or null when the consumer may be restarted. It is busy when it has something
 * loaded (`serving` of the profile; Ollama's /api/ps) *and* a client is connected: a loaded model alone stays for
 * minutes after the last answer, and a connection alone may be a browser's.
 */
export async function servingNow(
  profile: Profile,
  unit: LoadedUnit,
  signal: AbortSignal,
  effects: ServingEffects = { get: httpGet, sockets: procSockets },
): Promise<string | null> {
  const { serving, readiness } = profile;
  if (serving === undefined || readiness.kind !== 'http' || unit.activeState !== 'active') return null;
  const configured =
    readiness.addressVariable === null ? undefined : own(unit.environment, readiness.addressVariable);
  const urls = readinessUrls(configured ?? readiness.defaultAddress, readiness.defaultAddress, serving.path);
  for (const url of urls) {
    // Looked for first: our own question is a connection too.
    const connected = connections(effects.sockets(unit.mainPid), Number(new URL(url).port || '80'));
    const answer = await effects.get(url, answerMs, signal);
    if (answer.kind === 'failed') continue;
    const loaded = listLength(answer.body, serving.list);
    if (loaded === 0) return null;
    if (connected === 0) return null;
    return `${loaded} loaded (${url}), ${connected} connected`;
  }
  // It does not answer, so a restart loses nothing.
  return null;
}

function listLength(body: string, name: string): number {
  try {
    const document: unknown = JSON.parse(body);
    const list = member(document, name);
    return Array.isArray(list) ? list.length : 0;
  } catch {
    return 0;
  }
}

const established = '01';

export function connections(tables: readonly string[], port: number): number {
  const wanted = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  let count = 0;
  for (const line of tables.flatMap((table) => table.split('\n').slice(1))) {
    const [, local = '', , state = ''] = line.trim().split(/\s+/);
    if (local.endsWith(wanted) && state === established) count += 1;
  }
  return count;
}
