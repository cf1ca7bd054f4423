// What the service says of itself and of a host that went away; what it watches; when it tidies its memory up.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { combine } from '../../../agent/confirm/combine.js';
import type { Change } from '../../../agent/contracts/plan.js';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import type { ConsumerState, Snapshot } from '../../../agent/daemon/board.js';
import { lostVerdict, staleVerdict } from '../../../agent/daemon/judge/lost-verdict.js';
import { causesOf } from '../../../agent/daemon/keeper/causes.js';
import { memory } from '../../../agent/daemon/memory.js';
import { statusDocument, statusLine } from '../../../agent/daemon/status-document.js';
import { allPlaces, isLibrary, isTemporary, watchPlaces } from '../../../agent/daemon/watch-places.js';
import { statusView } from '../../../agent/pipeline/status-view.js';
import { observation, ollama, unit } from '../confirm/support.js';
import { settled } from '../plan/settled.js';
import { candidate, facts } from '../plan/support.js';

const gpu: Verdict = combine(observation());
const counters = { checks: 1, drifts: 2, repairs: 3, failedRepairs: 4, restarts: 5 };
const consumer = (changes: Partial<ConsumerState> = {}): ConsumerState => ({
  profile: 'ollama',
  unit: 'ollama.service',
  phase: 'settled',
  problem: null,
  verdict: gpu,
  view: null,
  pendingRestart: null,
  counters,
  ...changes,
});
const host = { endpoint: 'unix:/x', answers: true, simulated: false, detail: 'H200' };
const snapshot = (...consumers: readonly ConsumerState[]): Snapshot => ({
  configProblem: null,
  host,
  hostLosses: 6,
  repairMilliseconds: 7,
  consumers,
});

test('one line says the phase, the verdict, the host and the trouble', () => {
  const lines = [
    snapshot(),
    snapshot(consumer()),
    snapshot(consumer({ verdict: { ...gpu, mode: 'cpu', simulated: true } })),
    snapshot(consumer({ phase: 'degraded', problem: 'two\n  lines' })),
    { ...snapshot(consumer()), host: { ...host, answers: false } },
    { ...snapshot(consumer()), host: { ...host, answers: null } },
    snapshot(consumer({ problem: 'a' }), consumer({ unit: 'b.service', phase: 'waiting', problem: 'c' })),
  ].map(statusLine);
  assert.deepEqual(lines, [
    'starting, no verdict yet',
    'settled, gpu',
    'settled, cpu (simulated)',
    'degraded, gpu: two lines',
    'settled, gpu; the host does not answer',
    'settled, gpu',
    'waiting, gpu: ollama.service: a; b.service: c',
  ]);
});

const view = statusView(ollama, settled(), null, gpu);

test('the document has the view, the host as the service last heard of it, and its own counters', () => {
  assert.equal(statusDocument(snapshot(consumer()), '1.2.3'), null, 'nothing was looked at');
  const seen = consumer({ view });
  const answers = [host, { ...host, answers: false, detail: 'gone' }, { ...host, answers: null }].map(
    (state) =>
      Reflect.get(
        Reflect.get(statusDocument({ ...snapshot(seen), host: state }, '1.2.3') ?? {}, 'host'),
        'answer',
      ),
  );
  assert.deepEqual(answers, [
    { kind: 'answers', device: 'H200', simulated: false, milliseconds: 0 },
    { kind: 'unreachable', message: 'gone', word: null },
    { kind: 'unasked' },
  ]);
  const document = statusDocument(snapshot(seen), '1.2.3') ?? {};
  assert.deepEqual([Reflect.get(document, 'schema'), Reflect.get(document, 'command')], [1, 'status']);
  assert.deepEqual(Reflect.get(document, 'service'), {
    version: '1.2.3',
    state: 'settled',
    problem: null,
    configProblem: null,
    pendingRestart: null,
    ...counters,
    hostLosses: 6,
    repairMilliseconds: 7,
  });
});

test('a host that went away degrades a GPU verdict at once, and says what to do; other modes stay what they are', () => {
  const lost = lostVerdict(gpu, 'refused');
  assert.deepEqual([lost.mode, lost.reason], ['degraded', 'host-unreachable']);
  assert.match(
    lost.summary,
    /^ollama\.service began on the GPU, but its host does not answer now \(refused\)/,
  );
  assert.equal(lost.next, 'start vgpu-hostd on the host; the service does the rest');
  assert.deepEqual(lost.evidence.slice(0, 1), [
    { kind: 'host', text: 'the host does not answer: refused', weight: 'against', source: null },
  ]);
  assert.deepEqual(lost.evidence.slice(1), gpu.evidence);
  const cpu = lostVerdict({ ...gpu, mode: 'cpu' }, 'refused');
  assert.deepEqual([cpu.mode, cpu.summary], ['cpu', gpu.summary]);
});

test('a host that came back leaves the start before it in doubt', () => {
  const stale = staleVerdict(gpu);
  assert.deepEqual([stale.mode, stale.reason], ['degraded', 'consumer-not-restarted']);
  assert.match(
    stale.summary,
    /^ollama\.service began on the GPU and lost its host meanwhile; .* to be sure\.$/,
  );
  assert.equal(stale.next, 'sudo systemctl restart ollama.service');
  assert.deepEqual(stale.evidence, [
    { kind: 'host', text: 'the host was away during this start', weight: 'against', source: null },
    ...gpu.evidence,
  ]);
  const cpu = { ...gpu, mode: 'cpu' } as const;
  assert.equal(staleVerdict(cpu), cpu);
});

test('a repair is about its paths, each once, else about what kind of change it is', () => {
  const { shim } = facts();
  const change = (path: string): Change => ({ kind: 'remove-directory', path, reason: '' });
  const ldconfig: Change = { kind: 'ldconfig', links: false, reason: '' };
  const reload: Change = { kind: 'daemon-reload', reason: '' };
  assert.deepEqual(causesOf([change('/a'), { kind: 'store', shim, reason: '' }, ldconfig, change('/a')]), [
    '/a',
    '/opt/vgpu',
  ]);
  assert.deepEqual(causesOf([ldconfig, reload, reload]), ['/etc/ld.so.cache', 'daemon-reload']);
  assert.deepEqual(causesOf([]), []);
});

test('memory is collected twice when half a megabyte was allocated since, and not before', () => {
  const collected: number[] = [];
  let size = 1_000_000;
  const kept = memory({
    collect: () => {
      collected.push(size);
      size = 1_000_000;
    },
    size: () => size,
  });
  kept.tick();
  assert.deepEqual(collected, [1_000_000, 1_000_000]);
  size += 512 * 1024 - 1;
  kept.tick();
  assert.equal(collected.length, 2);
  size += 1;
  kept.tick();
  assert.equal(collected.length, 4);
  memory(null).tick();
});

test('all that a plan looks at is watched, by name where others write too', () => {
  const machine = settled();
  const before = watchPlaces(ollama, null, null);
  assert.deepEqual(
    [...before].map(([directory, names]) => `${directory}: ${names === null ? 'all' : [...names].join(' ')}`),
    [
      '/etc/vgpu-agent: agent.json',
      '/etc/vgpu: guest.conf',
      '/etc/ld.so.conf.d: 000-vgpu.conf',
      '/var/lib/vgpu-agent: manifest.json',
      '/opt: vgpu',
      '/opt/vgpu: all',
      '/opt/vgpu/versions: all',
      '/etc: ld.so.cache',
      '/etc/alternatives: nvidia glx',
      '/etc/systemd/system: ollama.service ollama.service.d',
      '/etc/systemd/system/ollama.service.d: all',
    ],
  );
  const items = [
    ...(machine.manifest?.items ?? []),
    {
      kind: 'alternative',
      group: 'mine',
      path: '/x',
      priority: 1,
      before: { status: 'auto', value: '' },
    } as const,
    { kind: 'directory', path: '/usr/share/ours', mode: 0o755 } as const,
  ];
  const seen = {
    ...machine,
    unit: unit({ fragment: '/lib/systemd/system/ollama.service' }),
    candidates: [candidate('/srv/cuda/libcuda.so.1')],
  };
  const manifest = machine.manifest === null ? null : { ...machine.manifest, items };
  const after = watchPlaces(ollama, seen, manifest);
  assert.deepEqual([...after.keys()].filter((directory) => !before.has(directory)).toSorted(), [
    '/lib/systemd/system',
    '/opt/vgpu/versions/0123456789abcdef',
    '/srv/cuda',
    '/usr/lib/x86_64-linux-gnu',
  ]);
  assert.equal(after.get('/opt/vgpu/versions/0123456789abcdef'), null);
  assert.deepEqual([...(after.get('/etc/alternatives') ?? [])], ['nvidia', 'glx', 'mine']);
  assert.deepEqual([...(after.get('/srv/cuda') ?? [])], ['libcuda.so.1']);
  const absent = { ...machine, candidates: [], unit: { kind: 'absent', name: 'ollama.service' } as const };
  assert.equal(watchPlaces(ollama, absent, null).has('.'), false);
  assert.equal(watchPlaces(ollama, { ...seen, unit: unit({ fragment: '' }) }, null).has('.'), false);
});

test('what several consumers need watched is watched once, all of a directory where one needs all', () => {
  const merged = allPlaces([
    new Map([
      ['/a', new Set(['x'])],
      ['/b', null],
    ]),
    new Map([
      ['/a', new Set(['y'])],
      ['/b', new Set(['z'])],
      ['/c', new Set(['x'])],
    ]),
    new Map([['/c', null]]),
  ]);
  assert.deepEqual(
    [...merged],
    [
      ['/a', new Set(['x', 'y'])],
      ['/b', null],
      ['/c', null],
    ],
  );
});

test('a driver’s libraries matter in every version; files on their way to a name do not', () => {
  const names = ['libcuda.so', 'libcuda.so.550', 'libnvidia-ml.so.1', 'mylibcuda.so', 'libcudart.so'];
  assert.deepEqual(names.map(isLibrary), [true, true, true, false, false]);
  assert.deepEqual(['a.vgpu-new', 'ld.so.cache~', 'a.vgpu-new.b', 'ld.so.cache'].map(isTemporary), [
    true,
    true,
    false,
    false,
  ]);
});
