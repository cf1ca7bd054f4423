/**
 * Queries the host's sessions every few seconds, for the cost of a line: `vgpu-probe --sessions --follow` keeps running,
 * once for each user and host. Over a unix socket the host identifies a guest by its user, and the service may not become
 * another user, so systemd starts the probe.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { Duplex, type Writable } from 'node:stream';
import { type CommandRunner, toolEnvironment } from '../lib/run-command.js';
import { setprivFor } from '../lib/trust/run-as.js';
import type { SessionsAnswer } from '../verdict/observation.js';
import {
  answerOf,
  hasEnded,
  processAt,
  type SessionsQuestion,
  sessionsLimitMs,
} from '../verdict/watch-present.js';

type AskSessions = (question: SessionsQuestion) => Promise<SessionsAnswer>;

/** A program that answers each line on `input` with a line on its standard output. */
interface Started {
  readonly child: ChildProcess;
  readonly input: Writable | null;
  /** The program has answered, so its launcher is no longer needed. */
  readonly answered: () => void;
}
type StartFollower = (file: string, args: readonly string[]) => Started;

const maxFollowers = 8;
const maxLineBytes = 4 * 1024 * 1024;

/**
 * When the program answers, systemd-run has passed its descriptors to systemd and is ended, which saves 7 MB. Node closes
 * a child's standard input when the child ends, so the input is descriptor 3 here.
 */
const spawnFollower: StartFollower = (file, args) => {
  const child = spawn('sh', ['-c', 'exec "$0" "$@" <&3 3<&-', file, ...args], {
    stdio: ['ignore', 'pipe', 'ignore', 'pipe'],
    env: toolEnvironment({}),
    cwd: '/',
  });
  const input = child.stdio[3];
  return {
    child,
    input: input instanceof Duplex ? input : null,
    answered: () => void child.kill('SIGKILL'),
  };
};

interface Follower {
  ask(): Promise<string | null>;
  end(): void;
}

/** `once` is used if there is no follower, for instance with a vgpu-probe of an older version. */
export function sessionsAsker(once: AskSessions, start: StartFollower = spawnFollower) {
  const followers = new Map<string, Follower>();

  const followerFor = (key: string, begin: () => Follower): Follower => {
    const known = followers.get(key);
    if (known !== undefined) return known;
    const [oldest] = followers.keys();
    if (followers.size >= maxFollowers && oldest !== undefined) drop(oldest);
    const made = begin();
    followers.set(key, made);
    return made;
  };
  const drop = (key: string): void => {
    followers.get(key)?.end();
    followers.delete(key);
  };

  return {
    async ask(question: SessionsQuestion): Promise<SessionsAnswer> {
      const { program, pid, host, signal } = question;
      if (signal.aborted) return { kind: 'unknown', message: 'interrupted' };
      const known = await processAt(pid);
      if (known === null) return hasEnded(pid);
      const { user } = known;
      const key = [user.uid, user.gid, program, host].join('\0');
      const args = ['--sessions', '--follow', '--host', host, '--timeout', String(sessionsLimitMs / 1000)];
      const follower = followerFor(key, () => {
        const become = setprivFor(user, program, args);
        const service = ['--quiet', '--collect', '--wait', '--pipe', '--', 'setpriv', ...become];
        return follow(start('systemd-run', service));
      });
      const line = await follower.ask();
      if (line === null) {
        drop(key);
        return once(question);
      }
      return answerOf(line, known.age(), '');
    },
    stop() {
      for (const key of [...followers.keys()]) drop(key);
    },
  };
}

function follow({ child, input, answered }: Started): Follower {
  const { stdout } = child;
  let pending = '';
  let ended = input === null || stdout === null;
  let waiting: ((line: string | null) => void)[] = [];
  const settleAll = (): void => {
    ended = true;
    const all = waiting;
    waiting = [];
    for (const settle of all) settle(null);
  };
  child.on('error', settleAll);
  child.on('close', settleAll);
  input?.on('error', settleAll);
  stdout?.on('error', settleAll);
  stdout?.setEncoding('utf8').on('data', (text: string) => {
    const lines = (pending + text).split('\n');
    pending = lines.pop() ?? '';
    if (lines.length > 0) answered();
    for (const line of lines) waiting.shift()?.(line);
    if (pending.length > maxLineBytes) end();
  });
  const end = (): void => {
    settleAll();
    input?.destroy();
    child.kill();
  };
  return {
    ask: () =>
      new Promise((resolve) => {
        if (ended) {
          resolve(null);
          return;
        }
        // After a missed line, each answer would be that of the previous query.
        const timer = setTimeout(end, sessionsLimitMs + answerGraceMs);
        waiting.push((line) => {
          clearTimeout(timer);
          resolve(line);
        });
        input?.write('\n');
      }),
    end,
  };
}

/** systemd has to start the first one. */
const answerGraceMs = 3_000;

// A runner for a service without CAP_SETUID: systemd starts commands of other users.

/** The runner's own limit, where none is given. */
const longestMs = 30_000;

/**
 * `setpriv ... -- COMMAND` becomes a transient service with that command. It has no `User=`: systemd requires that a user
 * database has the number, and without libnss-systemd none has that of a unit with DynamicUser=.
 */
export function runElsewhere(runner: CommandRunner): CommandRunner {
  return {
    run(file, args, options) {
      if (file !== 'setpriv') return runner.run(file, args, options);
      // Ending systemd-run ends only our wait: systemd has to end what it runs.
      const seconds = Math.ceil((options?.timeoutMs ?? longestMs) / 1000);
      const limit = `--property=RuntimeMaxSec=${seconds}`;
      const service = ['--quiet', '--collect', '--wait', '--pipe', limit, '--', file, ...args];
      return runner.run('systemd-run', service, options);
    },
  };
}
