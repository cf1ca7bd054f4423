import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { type MetricsOutput, metricsOutput } from '../../../agent/daemon/metrics-output.js';

/** An output to a file while its text is still being made, and the way to end that. */
async function whileTextIsMade(
  act: (output: MetricsOutput, directory: string) => void,
): Promise<readonly string[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-metrics-'));
  try {
    let made: (text: string) => void = () => {};
    const text = new Promise<string>((resolve) => {
      made = resolve;
    });
    const output = metricsOutput(
      () => text,
      (message) => assert.fail(message),
    );
    output.configure({ textfile: path.join(directory, 'vgpu.prom'), listen: null });
    act(output, directory);
    made('vgpu_agent_info 1\n');
    await new Promise((resolve) => setImmediate(resolve));
    return readdirSync(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

describe('the metrics file', () => {
  it('is written when its text is there', async () => {
    assert.deepEqual(await whileTextIsMade(() => undefined), ['vgpu.prom']);
  });

  it('does not come back after a stop that came while its text was made', async () => {
    assert.deepEqual(await whileTextIsMade((output) => output.close()), []);
  });

  it('is only at its new place when that changed while its text was made', async () => {
    const elsewhere = (output: MetricsOutput, directory: string): void =>
      output.configure({ textfile: path.join(directory, 'other.prom'), listen: null });
    assert.deepEqual(await whileTextIsMade(elsewhere), ['other.prom']);
  });
});
