import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logVerdictText, verdictText } from '../../../../agent/cli/output/verdict-text.js';
import { modeText, styleFor } from '../../../../agent/lib/text.js';
import { cpuVerdict, verdict } from './samples.js';

const plain = styleFor({ isTty: false, columns: undefined, wanted: true, env: {} });

test('the first line says the verdict, and that the GPU is simulated', () => {
  assert.equal(
    verdictText(verdict, plain),
    `GPU (simulated)  ollama.service (ollama 0.32.9)
This start found a GPU, and the probe agrees.
  device    NVIDIA H100 80GB HBM3 (simulated), cuda, compute 9.0, 0000:01:00.0
  + log       msg="inference compute" library=CUDA [journal]
  + probe     the probe saw one device`,
  );
});

test('prints the time of the check, and not its number, when the verdict is from the service', () => {
  const at = '2026-11-29T02:40:00.000Z';
  const lines = verdictText({ ...verdict, look: { id: Date.parse(at), at } }, plain).split('\n');
  assert.equal(lines[2], `  checked   ${at}`);
});

test('a CPU verdict names its reason and the next command', () => {
  const text = verdictText(cpuVerdict, plain);
  assert.match(text, /^CPU {2}ollama\.service/);
  assert.match(text, /^ {2}reason {4}host-unreachable$/m);
  assert.match(text, /\nnext: systemctl restart ollama\.service && vgpu-agent verify$/m);
});

test('a verdict other than GPU names the doctor, on a line of its own under the next command', () => {
  const last = (text: string): readonly string[] => text.split('\n').slice(-2);
  const next = 'next: systemctl restart ollama.service && vgpu-agent verify';
  const why = 'why:  sudo vgpu-agent doctor --profile ollama';
  for (const mode of ['cpu', 'degraded', 'undetermined'] as const) {
    assert.deepEqual(last(verdictText({ ...cpuVerdict, mode }, plain)), [next, why]);
  }
  assert.ok(!verdictText(verdict, plain).includes('doctor'), 'on the GPU there is nothing to explain');
});

test('beside its own findings, or where all was taken back, the doctor is not named', () => {
  assert.ok(!verdictText(cpuVerdict, plain, { doctor: false }).includes('doctor'));
  assert.ok(!verdictText({ ...cpuVerdict, next: null }, plain).includes('doctor'));
});

test('every mode has its own word', () => {
  const words = (['gpu', 'cpu', 'degraded', 'undetermined'] as const).map((mode) =>
    modeText({ mode, simulated: false }),
  );
  assert.deepEqual(words, ['GPU', 'CPU', 'DEGRADED', 'UNDETERMINED']);
});

test('a real GPU is not called simulated, a simulated one always is', () => {
  assert.equal(modeText({ mode: 'gpu', simulated: false }), 'GPU');
  assert.equal(logVerdictText(verdict, plain, null).split('\n')[0], 'GPU (simulated)');
});

test('a quoted log line cannot steer the terminal', () => {
  const evil = {
    kind: 'log-line',
    text: '\u001b]0;owned\u0007\u001b[2J',
    weight: 'neutral',
    source: null,
  } as const;
  assert.ok(!verdictText({ ...verdict, evidence: [evil] }, plain).includes('\u001b'));
});
