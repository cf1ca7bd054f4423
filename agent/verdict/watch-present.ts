/** Looks at what the consumer has loaded and at the host's sessions of its processes. */

import { readFileSync, statSync } from 'node:fs';
import { uptime } from 'node:os';
import type { ProcessIdentity } from '../contracts/facts.js';
import { type HostSession, parseSessions, type SessionsReport } from '../contracts/sessions.js';
import type { LoadedUnit, UnitFacts } from '../contracts/unit.js';
import { readStat } from '../guest/unit/processes.js';
import { messageOf, VgpuError } from '../lib/errors.js';
import { jsonIn, member } from '../lib/json.js';
import type { CommandRunner } from '../lib/run-command.js';
import { runAs } from '../lib/trust/run-as.js';
import type { Profile } from '../profile/types.js';
import { httpGet } from './node-effects.js';
import type { ConfirmEffects, HttpAnswer, LoadedSeen, PresentSeen, SessionsAnswer } from './observation.js';
import { loadedModels } from './present.js';
import { consumerUrls, type Listening } from './watch-readiness.js';

const answerWithinMs = 2_000;
/** The time for which a kernel or an allocation that the host refused is reported. */
const refusedWithinSeconds = 3_600;

export type PresentEffects = Pick<ConfirmEffects, 'get' | 'pids' | 'sessions'> & {
  processes(pids: readonly number[]): Promise<readonly ProcessIdentity[]>;
};

export async function lookAtPresent(
  question: Listening,
  effects: PresentEffects,
  signal: AbortSignal,
): Promise<PresentSeen> {
  const [loaded, sessions] = await Promise.all([
    askLoaded(question, effects, signal),
    sessionsNow(effects, signal),
  ]);
  return { loaded, sessions };
}

type Answering =
  | { readonly kind: 'answered'; readonly url: string }
  | { readonly kind: 'silent'; readonly url: string; readonly lastError: string }
  | { readonly kind: 'unasked' };

/** Does the consumer answer requests now? `loaded`, its current answer, proves it already. */
export async function askAnswering(
  question: Listening,
  loaded: LoadedSeen,
  effects: Pick<ConfirmEffects, 'get'>,
  signal: AbortSignal,
): Promise<Answering> {
  if (loaded.kind === 'told') return { kind: 'answered', url: loaded.url };
  const { readiness } = question.profile;
  let said: Answering = { kind: 'unasked' };
  if (readiness.kind !== 'http' || !mayAsk(question.unit)) return said;
  for (const url of consumerUrls(question, readiness.path)) {
    const answer = await effects.get(url, answerWithinMs, signal);
    if (answer.kind === 'answered') return { kind: 'answered', url };
    said = { kind: 'silent', url, lastError: answer.message };
  }
  return said;
}

/** A unit with a private network has its own loopback interface. */
function mayAsk(unit: UnitFacts): boolean {
  return unit.kind === 'loaded' && unit.activeState === 'active' && !unit.sandbox.privateNetwork;
}

async function askLoaded(
  question: Listening,
  effects: PresentEffects,
  signal: AbortSignal,
): Promise<LoadedSeen> {
  const { serving, readiness } = question.profile;
  let said: LoadedSeen = { kind: 'unasked' };
  if (serving?.sizes === undefined || readiness.kind !== 'http' || !mayAsk(question.unit)) return said;
  for (const url of consumerUrls(question, serving.path)) {
    const answer = await effects.get(url, answerWithinMs, signal);
    const models = answer.kind === 'answered' ? loadedModels(serving, answer.body) : null;
    if (models !== null) return { kind: 'told', url, models };
    const message = answer.kind === 'failed' ? answer.message : `its answer has no "${serving.list}"`;
    said = { kind: 'silent', url, message };
  }
  return said;
}

async function sessionsNow(effects: PresentEffects, signal: AbortSignal): Promise<PresentSeen['sessions']> {
  try {
    const answer = await effects.sessions(signal);
    if (answer.kind !== 'told') return answer;
    // After the host's answer: a process that has ended meanwhile no longer has a session.
    const processes = await effects.processes(await effects.pids());
    const { report, seconds } = answer;
    const own = sessionsOf(processes, report);
    // The host refused another start before.
    const { turnedAway } = report;
    const sinceStart = turnedAway.count > 0 && turnedAway.age <= seconds ? turnedAway : null;
    // Not limited to this start, because a program that ends over a refused kernel is restarted.
    const { refusedKernels, memory } = report;
    const refusedMemory = memory?.refused ?? null;
    return {
      kind: 'told',
      own,
      ...youngestOf(processes, seconds),
      processes: processes.length,
      others: report.sessions.length - own.length,
      turnedAway: sinceStart,
      refusedKernels:
        refusedKernels !== null && refusedKernels.age <= refusedWithinSeconds ? refusedKernels : null,
      memory:
        memory === null || refusedMemory === null || refusedMemory.age <= refusedWithinSeconds
          ? memory
          : { ...memory, refused: null },
    };
  } catch (error) {
    return { kind: 'unknown', message: messageOf(error) };
  }
}

/** The oldest is the main process, which began `seconds` ago. */
function youngestOf(processes: readonly ProcessIdentity[], seconds: number): { readonly youngest?: number } {
  const begins = processes.map(({ startTicks }) => Number(startTicks));
  if (begins.length === 0) return {};
  const after = (Math.max(...begins) - Math.min(...begins)) / ticksPerSecond;
  return { youngest: Math.max(0, Math.round(seconds - after)) };
}

export function sessionsOf(
  processes: readonly ProcessIdentity[],
  { sessions }: SessionsReport,
): readonly HostSession[] {
  return sessions.filter(({ claimed }) =>
    processes.some(({ pid, namespacePid, pidNamespace }) => {
      const known = claimed.pidNamespace !== 0 && pidNamespace !== undefined;
      return claimed.pid === (namespacePid ?? pid) && (!known || claimed.pidNamespace === pidNamespace);
    }),
  );
}

// Asks the host for this guest's sessions, by `vgpu-probe --sessions` run as the user of a process.

export interface SessionsQuestion {
  /** Absolute path of vgpu-probe, in a directory that only root can write. */
  readonly program: string;
  /** A process of the consumer: over a unix socket the host identifies a guest by its user. */
  readonly pid: number;
  readonly host: string;
  readonly signal: AbortSignal;
}

export const sessionsLimitMs = 3_000;
const graceMs = 2_000;
/** Clock ticks a second in /proc/PID/stat: USER_HZ, 100 on every architecture that we run on (proc(5)). */
export const ticksPerSecond = 100;

export async function askSessions(
  runner: CommandRunner,
  question: SessionsQuestion,
): Promise<SessionsAnswer> {
  const { program, pid, host, signal } = question;
  if (signal.aborted) return unknown('interrupted');
  try {
    const known = await processAt(pid);
    if (known === null) return hasEnded(pid);
    const ran = await runAs(
      runner,
      known.user,
      program,
      ['--sessions', '--host', host, '--timeout', String(sessionsLimitMs / 1000)],
      { timeoutMs: sessionsLimitMs + graceMs },
    );
    if (ran.timedOut) return unknown(`no answer within ${sessionsLimitMs / 1000} s`);
    return answerOf(ran.stdout.toString('utf8'), known.age(), ran.stderr.toString('utf8'));
  } catch (error) {
    if (error instanceof VgpuError) return unknown(error.message);
    throw error;
  }
}

export function answerOf(output: string, seconds: number, complaint: string): SessionsAnswer {
  const document = parseSessions(output);
  switch (document.kind) {
    case 'told':
      return { kind: 'told', report: document.report, seconds };
    case 'failed':
      return unknown(document.message);
    case 'bad':
      return unknown(complaint.split('\n')[0]?.slice(0, 200) || document.problem);
  }
}

/** The user of a process, and its age in seconds; null: it has ended. */
export async function processAt(pid: number) {
  const begun = await readStat(`/proc/${pid}`);
  const owner = statSync(`/proc/${pid}`, { throwIfNoEntry: false });
  if (begun === null || owner === undefined) return null;
  return {
    user: { uid: owner.uid, gid: owner.gid, groups: [] },
    age: () => Math.max(0, Math.round(uptime() - Number(begun.startTicks) / ticksPerSecond)),
  };
}

export function hasEnded(pid: number): SessionsAnswer {
  return unknown(`process ${pid} has ended`);
}

function unknown(message: string): SessionsAnswer {
  return { kind: 'unknown', message };
}

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
  const { serving } = profile;
  if (serving === undefined || unit.activeState !== 'active') return null;
  for (const url of consumerUrls({ profile, unit, address: null }, serving.path)) {
    // Looked for first: our own question is a connection too.
    const connected = connections(effects.sockets(unit.mainPid), Number(new URL(url).port || '80'));
    const answer = await effects.get(url, answerWithinMs, signal);
    if (answer.kind === 'failed') continue;
    const list = member(jsonIn(answer.body), serving.list);
    const loaded = Array.isArray(list) ? list.length : 0;
    if (loaded === 0 || connected === 0) return null;
    return `${loaded} loaded (${url}), ${connected} connected`;
  }
  // It does not answer, so a restart loses nothing.
  return null;
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
