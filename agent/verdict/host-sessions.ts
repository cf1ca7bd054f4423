/** Asks the host for this guest's sessions, by `vgpu-probe --sessions` run as the user of a process. */
import { statSync } from 'node:fs';
import { uptime } from 'node:os';
import { parseSessions, type SessionsReport } from '../contracts/sessions.js';
import { readStat } from '../guest/unit/processes.js';
import { VgpuError } from '../lib/errors.js';
import type { CommandRunner } from '../lib/run-command.js';
import { runAs } from '../lib/trust/run-as.js';

export interface SessionsQuestion {
  /** Absolute path of vgpu-probe, in a directory that only root can write. */
  readonly program: string;
  /** A process of the consumer: over a unix socket the host identifies a guest by its user. */
  readonly pid: number;
  readonly host: string;
  readonly signal: AbortSignal;
}

export type SessionsAnswer =
  | { readonly kind: 'told'; readonly report: SessionsReport; readonly seconds: number }
  /** The host is too old for this query, or does not answer. */
  | { readonly kind: 'unknown'; readonly message: string };

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
