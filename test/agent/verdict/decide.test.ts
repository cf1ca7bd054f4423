// The rule by which evidence becomes a verdict: what is needed for a GPU, and what takes it away.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProbeResult } from '../../../agent/contracts/probe.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { answers, child, cpu, gpu, main, notRun, silent, unreachable } from './evidence.js';
import {
  answered,
  findingsOf,
  fixtureText,
  hostWord,
  judgeLog,
  llamaServer,
  noDevice,
  observation,
  ollama,
  processFacts,
  report,
  unit,
  withoutPreload,
} from './support.js';

function judged(changes: Partial<Observation>): readonly [string, string | null] {
  const { mode, reason } = decideVerdict(observation(changes));
  return [mode, reason];
}

test('this start says cuda, the shim is in the right process, the probe answers: gpu', () => {
  const verdict = decideVerdict(observation());
  assert.equal(verdict.mode, 'gpu');
  assert.equal(verdict.reason, null);
  assert.equal(verdict.next, null);
  assert.equal(verdict.simulated, false);
  assert.equal(verdict.consumerVersion, '0.32.9');
  assert.equal(verdict.invocationId, 'a'.repeat(32));
  assert.deepEqual(verdict.devices, [
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:01:00.0' },
  ]);
  assert.deepEqual(
    verdict.evidence.filter(({ weight }) => weight === 'for').map(({ kind }) => kind),
    ['log-line', 'probe'],
    'LD_PRELOAD puts our libcuda into every process: its maps say nothing',
  );
  assert.deepEqual(
    verdict.evidence.filter(({ weight }) => weight === 'against'),
    [],
  );
});

test('the shim in a child alone, or the probe alone, is proof enough beside the log', () => {
  const loadedItself = withoutPreload(
    observation({ processes: [...main(), ...child(['vgpu'])], probe: notRun }),
  );
  const verdict = decideVerdict(loadedItself);
  assert.deepEqual([verdict.mode, verdict.reason], ['gpu', null]);
  assert.ok(verdict.evidence.some(({ kind, weight }) => kind === 'maps' && weight === 'for'));
  assert.deepEqual(judged({ processes: main() }), ['gpu', null]);
  assert.deepEqual(judged({ processes: [] }), ['gpu', null]);
});

test('a libcuda that LD_PRELOAD put there is no proof', () => {
  const processes = [...main('vgpu'), ...child(['vgpu'])];
  const verdict = decideVerdict(observation({ processes, probe: notRun }));
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'shim-not-loaded']);
  const maps = verdict.evidence.filter(({ kind }) => kind === 'maps');
  assert.equal(maps.length, 2);
  for (const { weight, text } of maps) {
    assert.equal(weight, 'neutral');
    assert.match(
      text,
      /has the libcuda of vgpu-agent loaded, because LD_PRELOAD loads it into every process/,
    );
  }
});

test('the log alone is never enough', () => {
  assert.deepEqual(judged({ processes: main(), probe: notRun }), ['undetermined', 'shim-not-loaded']);
  assert.deepEqual(judged({ processes: [], probe: notRun }), ['undetermined', 'shim-not-loaded']);
  assert.deepEqual(judged({ processes: [], probe: null }), ['undetermined', 'shim-not-loaded']);
});

test('without the log no other evidence makes the verdict gpu', () => {
  for (const log of [
    cpu,
    silent,
    findingsOf('0.32.9_native-probe-crash_debug0'),
    judgeLog(llamaServer, []),
  ]) {
    assert.notEqual(decideVerdict(observation({ log })).mode, 'gpu');
  }
});

test('a context that cannot be created is the reason context-create-failed', () => {
  for (const step of ['cuDevicePrimaryCtxRetain', 'cuCtxSetCurrent']) {
    const message = `${step} failed with 801`;
    const error = { kind: 'call', step, code: 801, name: 'CUDA_ERROR_NOT_SUPPORTED', message } as const;
    const probe = answered({ ok: false, roundTrip: null, error });
    assert.deepEqual(judged({ probe }), ['degraded', 'context-create-failed']);
    assert.deepEqual(judged({ log: cpu, probe }), ['cpu', 'context-create-failed']);
  }
});

test('a variable from an environment file is named with its file, which the next command opens', () => {
  const hidden = unit({
    environmentFileContents: [{ path: '/etc/default/ollama', content: 'CUDA_VISIBLE_DEVICES=-1\n' }],
  });
  const verdict = decideVerdict(observation({ log: cpu, unit: hidden }));
  assert.equal(verdict.reason, 'devices-hidden-by-environment');
  assert.match(verdict.summary, /CUDA_VISIBLE_DEVICES=-1 in \/etc\/default\/ollama/);
  assert.match(
    verdict.next ?? '',
    /^sudoedit \/etc\/default\/ollama && sudo systemctl restart ollama\.service/,
  );
  const inUnit = decideVerdict(
    observation({ log: cpu, unit: unit({ environment: { CUDA_VISIBLE_DEVICES: '-1' } }) }),
  );
  assert.match(inUnit.next ?? '', /^sudo systemctl edit ollama\.service/);
});

test('a missing preload says nothing about file capabilities if the store cannot be used', () => {
  const bare = findingsOf('0.32.9_cuda_v13_no-libcuda_debug0');
  const lost = decideVerdict(observation({ log: bare, processes: main(), probe: notRun }));
  assert.equal(lost.reason, 'preload-ignored');
  assert.match(lost.summary, /see whether \/opt\/vgpu\/current exists and is readable/);
  assert.doesNotMatch(lost.summary, /getcap/);
});

test('libnvidia-ml alone is no proof', () => {
  const nvml = [
    {
      path: '/opt/vgpu/versions/0123456789abcdef/libnvidia-ml.so.1',
      deleted: false,
      vendor: 'vgpu' as const,
    },
  ];
  assert.deepEqual(judged({ processes: child([], { libraries: nvml }), probe: notRun }), [
    'undetermined',
    'shim-not-loaded',
  ]);
});

test('a foreign libcuda in a process that counts: degraded, whatever else is fine', () => {
  const expected = ['degraded', 'foreign-library-loaded'];
  assert.deepEqual(judged({ processes: main('nvidia') }), expected);
  assert.deepEqual(judged({ processes: main('foreign') }), expected);
  assert.deepEqual(judged({ processes: [...main('vgpu'), ...child(['nvidia'])] }), expected);
  assert.deepEqual(judged({ processes: main('vgpu', 'nvidia') }), expected);
  const verdict = decideVerdict(observation({ processes: main('nvidia') }));
  assert.match(verdict.summary, /libcuda\.so\.550\.163\.01/);
  assert.equal(verdict.next, 'sudo vgpu-agent plan --profile ollama');
});

test("a device that the probe does not find is another library's, or is gone", () => {
  const devices = report().devices.map((device) => ({ ...device, name: 'Tesla T4', compute: '7.5' }));
  for (const processes of [main('vgpu'), main(), []]) {
    const verdict = decideVerdict(observation({ processes, probe: answered({ devices }) }));
    assert.deepEqual([verdict.mode, verdict.reason], ['degraded', 'probe-disagrees']);
    assert.match(verdict.summary, /it names NVIDIA H100 80GB HBM3, vgpu-probe finds Tesla T4/);
  }
  const both = [...devices, ...report().devices];
  assert.equal(decideVerdict(observation({ probe: answered({ devices: both }) })).mode, 'gpu');
});

test('an ignored preload is reported with any verdict', () => {
  const verdict = decideVerdict(observation({ processes: main() }));
  assert.equal(verdict.mode, 'gpu');
  assert.ok(verdict.evidence.some(({ text, weight }) => weight === 'against' && /getcap/.test(text)));
  const loaded = decideVerdict(observation());
  assert.ok(!loaded.evidence.some(({ text }) => /getcap/.test(text)));
});

test('the rules of the profile say which processes count', () => {
  const profile = { ...ollama, evidence: { ...ollama.evidence, mapsOf: 'children' as const } };
  assert.deepEqual(judged({ profile, processes: main('nvidia') }), ['gpu', null]);
  assert.deepEqual(judged({ profile, processes: main('vgpu'), probe: notRun }), [
    'undetermined',
    'shim-not-loaded',
  ]);
  const only = { ...ollama, evidence: { ...ollama.evidence, mapsOf: 'main' as const } };
  assert.deepEqual(judged({ profile: only, processes: [...main('vgpu'), ...child(['nvidia'])] }), [
    'gpu',
    null,
  ]);
  const logAlone = { ...ollama, evidence: { mapsOf: 'none' as const, childrenMayExit: true, probe: false } };
  assert.deepEqual(judged({ profile: logAlone, processes: [], probe: null }), ['gpu', null]);
});

test('an older shim whose file is gone: the consumer was not restarted', () => {
  assert.deepEqual(judged({ processes: main('stale') }), ['degraded', 'consumer-not-restarted']);
  assert.deepEqual(judged({ processes: [...main('stale'), ...child(['vgpu'])] }), ['gpu', null]);
  const gone = [{ path: '/opt/vgpu/versions/ffff/libcuda.so.1', deleted: true, vendor: null }];
  assert.deepEqual(judged({ processes: child([], { libraries: gone }) }), [
    'degraded',
    'consumer-not-restarted',
  ]);
});

test('a process started before the drop-in, without the shim loaded: not restarted', () => {
  const processes = [
    { role: 'main' as const, facts: processFacts({ libraries: [], loaderEnvironment: {} }) },
  ];
  assert.deepEqual(judged({ processes }), ['degraded', 'consumer-not-restarted']);
  assert.deepEqual(judged({ processes, log: cpu }), ['cpu', 'consumer-not-restarted']);
  const unreadable = [
    {
      role: 'main' as const,
      facts: processFacts({ libraries: [], loaderEnvironment: {}, unreadable: ['maps', 'environ'] }),
    },
  ];
  assert.deepEqual(judged({ processes: unreadable }), ['gpu', null]);
});

test('the log says GPU but the probe meets trouble: degraded, with the trouble', () => {
  assert.deepEqual(judged({ probe: noDevice, host: unreachable() }), ['degraded', 'host-unreachable']);
  assert.deepEqual(judged({ probe: noDevice, host: answers() }), ['degraded', 'probe-disagrees']);
  const trip = report({
    ok: false,
    roundTrip: { bytes: 1048576, ok: false, microseconds: 1 },
    error: { kind: 'memory', step: 'compare', code: null, name: null, message: 'other bytes' },
  });
  assert.deepEqual(judged({ probe: answered(trip) }), ['degraded', 'memory-round-trip-failed']);
  assert.deepEqual(judged({ probe: { kind: 'crashed', message: 'SEGV' }, host: answers() }), [
    'degraded',
    'probe-crashed',
  ]);
  assert.deepEqual(judged({ probe: { kind: 'timed-out', milliseconds: 10_000 }, host: answers() }), [
    'degraded',
    'host-slow',
  ]);
  assert.deepEqual(
    judged({ probe: answered({ library: '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01' }) }),
    ['degraded', 'foreign-library-loaded'],
  );
});

test('a GPU that never answers requests is degraded', () => {
  assert.deepEqual(
    judged({
      readiness: { kind: 'silent', url: 'http://127.0.0.1:11434/api/version', lastError: 'ECONNREFUSED' },
      end: 'timed-out',
    }),
    ['degraded', 'readiness-timeout'],
  );
  assert.deepEqual(judged({ readiness: { kind: 'unasked', why: 'x' } }), ['gpu', null]);
});

test('a simulated GPU is never called a real one, whichever evidence tells', () => {
  const text = fixtureText('0.32.9_gpu-mode_debug0').replaceAll('HBM3', 'HBM3 (simulated)');
  const devices = report().devices.map((device) => ({ ...device, name: `${device.name} (simulated)` }));
  const byLog = decideVerdict(
    observation({ log: judgeLog(ollama, text.split('\n')), probe: answered({ devices }) }),
  );
  assert.equal(byLog.mode, 'gpu');
  assert.equal(byLog.simulated, true);
  assert.match(byLog.summary, /simulated/);
  const byProbe = decideVerdict(observation({ probe: answered({ simulated: true }) }));
  assert.equal(byProbe.simulated, true);
  assert.match(byProbe.summary, /simulated/);
  const degraded = decideVerdict(
    observation({ probe: answered({ simulated: true }), processes: main('nvidia') }),
  );
  assert.deepEqual([degraded.mode, degraded.simulated], ['degraded', true]);
  for (const log of [cpu, silent])
    assert.equal(decideVerdict(observation({ log, probe: answered({ simulated: true }) })).simulated, false);
});

test('a crashed discovery is degraded and says probe-crashed', () => {
  assert.deepEqual(judged({ log: findingsOf('0.32.9_native-probe-crash_debug0') }), [
    'degraded',
    'probe-crashed',
  ]);
});

/** Every combination of these parts, to hold the rule itself and not only examples. */
test('gpu is said exactly when the rule allows it (all combinations)', () => {
  const logs = { gpu, cpu, silent, degraded: findingsOf('0.32.9_native-probe-crash_debug0') };
  const mapped = {
    shim: main('vgpu'),
    child: [...main(), ...child(['vgpu'])],
    none: main(),
    stale: main('stale'),
    foreign: main('nvidia'),
    mixed: main('vgpu', 'foreign'),
    unseen: [],
  };
  const probes: Readonly<Record<string, ProbeResult>> = {
    good: answered(),
    bad: noDevice,
    crashed: { kind: 'crashed', message: 'x' },
    slow: { kind: 'timed-out', milliseconds: 1 },
    notRun,
    foreign: answered({ library: '/usr/lib/libcuda.so.1' }),
  };
  const readies = {
    answered: observation().readiness,
    silent: { kind: 'silent', url: 'u', lastError: 'e' } as const,
    unasked: { kind: 'unasked', why: 'w' } as const,
  };
  const ends = ['settled', 'timed-out', 'unit-failed', 'unit-restarting'] as const;
  let seen = 0;
  for (const [log, findings] of Object.entries(logs))
    for (const [maps, processes] of Object.entries(mapped))
      for (const [probeName, probe] of Object.entries(probes))
        for (const [ready, readiness] of Object.entries(readies))
          for (const end of ends)
            for (const preloaded of [true, false]) {
              const host = [null, unreachable(), answers()][seen % 3] ?? null;
              const given = observation({ log: findings, processes, probe, readiness, end, host });
              const verdict = decideVerdict(preloaded ? given : withoutPreload(given));
              const shim = maps === 'shim' || maps === 'child';
              const allowed =
                log === 'gpu' &&
                (end === 'settled' || end === 'timed-out') &&
                ready !== 'silent' &&
                (shim
                  ? probeName === 'good' || (probeName === 'notRun' && !preloaded)
                  : (maps === 'none' || maps === 'unseen') && probeName === 'good');
              const what = `${log} ${maps} ${probeName} ${ready} ${end} ${preloaded}`;
              assert.equal(verdict.mode === 'gpu', allowed, what);
              // Whatever is not GPU has a next command, and a reason unless the CPU gives none.
              if (!allowed) {
                assert.ok(verdict.next !== null, what);
                if (verdict.mode !== 'cpu') assert.ok(verdict.reason !== null, what);
              }
              seen += 1;
            }
  assert.equal(seen, 4 * 7 * 6 * 3 * 4 * 2);
});

test('a verdict names what carries the calls, where the probe in the unit tells', () => {
  const host = hostWord('ok', { carrier: 'vsock' });
  assert.equal(decideVerdict(observation({ probe: answered({ host }) })).carrier, 'vsock');
  assert.equal('carrier' in decideVerdict(observation({ probe: answered({ host: hostWord('ok') }) })), false);
  assert.equal(
    'carrier' in decideVerdict(observation({ probe: { kind: 'not-run', message: 'no root' } })),
    false,
  );
});
