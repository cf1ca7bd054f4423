// The verdict on a consumer whose host went away, and came back.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lostVerdict, staleVerdict } from '../../../../agent/service/judge/shown.js';
import { decideVerdict } from '../../../../agent/verdict/decide.js';
import { observation } from '../../verdict/support.js';

const gpu = decideVerdict(observation());

test('a host that went away degrades a GPU verdict at once, with a remedy; other modes stay the same', () => {
  const lost = lostVerdict(gpu, 'refused');
  assert.deepEqual([lost.mode, lost.reason], ['degraded', 'host-unreachable']);
  assert.match(
    lost.summary,
    /^ollama\.service started on the GPU, but its host does not answer now \(refused\)/,
  );
  assert.equal(
    lost.next,
    'start vgpu-hostd on the host; vgpu-agent.service then restarts the service if necessary',
  );
  assert.deepEqual(lost.evidence.slice(0, 1), [
    { kind: 'host', text: 'the host does not answer: refused', weight: 'against', source: null },
  ]);
  assert.deepEqual(lost.evidence.slice(1), gpu.evidence);
  assert.equal(lostVerdict({ ...gpu, simulated: true }, 'refused').simulated, true);
  const cpu = lostVerdict({ ...gpu, mode: 'cpu' }, 'refused');
  assert.deepEqual([cpu.mode, cpu.summary], ['cpu', gpu.summary]);
});

test('a host that came back leaves the start before it in doubt', () => {
  const stale = staleVerdict(gpu);
  assert.deepEqual([stale.mode, stale.reason], ['degraded', 'consumer-not-restarted']);
  assert.match(
    stale.summary,
    /^ollama\.service started on the GPU, then its host did not answer for some time\. .* may be lost\.$/,
  );
  assert.equal(stale.next, 'sudo systemctl restart ollama.service');
  assert.deepEqual(stale.evidence, [
    {
      kind: 'host',
      text: 'the host did not answer for some time after this start',
      weight: 'against',
      source: null,
    },
    ...gpu.evidence,
  ]);
  const cpu = { ...gpu, mode: 'cpu' } as const;
  assert.equal(staleVerdict(cpu), cpu);
});
