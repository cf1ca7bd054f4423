/** The waits of an observation and its questions meanwhile: to the millisecond, by a clock that only tests turn. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostSession } from '../../../agent/contracts/sessions.js';
import { VgpuError } from '../../../agent/lib/errors.js';
import type { Profile } from '../../../agent/profile/types.js';
import { observe } from '../../../agent/verdict/confirm.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { ConfirmEffects, ConfirmOptions, Observation } from '../../../agent/verdict/observation.js';
import { cpuLog, gpuLog } from './live.js';
import { createStage, firstStart, probeRun, ready, type Stage, secondStart } from './stage.js';
import { ollama, openSandbox, processFacts, unit } from './support.js';

/** The clock does not begin at zero, so that what is counted from the beginning is told from the time of day. */
const beginMs = 10_000;
const deviceLine = gpuLog.find((line) => line.includes('library=CUDA')) ?? '';
const overLine = 'level=INFO msg="vram-based default context" total_vram="79.2 GiB" default_num_ctx=4096';
const wordless: Profile = {
  ...ollama,
  log: { ...ollama.log, devices: [], reasons: [], finished: [], loads: [] },
};
const withoutProbe: Profile = { ...ollama, evidence: { ...ollama.evidence, probe: false } };

async function begun(profile: Profile = ollama): Promise<Stage> {
  const stage = createStage(profile);
  await stage.clock.run(stage.clock.sleep(beginMs, new AbortController().signal));
  return stage;
}

/** At so many milliseconds after the beginning. */
const at = (stage: Stage, milliseconds: number, act: () => void): void =>
  stage.clock.at(beginMs + milliseconds, act);
const say = (stage: Stage, milliseconds: number, ...lines: readonly string[]): void =>
  stage.say(beginMs + milliseconds, lines);
const answersAt = (stage: Stage, milliseconds: number): void =>
  at(stage, milliseconds, () => {
    stage.http = ready;
  });

function watched(
  stage: Stage,
  changes: Partial<ConfirmOptions> = {},
  effects: Partial<ConfirmEffects> = {},
): Promise<Observation> {
  return stage.clock.run(observe(stage.options(changes), { ...stage.effects, ...effects }));
}

/** Milliseconds from the beginning at which the host was asked for its sessions, each answer taking `takesMs`. */
function sessionsAsked(
  stage: Stage,
  takesMs = 0,
): { readonly times: number[]; readonly effects: Partial<ConfirmEffects> } {
  const times: number[] = [];
  return {
    times,
    effects: {
      sessions: async (signal) => {
        times.push(stage.clock.now() - beginMs);
        if (takesMs > 0) await stage.clock.sleep(takesMs, signal);
        return stage.sessions;
      },
    },
  };
}

const session: HostSession = {
  ...{ session: 3, age: 1, memory: 4_000, launches: 9, calls: 9, refused: 0, lastRefusal: 0 },
  carrier: 'rings',
  claimed: { library: 'libcuda', pid: 100, pidNamespace: 0, program: 'ollama' },
};
const told = (...sessions: readonly HostSession[]): Stage['sessions'] => ({
  kind: 'told',
  report: {
    ...{ host: 'h', simulated: false, refusedKernels: null, memory: null, sessions },
    turnedAway: { count: 0, status: null, age: 0 },
  },
  seconds: 300,
});

test('a consumer that answers and has announced its device is settled at once', async () => {
  const stage = await begun();
  answersAt(stage, 150);
  say(stage, 300, deviceLine);
  const { end, elapsedMs, restarted, restarts, computeAsked, logFile, host } = await watched(stage);
  assert.deepEqual(
    [end, restarted, restarts, computeAsked, logFile, host],
    ['settled', false, 0, false, null, null],
  );
  assert.ok(elapsedMs >= 300 && elapsedMs <= 320, `${elapsedMs} ms`);
});

test('a consumer that cannot be asked is given 1.5 s after its announcement', async () => {
  const stage = await begun();
  stage.unit = unit({ sandbox: { ...openSandbox, privateNetwork: true } });
  say(stage, 300, deviceLine);
  const { end, elapsedMs } = await watched(stage);
  assert.equal(end, 'settled');
  assert.ok(elapsedMs >= 1_800 && elapsedMs <= 1_815, `${elapsedMs} ms`);
});

test('a consumer that has ended its search is given ten seconds to answer', async () => {
  const stage = await begun();
  say(stage, 300, deviceLine, overLine);
  const { end, elapsedMs, readiness } = await watched(stage);
  assert.deepEqual([end, readiness.kind], ['settled', 'silent']);
  assert.ok(elapsedMs >= 10_300 && elapsedMs <= 10_320, `${elapsedMs} ms`);
});

test('a consumer that has announced its device and does not answer is awaited to the limit', async () => {
  const stage = await begun();
  say(stage, 300, deviceLine);
  const { end, elapsedMs } = await watched(stage);
  assert.deepEqual([end, elapsedMs], ['timed-out', 60_000]);
});

test('a consumer that answers and logs nothing is given five seconds from its answer', async () => {
  for (const answers of [400, 8_000]) {
    const stage = await begun();
    answersAt(stage, answers - 50);
    const { end, elapsedMs } = await watched(stage);
    assert.equal(end, 'settled');
    const since = elapsedMs - answers;
    assert.ok(since >= 5_000 && since <= 5_020, `${since} ms after its answer`);
  }
});

test('output that bypasses the journal is not waited for', async () => {
  const stage = await begun();
  stage.unit = unit({ standardOutput: 'null' });
  answersAt(stage, 150);
  const { end, elapsedMs } = await watched(stage);
  assert.equal(end, 'settled');
  assert.ok(elapsedMs <= 230, `${elapsedMs} ms`);
});

test('a consumer whose log names no device is judged as it is, after a restart when it works', async () => {
  const running = await begun(wordless);
  running.http = ready;
  const found = await watched(running);
  assert.equal(found.end, 'settled');
  assert.ok(found.elapsedMs <= 120, `${found.elapsedMs} ms`);

  const restarted = await begun(wordless);
  restarted.http = ready;
  at(restarted, 3_500, () => {
    restarted.sessions = told(session);
  });
  const works = await watched(restarted, { cursor: 'c0' });
  assert.deepEqual([works.end, works.restarted], ['settled', true]);
  assert.ok(works.elapsedMs >= 3_500 && works.elapsedMs <= 4_600, `${works.elapsedMs} ms`);

  const idle = await begun(wordless);
  idle.http = ready;
  assert.equal((await watched(idle, { cursor: 'c0', timeoutMs: 9_000 })).end, 'timed-out');
});

test('while it says nothing the host is asked every second, one question at a time', async () => {
  const stage = await begun();
  stage.http = ready;
  const quick = sessionsAsked(stage);
  await watched(stage, {}, quick.effects);
  assert.deepEqual(quick.times.slice(0, 5), [10, 1_010, 2_010, 3_010, 4_010]);

  const other = await begun();
  other.http = ready;
  const slow = sessionsAsked(other, 600);
  await watched(other, {}, slow.effects);
  assert.deepEqual(slow.times.slice(0, 3), [10, 1_610, 3_210]);
});

test('a consumer that does not answer, or has named its device, is inspected once, when all else is known', async () => {
  const silent = await begun();
  const ofSilent = sessionsAsked(silent);
  await watched(silent, { timeoutMs: 3_000 }, ofSilent.effects);
  assert.deepEqual(ofSilent.times, [3_000]);

  const spoken = await begun();
  say(spoken, 100, deviceLine);
  answersAt(spoken, 2_000);
  const ofSpoken = sessionsAsked(spoken);
  const { elapsedMs } = await watched(spoken, {}, ofSpoken.effects);
  assert.deepEqual(ofSpoken.times, [elapsedMs]);
});

test('the journal is read again after 100, 200, 400 ms... of one that answers and has said nothing', async () => {
  const stage = await begun();
  stage.journal.quiet = true;
  answersAt(stage, 350);
  const follows: number[] = [];
  const journal = {
    tail: () => stage.journal.tail(),
    read: (question: { readonly unit: string; readonly invocationId: string }) =>
      stage.journal.read(question),
    follow: (question: { readonly cursor: string | null; readonly signal: AbortSignal }) => {
      follows.push(stage.clock.now() - beginMs);
      return stage.journal.follow(question);
    },
  };
  // It has announced its device when the fourth reading begins: none comes after that.
  say(stage, 1_000, deviceLine);
  const { elapsedMs } = await watched(stage, { timeoutMs: 20_000 }, { journal });
  const [first, answered = 0, ...later] = follows;
  assert.equal(first, 0);
  assert.ok(answered >= 400 && answered <= 410, `${answered} ms`);
  assert.deepEqual(
    later.map((time) => time - answered),
    [100, 300, 700],
  );
  assert.ok(elapsedMs <= answered + 730, `${elapsedMs} ms`);
});

test('a new start is caught up with and looked at as the first one was', async () => {
  const stage = await begun();
  stage.journal.quiet = true;
  stage.http = ready;
  at(stage, 3_300, () => {
    stage.unit = unit({ invocationId: secondStart, restarts: 1 });
  });
  stage.say(beginMs + 3_900, gpuLog, secondStart);
  const { end, elapsedMs, invocationId, restarts } = await watched(stage, {
    invocationId: firstStart,
  });
  assert.deepEqual([end, invocationId, restarts], ['settled', secondStart, 1]);
  assert.ok(elapsedMs <= 4_400, `${elapsedMs} ms`);
});

test('the verdict of the former start does not apply to the new one, which is judged at once', async () => {
  const stage = await begun(wordless);
  stage.http = ready;
  stage.sessions = told(session);
  // The first is at work, and the probe keeps it from being settled.
  stage.probe = async (signal) => {
    await stage.clock.sleep(2_000, signal);
    return probeRun();
  };
  at(stage, 1_100, () => {
    stage.unit = unit({ invocationId: secondStart, restarts: 1 });
    stage.sessions = told();
  });
  at(stage, 6_000, () => {
    stage.sessions = told(session);
  });
  const { times, effects } = sessionsAsked(stage);
  const { end, elapsedMs } = await watched(stage, { cursor: 'c0' }, effects);
  assert.equal(end, 'settled');
  assert.deepEqual(times.slice(0, 3), [0, 1_250, 2_250]);
  assert.ok(elapsedMs >= 6_000 && elapsedMs <= 7_300, `${elapsedMs} ms`);
});

test('after the announcement it is asked every 25 ms whether it is ready', async () => {
  const stage = await begun();
  say(stage, 1_000, deviceLine);
  await watched(stage, { timeoutMs: 1_990 });
  // Each 200 ms in the first second, then each 25.
  const times = (asked: Stage): number => asked.asked.filter((url) => url.endsWith('/api/version')).length;
  assert.ok(times(stage) >= 40 && times(stage) <= 46, `${times(stage)} times`);
  const before = await begun();
  await watched(before, { timeoutMs: 1_990 });
  assert.equal(times(before), 10);
});

test('the probe is run if the profile wants it, or kernels are asked for, and there is a unit', async () => {
  let runs = 0;
  const asked = async (profile: Profile, changes: Partial<ConfirmOptions> = {}) => {
    const stage = await begun(profile);
    runs = 0;
    stage.http = ready;
    say(stage, 50, ...gpuLog);
    const probe = (): Promise<ReturnType<typeof probeRun>> => {
      runs += 1;
      return Promise.resolve(probeRun());
    };
    const seen = await watched(stage, changes, { probe });
    return [runs, seen.probe?.kind ?? null, seen.computeAsked];
  };
  assert.deepEqual(await asked(ollama), [1, 'answered', false]);
  assert.deepEqual(await asked(withoutProbe), [0, null, false]);
  assert.deepEqual(await asked(withoutProbe, { compute: false }), [0, null, false]);
  assert.deepEqual(await asked(withoutProbe, { compute: true }), [1, 'answered', true]);

  const gone = await begun();
  gone.unit = { kind: 'absent', name: 'ollama.service' };
  const { probe, invocationId, end } = await watched(gone, { invocationId: null });
  assert.deepEqual([probe, invocationId, end], [null, null, 'unit-failed']);
});

test('a probe that is not done at the limit has taken as long as that', async () => {
  const stage = await begun();
  stage.http = ready;
  say(stage, 50, ...gpuLog);
  stage.probe = async (signal) => {
    await stage.clock.sleep(90_000, signal);
    return { kind: 'not-run', message: 'interrupted' };
  };
  const { end, elapsedMs, probe } = await watched(stage, { timeoutMs: 5_000 });
  assert.deepEqual([end, elapsedMs, probe], ['timed-out', 5_000, { kind: 'timed-out', milliseconds: 5_000 }]);
});

test('the host is asked only where the probe, or without one the log, does not say GPU', async () => {
  const asked = async (profile: Profile, log: readonly string[], ok = true) => {
    const stage = await begun(profile);
    stage.http = ready;
    stage.probe = async () => probeRun(ok ? {} : { ok: false, devices: [] });
    say(stage, 50, ...log);
    const { host } = await watched(stage);
    assert.equal(host === null, stage.hostAsked === 0);
    return stage.hostAsked;
  };
  assert.equal(await asked(ollama, gpuLog), 0);
  assert.equal(await asked(ollama, cpuLog), 0);
  assert.equal(await asked(ollama, gpuLog, false), 1);
  assert.equal(await asked(withoutProbe, gpuLog), 0);
  assert.equal(await asked(withoutProbe, cpuLog), 1);
});

test('a question to the host that fails is an answer too', async () => {
  for (const [failure, message] of [
    [new Error('no vgpu-probe'), 'no vgpu-probe'],
    ['no bus', 'no bus'],
  ]) {
    const stage = await begun(withoutProbe);
    stage.http = ready;
    say(stage, 50, ...cpuLog);
    const host = () => Promise.reject(failure);
    assert.deepEqual((await watched(stage, {}, { host })).host, { kind: 'unreachable', message, word: null });
  }
});

test('one whole look at the processes comes after the announcement', async () => {
  const stage = await begun();
  stage.http = ready;
  const child = processFacts({ pid: 140, parent: 100, name: 'llama-server', startTicks: '5050' });
  say(stage, 300, deviceLine, overLine);
  at(stage, 299, () => {
    stage.processes = [processFacts(), child];
  });
  // A look that takes so long has begun before that.
  const pids = async () => {
    const now = stage.processes.map(({ pid }) => pid);
    await stage.clock.sleep(120, new AbortController().signal);
    return now;
  };
  const { processes } = await watched(stage, {}, { pids });
  assert.deepEqual(
    processes.map(({ facts }) => facts.pid),
    [100, 140],
  );
});

test('the unit has the last word on a start that is settled: it may have ended, or be another one', async () => {
  const failed = await begun();
  failed.http = ready;
  say(failed, 300, ...gpuLog);
  at(failed, 295, () => {
    failed.unit = unit({ activeState: 'failed', subState: 'failed', result: 'exit-code' });
  });
  assert.equal((await watched(failed)).end, 'unit-failed');

  const another = await begun();
  another.http = ready;
  say(another, 300, ...gpuLog);
  at(another, 295, () => {
    another.unit = unit({ invocationId: secondStart, restarts: 1 });
  });
  another.say(beginMs + 700, cpuLog, secondStart);
  const seen = await watched(another);
  assert.deepEqual([seen.end, seen.invocationId, seen.log.mode], ['settled', secondStart, 'cpu']);
});

test('a start that ends during the last question, as by an uninstall, is not on the GPU', async () => {
  for (const [after, end] of [
    [unit({ activeState: 'deactivating', subState: 'stop-sigterm' }), 'unit-restarting'],
    [unit({ activeState: 'inactive', subState: 'dead' }), 'unit-failed'],
    [unit({ invocationId: secondStart }), 'unit-restarting'],
  ] as const) {
    const stage = await begun();
    answersAt(stage, 350);
    say(stage, 300, ...gpuLog);
    const sessions = async () => {
      stage.unit = after;
      return { kind: 'unknown', message: 'process 100 has ended' } as const;
    };
    const seen = await watched(stage, {}, { sessions });
    assert.deepEqual([seen.end, decideVerdict(seen).mode], [end, 'undetermined']);
  }
});

test('the unit is reported as it is, and one that keeps ending as it ended', async () => {
  const result = ({ unit: seen }: Observation): string => (seen.kind === 'loaded' ? seen.result : seen.kind);
  const loop = await begun();
  for (const count of [1, 2, 3]) {
    at(loop, count * 1_000, () => {
      loop.unit = unit({
        invocationId: String(count).repeat(32),
        restarts: count,
        result: count < 3 ? 'signal' : 'success',
      });
    });
  }
  const looping = await watched(loop);
  assert.deepEqual([looping.end, looping.restarts, result(looping)], ['unit-restarting', 3, 'signal']);

  const once = await begun();
  at(once, 400, () => {
    once.unit = unit({ result: 'signal' });
  });
  at(once, 900, () => {
    once.unit = unit();
    once.http = ready;
  });
  say(once, 1_500, ...gpuLog);
  const recovered = await watched(once);
  assert.deepEqual([recovered.end, result(recovered)], ['settled', 'success']);
});

test('a consumer that has failed, or ends repeatedly, is not asked for its loaded models', async () => {
  const down = await begun();
  down.unit = unit({ activeState: 'failed' });
  const loop = await begun();
  loop.unit = unit({ restarts: 3 });
  for (const [stage, changes, end] of [
    [down, {}, 'unit-failed'],
    [loop, { restarts: 0 }, 'unit-restarting'],
  ] as const) {
    const { times, effects } = sessionsAsked(stage);
    const seen = await watched(stage, changes, effects);
    assert.equal(seen.end, end);
    assert.deepEqual(seen.present, { loaded: { kind: 'unasked' }, sessions: { kind: 'unasked' } });
    assert.deepEqual(times, []);
  }
});

test('contradicting evidence is checked twice more, after 0.7 s each, before it counts', async () => {
  const models = [{ name: 'a', size: 4_000, size_vram: 0 }];
  const loaded: Stage['http'] = { kind: 'answered', status: 200, body: JSON.stringify({ models }) };
  const looks = async (later: Stage['http'] | null): Promise<readonly number[]> => {
    const stage = await begun();
    stage.http = loaded;
    say(stage, 300, ...gpuLog);
    if (later !== null)
      at(stage, 800, () => {
        stage.http = later;
      });
    const { times, effects } = sessionsAsked(stage);
    const { end } = await watched(stage, {}, effects);
    assert.equal(end, 'settled');
    const last = times.filter((time) => time >= 300);
    return last.map((time) => time - (last[0] ?? 0));
  };
  assert.deepEqual(await looks(null), [0, 700, 1_400]);
  assert.deepEqual(await looks({ ...loaded, body: '{"models":[]}' }), [0, 700]);
});

test('each second it reports what it waits for', async () => {
  const stage = await begun();
  stage.probe = async (signal) => {
    await stage.clock.sleep(3_500, signal);
    return probeRun();
  };
  say(stage, 1_500, deviceLine);
  answersAt(stage, 4_500);
  // It answers, and its processes are being looked at.
  let slow = false;
  at(stage, 4_400, () => {
    slow = true;
  });
  const pids = async () => {
    if (slow) await stage.clock.sleep(1_000, new AbortController().signal);
    return [100];
  };
  at(stage, 2_000, () => {
    stage.journal.add(overLine, firstStart);
  });
  await watched(stage, {}, { pids });
  const waiting = stage.events.flatMap((event) => (event.kind === 'waiting' ? [event] : []));
  assert.deepEqual(
    waiting.map(({ text, elapsedMs, limitMs }) => [text, elapsedMs, limitMs]),
    [
      ['ollama to say which device it uses', 1_000, 60_000],
      ['vgpu-probe', 2_000, 60_000],
      ['vgpu-probe', 3_000, 60_000],
      ['ollama to answer requests', 4_000, 60_000],
    ],
  );
});

test('a consumer that has answered is awaited until it has been inspected', async () => {
  const stage = await begun();
  stage.http = ready;
  say(stage, 900, deviceLine);
  const pids = async () => {
    await stage.clock.sleep(2_000, new AbortController().signal);
    return [100];
  };
  await watched(stage, {}, { pids });
  const waiting = stage.events.flatMap((event) => (event.kind === 'waiting' ? [event.text] : []));
  assert.deepEqual(waiting, ['ollama to settle', 'ollama to settle']);
});

test('a stop on request names the command to run again', async () => {
  const stage = await begun();
  const stop = new AbortController();
  at(stage, 1_500, () => stop.abort());
  await assert.rejects(watched(stage, { signal: stop.signal }), (error: unknown) => {
    assert.ok(error instanceof VgpuError);
    const { message, operation, kind, path, remedy } = error;
    assert.deepEqual(
      [message, operation, kind, path, remedy],
      [
        'stopped while waiting for the verdict',
        'confirm',
        'interrupted',
        'ollama.service',
        'vgpu-agent verify --profile ollama asks again',
      ],
    );
    return true;
  });
});

test('everything that was begun is over when the waiting is', async () => {
  const stage = await begun();
  stage.http = ready;
  say(stage, 300, ...gpuLog);
  let following = 0;
  const journal = {
    tail: () => stage.journal.tail(),
    read: (question: { readonly unit: string; readonly invocationId: string }) =>
      stage.journal.read(question),
    async *follow(question: { readonly cursor: string | null; readonly signal: AbortSignal }) {
      following += 1;
      try {
        yield* stage.journal.follow(question);
      } finally {
        // journalctl needs a while to end.
        await stage.clock.sleep(50, new AbortController().signal);
        following -= 1;
      }
    },
  };
  await watched(stage, {}, { journal });
  assert.equal(following, 0);
});
