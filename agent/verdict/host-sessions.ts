/** Asks the host for this guest's sessions, by `vgpu-probe --sessions` run as the user of a process. */
import { stat } from 'node:fs/promises';
import { uptime } from 'node:os';
import { parseSessions, type SessionsReport } from '../contracts/sessions.js';
import { readStat } from '../guest/unit/processes.js';
import { errnoOf, VgpuError } from '../lib/errors.js';
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
    const [{ uid, gid }, begun] = await Promise.all([stat(`/proc/${pid}`), readStat(`/proc/${pid}`)]);
    if (begun === null) return unknown(`process ${pid} has ended`);
    const ran = await runAs(
      runner,
      { uid, gid, groups: [] },
      program,
      ['--sessions', '--host', host, '--timeout', String(sessionsLimitMs / 1000)],
      { timeoutMs: sessionsLimitMs + graceMs },
    );
    if (ran.timedOut) return unknown(`no answer within ${sessionsLimitMs / 1000} s`);
    const seconds = Math.max(0, Math.round(uptime() - Number(begun.startTicks) / ticksPerSecond));
    return answerOf(ran.stdout.toString('utf8'), seconds, ran.stderr.toString('utf8'));
  } catch (error) {
    if (error instanceof VgpuError) return unknown(error.message);
    if (errnoOf(error) === 'ENOENT') return unknown(`process ${pid} has ended`);
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

function unknown(message: string): SessionsAnswer {
  return { kind: 'unknown', message };
}
