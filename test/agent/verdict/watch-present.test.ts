/** The questions to the consumer and to the host, and which sessions are the unit's. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProcessFacts } from '../../../agent/contracts/facts.js';
import type { HostSession, SessionsReport, TurnedAway } from '../../../agent/contracts/sessions.js';
import type { HttpAnswer, SessionsAnswer } from '../../../agent/verdict/observation.js';
import { lookAtPresent, type PresentEffects, sessionsOf } from '../../../agent/verdict/watch-present.js';
import type { Listening } from '../../../agent/verdict/watch-readiness.js';
import { llamaServer, ollama, openSandbox, processFacts, unit } from './support.js';

function session(pid: number, pidNamespace = 0): HostSession {
  return {
    session: pid,
    age: 1,
    memory: 1,
    launches: 1,
    calls: 1,
    refused: 0,
    lastRefusal: 0,
    carrier: 'rings',
    claimed: { library: 'libcuda', pid, pidNamespace, program: 'x' },
  };
}

function reported(sessions: readonly HostSession[], turnedAway?: TurnedAway): SessionsReport {
  return {
    host: 'h',
    simulated: false,
    sessions,
    turnedAway: turnedAway ?? { count: 0, status: null, age: 0 },
    refusedKernels: null,
    memory: null,
  };
}

function own(process: Partial<ProcessFacts>, ...sessions: readonly HostSession[]): readonly number[] {
  return sessionsOf([processFacts(process)], reported(sessions)).map(({ claimed }) => claimed.pid);
}

test('a session belongs to the process that it claims, by its number in its own namespace', () => {
  assert.deepEqual(own({ pid: 100 }, session(100), session(101)), [100]);
  assert.deepEqual(own({ pid: 100, namespacePid: 7 }, session(100), session(7)), [7]);
});

test('one of several processes that claims the session is enough', () => {
  const processes = [processFacts({ pid: 100 }), processFacts({ pid: 140 })];
  const found = sessionsOf(processes, reported([session(140), session(7)]));
  assert.deepEqual(
    found.map(({ claimed }) => claimed.pid),
    [140],
  );
});

test('the same number in another namespace is another process', () => {
  assert.deepEqual(own({ pid: 100, pidNamespace: 5 }, session(100, 6)), []);
  assert.deepEqual(own({ pid: 100, pidNamespace: 5 }, session(100, 5)), [100]);
  assert.deepEqual(own({ pid: 100, pidNamespace: 5 }, session(100, 0)), [100], 'an older shim does not tell');
  assert.deepEqual(own({ pid: 100 }, session(100, 6)), [100], 'ours cannot be read');
});

interface World {
  readonly answers?: Readonly<Record<string, HttpAnswer>>;
  readonly sessions?: SessionsAnswer | Error;
  readonly processes?: readonly ProcessFacts[];
}

function effects({ answers = {}, sessions, processes = [processFacts()] }: World): PresentEffects {
  return {
    get: async (url) => answers[url] ?? { kind: 'failed', message: `nobody at ${url}` },
    pids: async () => processes.map(({ pid }) => pid),
    processes: async (pids) => processes.filter(({ pid }) => pids.includes(pid)),
    sessions: async () => {
      if (sessions instanceof Error) throw sessions;
      return sessions ?? { kind: 'unknown', message: 'not here' };
    },
  };
}

const never = new AbortController().signal;
const question: Listening = { profile: ollama, unit: unit(), address: null };
const empty: HttpAnswer = { kind: 'answered', status: 200, body: '{"models":[]}' };
const url = 'http://127.0.0.1:11434/api/ps';

test('the list of what is loaded is asked where the consumer listens: its log before its unit', async () => {
  const at = async (changes: Partial<Listening>, where: string): Promise<string> =>
    (await lookAtPresent({ ...question, ...changes }, effects({ answers: { [where]: empty } }), never)).loaded
      .kind;
  assert.equal(await at({}, url), 'told');
  const elsewhere = unit({ environment: { OLLAMA_HOST: '127.0.0.1:7777' } });
  assert.equal(await at({ unit: elsewhere }, 'http://127.0.0.1:7777/api/ps'), 'told');
  assert.equal(await at({ unit: elsewhere, address: '[::]:8888' }, 'http://[::1]:8888/api/ps'), 'told');
  assert.equal(await at({ unit: elsewhere }, url), 'silent');
});

test('a machine that cannot answer is not asked', async () => {
  const asked = async (changes: Partial<Listening>): Promise<string> =>
    (await lookAtPresent({ ...question, ...changes }, effects({ answers: { [url]: empty } }), never)).loaded
      .kind;
  assert.equal(await asked({ profile: llamaServer }), 'unasked');
  assert.equal(await asked({ unit: unit({ activeState: 'inactive' }) }), 'unasked');
  assert.equal(await asked({ unit: unit({ sandbox: { ...openSandbox, privateNetwork: true } }) }), 'unasked');
  const absent = { kind: 'absent', name: 'ollama.service' } as const;
  assert.equal(await asked({ unit: absent }), 'unasked');
  const mute = { ...ollama, readiness: { kind: 'none' } as const };
  assert.equal(await asked({ profile: mute }), 'unasked');
  assert.equal(await asked({}), 'told');
});

test('a unit that is down is unasked, and nothing is sent to it', async () => {
  const asked: string[] = [];
  const world = effects({});
  const listening: PresentEffects = {
    ...world,
    get: (url, limit, signal) => {
      asked.push(url);
      return world.get(url, limit, signal);
    },
  };
  const down = unit({ activeState: 'deactivating' });
  const { loaded } = await lookAtPresent({ ...question, unit: down }, listening, never);
  assert.deepEqual([loaded, asked], [{ kind: 'unasked' }, []]);
});

test('a profile without a variable is asked at its own address', async () => {
  assert.ok(ollama.readiness.kind === 'http');
  const profile = { ...ollama, readiness: { ...ollama.readiness, addressVariable: null } };
  const misleading = unit({ environment: { null: '127.0.0.1:1' } });
  const looked = await lookAtPresent(
    { profile, unit: misleading, address: null },
    effects({ answers: { [url]: empty } }),
    never,
  );
  assert.equal(looked.loaded.kind, 'told');
});

test('a missing answer is reported with the reason', async () => {
  const { loaded } = await lookAtPresent(question, effects({}), never);
  assert.deepEqual(loaded, { kind: 'silent', url, message: `nobody at ${url}` });
});

test('an answer that is no such list is silence', async () => {
  const answers = { [url]: { ...empty, body: '404 page not found' } };
  const { loaded } = await lookAtPresent(question, effects({ answers }), never);
  assert.deepEqual(loaded, { kind: 'silent', url, message: 'its answer has no "models"' });
});

test("the unit's sessions are distinguished from others of this guest", async () => {
  const sessions = { kind: 'told', report: reported([session(100), session(5)]), seconds: 60 } as const;
  const { sessions: seen } = await lookAtPresent(question, effects({ sessions }), never);
  assert.ok(seen.kind === 'told');
  assert.deepEqual(
    [seen.own.map(({ claimed }) => claimed.pid), seen.others, seen.turnedAway],
    [[100], 1, null],
  );
});

test('the age of the youngest process is reported with its sessions', async () => {
  const sessions = { kind: 'told', report: reported([]), seconds: 60 } as const;
  const processes = [
    processFacts({ startTicks: '5000' }),
    processFacts({ pid: 140, startTicks: '10700' }),
    processFacts({ pid: 139, startTicks: '6000' }),
  ];
  const { sessions: seen } = await lookAtPresent(question, effects({ sessions, processes }), never);
  assert.equal(seen.kind === 'told' ? seen.youngest : seen, 3);
  const gone = await lookAtPresent(question, effects({ sessions, processes: [] }), never);
  assert.equal(gone.sessions.kind === 'told' ? gone.sessions.youngest : gone, undefined);
});

test('sessions refused before this start do not count', async () => {
  const away = async (age: number): Promise<number | undefined> => {
    const report = reported([], { count: 3, status: 'busy', age });
    const answer = { kind: 'told', report, seconds: 60 } as const;
    const { sessions } = await lookAtPresent(question, effects({ sessions: answer }), never);
    return sessions.kind === 'told' ? sessions.turnedAway?.count : undefined;
  };
  assert.equal(await away(60), 3);
  assert.equal(await away(61), undefined);
});

test('refused memory is reported for an hour, and its limit always', async () => {
  const refused = { count: 1, program: 'p', bytes: 9, limit: 8, free: 7, by: 'guest' } as const;
  const seen = async (age: number): Promise<unknown> => {
    const memory = { limit: 8, by: 'guest', line: 3, refused: { ...refused, age } } as const;
    const answer = { kind: 'told', report: { ...reported([]), memory }, seconds: 60 } as const;
    const { sessions } = await lookAtPresent(question, effects({ sessions: answer }), never);
    return sessions.kind === 'told' ? sessions.memory : sessions;
  };
  assert.deepEqual(await seen(3_600), {
    limit: 8,
    by: 'guest',
    line: 3,
    refused: { ...refused, age: 3_600 },
  });
  assert.deepEqual(await seen(3_601), { limit: 8, by: 'guest', line: 3, refused: null });
});

test('a refused kernel is reported for an hour', async () => {
  const kernel = { count: 1, program: 'p', kernel: 'k' } as const;
  const seen = async (age: number | null): Promise<unknown> => {
    const refusedKernels = age === null ? null : { ...kernel, age };
    const answer = { kind: 'told', report: { ...reported([]), refusedKernels }, seconds: 60 } as const;
    const { sessions } = await lookAtPresent(question, effects({ sessions: answer }), never);
    return sessions.kind === 'told' ? sessions.refusedKernels : sessions;
  };
  assert.deepEqual(await seen(3_600), { ...kernel, age: 3_600 });
  assert.equal(await seen(3_601), null);
  assert.equal(await seen(null), null);
});

test('a memory limit is read even without a refusal, and no limit as none', async () => {
  const limited = { limit: 8, by: 'guest', line: 3, refused: null } as const;
  for (const memory of [limited, null]) {
    const answer = { kind: 'told', report: { ...reported([]), memory }, seconds: 60 } as const;
    const { sessions } = await lookAtPresent(question, effects({ sessions: answer }), never);
    assert.deepEqual(sessions.kind === 'told' ? sessions.memory : sessions, memory);
  }
});

test('a host that does not tell is passed on as it is', async () => {
  const sessions = { kind: 'unknown', message: 'too old' } as const;
  assert.deepEqual((await lookAtPresent(question, effects({ sessions }), never)).sessions, sessions);
});

test('a question that fails is not known, never none', async () => {
  const { sessions } = await lookAtPresent(question, effects({ sessions: new Error('gone') }), never);
  assert.deepEqual(sessions, { kind: 'unknown', message: 'gone' });
});
