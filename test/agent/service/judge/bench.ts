/** A judge without a clock, a bus or a consumer: events in, decisions out. */
import type { Reason, Verdict } from '../../../../agent/contracts/verdict.js';
import { judgeNext } from '../../../../agent/service/judge/machine.js';
import {
  beginJudging,
  type JudgeEffect,
  type JudgeEvent,
  type JudgeState,
  type LiveSeen,
  type RestartRules,
  type Seen,
} from '../../../../agent/service/judge/state.js';
import { cpuVerdict, verdict as sample } from '../../cli/output/samples.js';

export const rules: RestartRules = {
  enabled: true,
  whileServing: false,
  busy: false,
  idleMs: 600_000,
  limits: { perHour: 6, backoffMs: 5_000, minimumMs: 30_000 },
};
export const active = (invocationId: string): Exclude<Seen, string> => ({
  invocationId,
  activeState: 'active',
  traced: false,
});
export const gpu = (invocationId: string): Verdict => ({
  ...sample,
  reason: null,
  mode: 'gpu',
  invocationId,
});
export const cpu = (invocationId: string, reason: Reason): Verdict => ({
  ...cpuVerdict,
  reason,
  invocationId,
});

export const noSession: LiveSeen = { kind: 'told', sessions: 0, launches: 0, works: false };

/** A judge with a fake clock and a consumer that answers what it is told to. */
export class Bench {
  state: JudgeState = beginJudging('ollama', 'ollama.service', rules);
  now = 1_000_000;
  rules = rules;
  did: string[] = [];

  tell(event: JudgeEvent): readonly JudgeEffect[] {
    const next = judgeNext(this.state, event);
    this.state = next.state;
    for (const effect of next.effects) this.did.push(wordsOf(effect));
    return next.effects;
  }

  look(seen: Seen): readonly string[] {
    return this.after(() => this.tell({ kind: 'seen', seen, rules: this.rules, now: this.now }));
  }

  judged(verdict: Verdict, start = active(verdict.invocationId ?? ''), live = noSession): readonly string[] {
    return this.after(() => this.tell({ kind: 'judged', verdict, live, start, now: this.now }));
  }

  again(verdict: Verdict): readonly string[] {
    return this.after(() => this.tell({ kind: 'judged-again', verdict, live: noSession, now: this.now }));
  }

  looked(verdict: Verdict, live: LiveSeen): readonly string[] {
    return this.after(() => this.tell({ kind: 'looked', verdict, live, now: this.now }));
  }

  serving(busy: string | null): readonly string[] {
    return this.after(() => this.tell({ kind: 'serving', busy, now: this.now }));
  }

  host(
    kind: 'down' | 'up',
    reason = 'it closed the connection',
    movedTo: string | null = null,
  ): readonly string[] {
    const host = kind === 'up' ? { kind, device: 'GPU', simulated: true } : { kind, reason };
    return this.after(() => this.tell({ kind: 'host', host, movedTo, now: this.now }));
  }

  preferred(endpoint: string | null): readonly string[] {
    return this.after(() => this.tell({ kind: 'preferred', endpoint }));
  }

  /** Ready, the files right, and the start `id` judged. */
  settledOn(verdict: Verdict): this {
    const start = active(verdict.invocationId ?? '');
    this.tell({ kind: 'settled', outdated: null, start });
    this.tell({ kind: 'ready' });
    this.look(start);
    this.judged(verdict);
    return this;
  }

  after(what: () => unknown): readonly string[] {
    this.did = [];
    what();
    return this.did;
  }
}

function wordsOf(effect: JudgeEffect): string {
  switch (effect.kind) {
    case 'look':
      return `look ${effect.when}`;
    case 'show':
      return `show ${effect.verdict === null ? 'nothing' : `${effect.verdict.mode} ${effect.verdict.reason ?? ''}`.trim()}`;
    case 'show-due':
      return effect.due === null ? 'nothing is due' : `due: ${effect.due.waitsFor}`;
    case 'restart':
      return `restart for ${effect.cause}`;
    case 'write':
      return `write ${effect.message.kind}`;
    case 'say':
      return `say ${effect.text}`;
    default:
      return effect.kind;
  }
}

export const probed = { kind: 'probe', text: 'a GPU', weight: 'for', source: 'vgpu-probe' } as const;

export const messagesOf = (effects: readonly JudgeEffect[]): readonly unknown[] =>
  effects.flatMap((effect) => (effect.kind === 'write' ? [effect.message] : []));

export const told = (sessions: number, launches: number, works = false): LiveSeen => ({
  kind: 'told',
  sessions,
  launches,
  works,
});

export const silent: LiveSeen = { kind: 'unknown', message: 'no answer' };

export const working: LiveSeen = { kind: 'told', sessions: 1, launches: 9, works: true };

export const other = 'tcp:10.0.0.2:14833';

/** The cause and reason of the restart that is due. */
export function dueOf({ state }: Bench): string {
  return state.pending === null ? 'nothing' : `${state.pending.cause}: ${state.pending.reason}`;
}
