// Findings that a guest cannot be brought to, or that are one of many words for the same: from made facts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { HostFacts, MachineFacts } from '../../../../agent/contracts/facts.js';
import { driverVersion } from '../../../../agent/verdict/doctor/checks/host.js';
import { nvml, realGpu } from '../../../../agent/verdict/doctor/checks/libraries.js';
import { agentService } from '../../../../agent/verdict/doctor/checks/machine.js';
import { discoveryTime, output } from '../../../../agent/verdict/doctor/checks/output.js';
import { overrides, sandbox, startOrder } from '../../../../agent/verdict/doctor/checks/unit.js';
import { answered, findingsOf, noDevice, openSandbox, unit } from '../support.js';
import { doctorFacts, troubleOf } from './support.js';

const endpoint = 'vsock:2:14833';
const answers: HostFacts = {
  endpoint,
  from: 'guest.conf',
  answer: { kind: 'answers', device: 'NVIDIA H200', simulated: false, milliseconds: 40 },
};
test('real-gpu: one that works is warned of, and how to give it back', () => {
  const found = {
    kind: 'present',
    works: true,
    evidence: '/usr/lib/libcuda.so.550 lists NVIDIA T4',
  } as const;
  const trouble = troubleOf(realGpu.examine(doctorFacts({ machine: { realGpu: found } })));
  assert.equal(trouble.kind, 'warning');
  assert.match(trouble.evidence, /NVIDIA T4/);
  assert.equal(trouble.command, 'sudo vgpu-agent uninstall --profile ollama');
  assert.equal(realGpu.examine(doctorFacts()).kind, 'ok');
});

test('sandbox: a setting that does not block this transport is not reported', () => {
  const harmless = {
    ...openSandbox,
    privateNetwork: true,
    devicePolicy: 'closed',
    memoryDenyWriteExecute: true,
    noNewPrivileges: true,
    privateTmp: true,
    ipAddressDeny: ['0.0.0.0/0'],
  };
  const inUnit = { unit: unit({ sandbox: harmless }) };
  assert.equal(sandbox.examine(doctorFacts({ machine: inUnit })).kind, 'ok');
  const shut = { ...harmless, restrictAddressFamilies: { deny: true, families: ['AF_UNIX'] } };
  const trouble = troubleOf(sandbox.examine(doctorFacts({ machine: { unit: unit({ sandbox: shut }) } })));
  assert.match(trouble.evidence, /RestrictAddressFamilies=~AF_UNIX/);
});

test('overrides: an environment file wins over Environment=, both ways', () => {
  const file = { path: '/etc/default/ollama', content: 'CUDA_VISIBLE_DEVICES=0\n' };
  const hidden = { CUDA_VISIBLE_DEVICES: '-1' };
  const repaired = unit({ environment: hidden, environmentFileContents: [file] });
  assert.notEqual(overrides.examine(doctorFacts({ machine: { unit: repaired } })).kind, 'broken');
  const spoilt = unit({
    environment: { CUDA_VISIBLE_DEVICES: '0' },
    environmentFileContents: [{ ...file, content: 'CUDA_VISIBLE_DEVICES=-1\n' }],
  });
  const trouble = troubleOf(overrides.examine(doctorFacts({ machine: { unit: spoilt } })));
  assert.match(trouble.evidence, /^CUDA_VISIBLE_DEVICES=-1 \[\/etc\/default\/ollama\]$/m);
  assert.match(
    trouble.command,
    /^sudoedit \/etc\/default\/ollama && sudo systemctl restart ollama\.service$/,
  );
});

test('overrides: a variable of an image is named, unless the command of its container sets it otherwise', () => {
  const execStart = ['/usr/bin/docker', 'run', '--name', 'o', 'image'];
  const look = { containerEnvironment: { CUDA_VISIBLE_DEVICES: '', OLLAMA_LLM_LIBRARY: 'cuda_v13' } };
  const trouble = troubleOf(overrides.examine(doctorFacts({ machine: { unit: unit({ execStart }) }, look })));
  assert.equal(trouble.evidence, 'CUDA_VISIBLE_DEVICES= [the image of its container, or its compose file]');
  assert.match(trouble.command, /^sudo systemctl edit --full ollama\.service$/);
  const chosen = unit({ execStart, environment: { CUDA_VISIBLE_DEVICES: '0' } });
  assert.notEqual(overrides.examine(doctorFacts({ machine: { unit: chosen }, look })).kind, 'broken');
});

test('output: with a verdict it is a warning; an unreadable journal is broken', () => {
  const silent = { unit: unit({ standardError: 'append:/var/log/ollama.log' }) };
  assert.equal(troubleOf(output.examine(doctorFacts({ machine: silent }))).kind, 'warning');
  const observation = { journalError: 'journalctl: Permission denied' };
  assert.equal(troubleOf(output.examine(doctorFacts({ observation }))).kind, 'broken');
});

test('driver-version: a driver of the host that the service finds too old, with both versions', () => {
  const observation = { log: findingsOf('0.32.9_v12dir-driver535_debug0') };
  const trouble = troubleOf(driverVersion.examine(doctorFacts({ observation })));
  assert.match(trouble.evidence, /driver too old/i);
  assert.match(trouble.evidence, /580\.65\.06/);
  assert.equal(driverVersion.examine(doctorFacts()).kind, 'ok');
});

test('discovery-time: the real time-out of a slow driver, and none of a quick one', () => {
  const observation = { log: findingsOf('0.32.9_slow-init-35s_debug0') };
  const trouble = troubleOf(discoveryTime.examine(doctorFacts({ observation, machine: { host: answers } })));
  assert.match(trouble.evidence, /now the host answers after 40 ms/);
  const quick = { log: findingsOf('0.32.9_slow3s_debug0') };
  assert.equal(discoveryTime.examine(doctorFacts({ observation: quick })).kind, 'ok');
});

test('start-order: only where a GPU answers now, and the service gave no reason of its own', () => {
  const log = findingsOf('0.32.9_cuda_v13_no-libcuda_debug0');
  const trouble = troubleOf(startOrder.examine(doctorFacts({ observation: { log } })));
  assert.match(trouble.evidence, /library=cpu/);
  assert.equal(
    startOrder.examine(doctorFacts({ observation: { log, probe: noDevice } })).kind,
    'not-applicable',
  );
  const said = { log: findingsOf('0.32.9_v12dir-driver535_debug0') };
  assert.equal(startOrder.examine(doctorFacts({ observation: said })).kind, 'not-applicable');
  assert.equal(startOrder.examine(doctorFacts()).kind, 'ok');
});

test('nvml: its message where only CUDA works, and none where CUDA does not', () => {
  const failing = { nvml: { ok: false, driver: null, error: 'nvmlInit_v2: NVML_ERROR_UNKNOWN' } };
  const trouble = troubleOf(nvml.examine(doctorFacts({ observation: { probe: answered(failing) } })));
  assert.equal(trouble.kind, 'warning');
  assert.match(trouble.evidence, /NVML_ERROR_UNKNOWN/);
  const none = { observation: { probe: noDevice } };
  assert.equal(nvml.examine(doctorFacts(none)).kind, 'not-applicable');
});

describe('agent-service', () => {
  const file = '/etc/systemd/system/vgpu-agent.service';
  const state = { kind: 'file', size: 1, sha256: 'a', mode: 0o644, uid: 0, gid: 0, mtimeNs: '0' } as const;
  const machine = (activeState: string): Partial<MachineFacts> => ({
    service: {
      unit: 'vgpu-agent.service',
      files: [{ present: { path: file, state, content: 'x' }, packaged: 'x', editable: false }],
      link: {
        path: '/etc/systemd/system/multi-user.target.wants/vgpu-agent.service',
        target: file,
        state: { kind: 'link', target: file, uid: 0, gid: 0, mtimeNs: '0' },
      },
      activeState,
      program: { node: '/usr/bin/node', watch: '/w/vgpu-watch', package: '/usr/lib/vgpu-agent' },
      consumers: [],
      changeable: null,
      confProblem: null,
    },
    manifest: {
      schema: 2,
      agent: '0.1.0',
      consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
      storeId: '0123456789abcdef',
      endpoint,
      items: [
        {
          kind: 'file',
          path: file,
          sha256: 'a',
          mode: 0o644,
          before: { kind: 'absent' },
          backup: null,
        },
      ],
    },
  });

  test('a service that has paused its repairs is reported with its own message', () => {
    const status = { state: 'degraded', problem: 'libcuda.so.1 was replaced 20 times', configProblem: null };
    const facts = doctorFacts({ machine: machine('active'), look: { service: { status } } });
    const trouble = troubleOf(agentService.examine(facts));
    assert.match(trouble.cause, /has paused its repairs for up to 60 minutes/);
    assert.match(trouble.evidence, /replaced 20 times/);
  });

  test('a failed service is reported; one that runs, or was never installed, is not', () => {
    const failed = troubleOf(agentService.examine(doctorFacts({ machine: machine('failed') })));
    assert.match(failed.evidence, /failed/);
    const status = { state: 'settled', problem: null, configProblem: null };
    const fine = doctorFacts({ machine: machine('active'), look: { service: { status } } });
    assert.equal(agentService.examine(fine).kind, 'ok');
    assert.equal(agentService.examine(doctorFacts()).kind, 'not-applicable');
  });
});
