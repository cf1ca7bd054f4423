import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TurnedAway } from '../../../../agent/contracts/sessions.js';
import { loadedModels } from '../../../../agent/verdict/doctor/checks/device.js';
import { host } from '../../../../agent/verdict/doctor/checks/host.js';
import type { Observation } from '../../../../agent/verdict/observation.js';
import { fixtureText, hostWord, judgeLog, ollama, unit, withoutHost } from '../support.js';
import { doctorFacts, troubleOf } from './support.js';

function examine(observation: Partial<Observation>): ReturnType<typeof loadedModels.examine> {
  return loadedModels.examine(doctorFacts({ observation }));
}

function present(gpuBytes: number, turnedAway: TurnedAway | null = null): Partial<Observation> {
  const models = [{ name: 'a', bytes: 4_096, gpuBytes }];
  return {
    present: {
      loaded: { kind: 'told', url: 'http://x', models },
      sessions:
        turnedAway === null
          ? { kind: 'unasked' }
          : {
              kind: 'told',
              own: [],
              processes: 9,
              others: 0,
              turnedAway,
              refusedKernels: null,
              memory: null,
            },
    },
  };
}

const gpuLog = fixtureText('0.32.9_gpu-mode_debug0').split('\n');
const onCpu = judgeLog(ollama, [...gpuLog, 'load_tensors:          CPU model buffer size =     5.28 MiB']);

test('loaded-models: all of it on the GPU is ok; nothing loaded is no question', () => {
  const finding = examine(present(4_096));
  assert.deepEqual(finding, { kind: 'ok', evidence: ['a: 4.0 KiB of 4.0 KiB on the GPU'] });
  assert.equal(examine({}).kind, 'not-applicable');
  assert.equal(examine({ ...present(0), unit: unit({ mainPid: 0 }) }).kind, 'not-applicable');
  const bare = doctorFacts({ observation: present(0), machine: { manifest: null } });
  assert.equal(loadedModels.examine(bare).kind, 'not-applicable');
});

test('loaded-models: a model on the CPU is broken, named, and repaired by a restart', () => {
  const trouble = troubleOf(examine(present(0)));
  assert.match(trouble.cause, /a: 0 bytes of 4\.0 KiB on the GPU/);
  assert.match(
    trouble.command,
    /^sudo systemctl restart ollama\.service && sudo vgpu-agent verify --profile ollama$/,
  );
});

test('loaded-models: the last load went to the CPU, and nothing is loaded now: broken, with its line', () => {
  const trouble = troubleOf(examine({ log: onCpu }));
  assert.match(trouble.cause, /The last model that it loaded went to the CPU/);
  assert.match(trouble.evidence, /CPU model buffer size/);
});

test('loaded-models: a host that is full is the cause, and the remedy is on the host', () => {
  const finding = examine(present(0, { count: 2, status: 'busy', age: 3 }));
  const trouble = troubleOf(finding);
  assert.match(trouble.cause, /refused 2 sessions of this guest, the last 3 s ago/);
  assert.match(trouble.text, /sessions= in \/etc\/vgpu\/hostd\.conf/);
  assert.equal(finding.kind === 'broken' ? finding.remedy.where : null, 'host');
  const denied = troubleOf(examine(present(0, { count: 1, status: 'not-allowed', age: 3 })));
  assert.match(denied.cause, /A part of what it has loaded/);
});

test('host: a session that was refused because the host is full is repaired there, not at the socket', () => {
  const at = (status: 'busy' | 'not-allowed'): ReturnType<typeof troubleOf> => {
    const probe = withoutHost(hostWord('refused', { status }));
    const seen = { ...present(4_096, { count: 1, status, age: 0 }), probe };
    const answer = { kind: 'answers', device: 'd', simulated: false, milliseconds: 1 } as const;
    const machine = { host: { endpoint: 'unix:/run/vgpu/hostd.sock', from: 'guest.conf', answer } } as const;
    return troubleOf(host.examine(doctorFacts({ observation: seen, machine })));
  };
  assert.match(at('busy').cause, /has reached its limit of sessions/);
  assert.match(at('busy').text, /sessions=.*hostd\.conf/);
  assert.match(at('not-allowed').cause, /does not allow this guest/);
  for (const status of ['busy', 'not-allowed'] as const)
    assert.equal(at(status).command, 'systemctl restart vgpu-hostd');
});
