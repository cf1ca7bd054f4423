// The live confirmation: what it waits for, whom it asks, and which failures leave the verdict as it is.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VgpuError } from '../../../agent/lib/errors.js';
import { confirmLimitMs } from '../../../agent/verdict/confirm.js';
import { cpuLog, gpuLog, lines, plainMain, run } from './live.js';
import { confirm, createStage, firstStart, probeRun, ready, type Stage } from './stage.js';
import {
  hostWord,
  judgeLog,
  libraries,
  llamaServer,
  manifest,
  ollama,
  processFacts,
  searched,
  unit,
} from './support.js';

const hostSession = {
  ...{ session: 3, age: 1_000, calls: 9, refused: 0, lastRefusal: 0, carrier: 'rings' as const },
  claimed: { library: 'libcuda', pid: 100, pidNamespace: 0, program: 'ollama' },
} as const;

test('a start on the GPU is confirmed soon after its line', async () => {
  const stage = createStage();
  stage.say(800, gpuLog);
  stage.clock.at(850, () => {
    stage.http = ready;
  });
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  assert.equal(verdict.invocationId, firstStart);
  assert.ok(stage.clock.now() < 1_200, `${stage.clock.now()} ms`);
  assert.equal(stage.hostAsked, 0);
});

test('the verdict does not wait until journald tells its followers: a ready consumer has written its lines', async () => {
  for (const { readyAt, lineAt } of [
    { readyAt: 850, lineAt: 800 },
    { readyAt: 500, lineAt: 1_000 }, // its lines are on their way when it is ready
  ]) {
    const stage = createStage();
    stage.journal.quiet = true;
    stage.say(lineAt, gpuLog);
    stage.clock.at(readyAt, () => {
      stage.http = ready;
    });
    const verdict = await run(stage);
    assert.equal(verdict.mode, 'gpu');
    const once = verdict.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
    assert.equal(new Set(once).size, once.length, 'no line counts twice');
    assert.ok(stage.clock.now() < lineAt + 500, `${stage.clock.now()} ms`);
  }
});

test('the live follower judges every real log as the offline judge does', async () => {
  for (const { file } of manifest()) {
    const text = lines(file.replace(/^ollama-|\.log$/g, ''));
    const stage = createStage();
    stage.http = ready;
    stage.say(300, text);
    const verdict = await run(stage);
    const offline = judgeLog(ollama, text);
    assert.equal(verdict.mode, offline.mode, file);
    assert.deepEqual(verdict.devices, offline.devices, file);
    // The probe of this stage finds a device: the lack of one is over, and a restart helps.
    const past = offline.reason === 'no-device';
    const reason = past ? (offline.hint ?? 'probe-disagrees') : offline.reason;
    if (reason !== null) assert.equal(verdict.reason, reason, file);
  }
});

test('the limit grows with the library directories, and ends the waiting', async () => {
  const stage = createStage();
  assert.equal(confirmLimitMs(stage.options({ libraryDirectories: 3 })), 120_000);
  assert.equal(confirmLimitMs(stage.options({ libraryDirectories: 3, timeoutMs: 500 })), 500);
  const verdict = await run(stage, { libraryDirectories: 0 });
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'readiness-timeout']);
  assert.ok(stage.clock.now() >= 30_000 && stage.clock.now() < 31_000);
});

test('slow discovery within the limit is waited for, with progress', async () => {
  const stage = createStage();
  stage.say(36_000, lines('0.32.9_slow3s_debug0'));
  stage.clock.at(36_000, () => {
    stage.http = ready;
  });
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  const waiting = stage.events.filter((event) => event.kind === 'waiting');
  assert.ok(waiting.length >= 30 && waiting.length <= 40);
  const [first] = waiting;
  assert.ok(first?.kind === 'waiting' && first.limitMs === 60_000 && /say which device/.test(first.text));
});

test('an unreachable host is the reason, and the next command says what to do', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.host = { kind: 'unreachable', message: 'cuInit: CUDA_ERROR_NO_DEVICE', word: null };
  stage.probe = async () =>
    probeRun({
      ok: false,
      devices: [],
      roundTrip: null,
      host: hostWord('unreachable', { errno: 'ECONNREFUSED', message: 'Connection refused' }),
      error: { kind: 'call', step: 'cuInit', code: 100, name: 'CUDA_ERROR_NO_DEVICE', message: 'x' },
    });
  stage.say(300, cpuLog);
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['cpu', 'host-unreachable']);
  assert.equal(stage.hostAsked, 1);
  assert.equal(
    verdict.next,
    'sudo systemctl restart ollama.service && sudo vgpu-agent verify --profile ollama',
  );
  assert.match(verdict.summary, /Connection refused/);
});

test('a probe that throws or hangs does not take the verdict along', async () => {
  const throwing = createStage();
  throwing.http = ready;
  throwing.probe = async () => {
    throw new Error('no bus');
  };
  throwing.unit = unit({ invocationId: firstStart, environment: searched });
  throwing.processes = [{ ...plainMain, libraries: libraries('vgpu') }];
  throwing.say(300, gpuLog);
  const verdict = await run(throwing);
  assert.equal(verdict.mode, 'gpu');
  assert.ok(verdict.evidence.some(({ text }) => /could not be run: no bus/.test(text)));

  const hanging = createStage();
  hanging.http = ready;
  hanging.probe = (signal) =>
    new Promise((resolve) => {
      signal.addEventListener('abort', () => resolve({ kind: 'not-run', message: 'interrupted' }), {
        once: true,
      });
    });
  hanging.say(300, gpuLog);
  const hung = await run(hanging, { timeoutMs: 5_000 });
  assert.deepEqual([hung.mode, hung.reason], ['degraded', 'host-slow']);
});

test('a journal that cannot be read is undetermined, whatever else is fine', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.journal.failure = new VgpuError('cannot read the journal', {
    kind: 'failed',
    operation: 'read the journal',
  });
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'journal-unavailable']);
});

test('output that bypasses the journal is reported', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.unit = unit({
    invocationId: firstStart,
    standardOutput: 'append:/var/log/ollama.log',
    standardError: 'inherit',
  });
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'output-bypasses-journal']);
  assert.ok(stage.clock.now() < 1_000);
  assert.equal(verdict.next?.startsWith('sudo systemctl edit ollama.service'), true);
});

test('a file that the output goes to is read from its size at the restart on', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.unit = unit({ invocationId: firstStart, standardOutput: 'append:/var/log/ollama.log' });
  stage.file = Buffer.from(gpuLog.join('\n'));
  const outputFile = { path: '/var/log/ollama.log', offset: stage.file.length };
  stage.clock.at(300, () => {
    stage.file = Buffer.concat([stage.file, Buffer.from(cpuLog.join('\n'))]);
  });
  const verdict = await run(stage, { outputFile });
  assert.equal(verdict.mode, 'cpu');
  assert.ok(verdict.evidence.some(({ source }) => source?.startsWith('/var/log/ollama.log, line')));
});

test('the address is taken from the log, else from the unit, else from the profile', async () => {
  const fromLog = createStage();
  // Another program answers at the default address before the log names the true one.
  fromLog.http = ready;
  fromLog.say(500, gpuLog);
  const verdict = await run(fromLog);
  assert.equal(fromLog.asked[0], 'http://127.0.0.1:11434/api/version');
  const answer = verdict.evidence.find(({ kind }) => kind === 'readiness');
  assert.equal(answer?.source, 'http://127.0.0.1:11502/api/version');

  const fromUnit = createStage();
  fromUnit.http = ready;
  fromUnit.unit = unit({ invocationId: firstStart, environment: { OLLAMA_HOST: '0.0.0.0:7000' } });
  await run(fromUnit, { timeoutMs: 300 });
  assert.equal(fromUnit.asked[0], 'http://127.0.0.1:7000/api/version');

  const fromProfile = createStage();
  await run(fromProfile, { timeoutMs: 300 });
  assert.equal(fromProfile.asked[0], 'http://127.0.0.1:11434/api/version');
});

test('a unit with a network of its own is not asked over HTTP', async () => {
  const stage = createStage();
  const base = unit({ invocationId: firstStart });
  stage.unit = { ...base, sandbox: { ...base.sandbox, privateNetwork: true } };
  stage.say(300, gpuLog);
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  assert.deepEqual(stage.asked, []);
});

test('an HTTP error is not readiness', async () => {
  const stage = createStage(llamaServer);
  stage.http = { kind: 'answered', status: 503, body: '{"error":{"message":"Loading model"}}' };
  const device = '  Device 0: NVIDIA H100 80GB HBM3, compute capability 9.0, VMM: yes';
  stage.unit = unit({ invocationId: firstStart, name: 'llama-server.service' });
  stage.processes = [processFacts({ name: 'llama-server' })];
  stage.say(100, [device]);
  stage.clock.at(40_000, () => {
    stage.http = ready;
  });
  const verdict = await run(stage);
  assert.equal(verdict.mode, 'gpu');
  // Loading a model takes long, and the answer is waited for.
  assert.ok(stage.clock.now() >= 40_000);
});

test('an interrupt is obeyed, and everything is closed', async () => {
  const stage = createStage();
  const stop = new AbortController();
  stage.clock.at(1_500, () => stop.abort());
  await assert.rejects(run(stage, { signal: stop.signal }), (error: unknown) => {
    assert.ok(error instanceof VgpuError);
    assert.equal(error.kind, 'interrupted');
    return true;
  });
  assert.ok(stage.clock.now() < 2_000);
  await assert.rejects(run(stage, { signal: AbortSignal.abort() }), VgpuError);
});

test('failures of the cgroup and the bus in between do not end the confirmation', async () => {
  const stage = createStage();
  stage.http = ready;
  let calls = 0;
  const effects = {
    ...stage.effects,
    pids: async () => {
      calls += 1;
      if (calls % 2 === 0) throw new Error('no such cgroup');
      return [100];
    },
    unit: async () => {
      if (calls > 2 && calls < 20) throw new Error('bus away');
      return stage.unit;
    },
  };
  stage.say(900, gpuLog);
  const verdict = await stage.clock.run(confirm(stage.options(), effects));
  assert.equal(verdict.mode, 'gpu');
});

test('bytes that are not UTF-8 between the lines do not disturb', async () => {
  const stage = createStage();
  stage.http = ready;
  stage.say(200, ['\uFFFD\uFFFD', ...gpuLog.slice(0, 20), 'caf\uFFFD', ...gpuLog.slice(20)]);
  assert.equal((await run(stage)).mode, 'gpu');
});

test('a model that is on its way to its first allocation is waited for', async () => {
  const stage = createStage();
  stage.say(300, gpuLog);
  const models = [{ name: 'a', size: 4_000, size_vram: 4_000 }];
  stage.http = { kind: 'answered', status: 200, body: JSON.stringify({ models }) };
  const told = (memory: number) => ({ ...hostSession, memory, launches: memory === 0 ? 0 : 9 });
  const sessions = (memory: number): Stage['sessions'] => ({
    kind: 'told',
    report: {
      ...{ host: 'h', simulated: false, refusedKernels: null, memory: null },
      turnedAway: { count: 0, status: null, age: 0 },
      sessions: [told(memory)],
    },
    seconds: 2,
  });
  stage.sessions = sessions(0);
  // Longer than all looks at a contradiction together take.
  stage.clock.at(5_000, () => {
    stage.sessions = sessions(4_000);
  });
  const verdict = await run(stage);
  assert.deepEqual([verdict.mode, verdict.reason], ['gpu', null]);
  assert.ok(stage.clock.now() >= 5_000);

  const never = createStage();
  never.say(300, gpuLog);
  never.http = stage.http;
  never.sessions = sessions(0);
  const waited = await run(never);
  assert.deepEqual([waited.mode, waited.reason], ['undetermined', 'no-work-yet']);
  assert.ok(never.clock.now() < 30_000, `${never.clock.now()} ms`);
});
