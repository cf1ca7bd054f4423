import assert from 'node:assert/strict';
import {
  chownSync,
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it } from 'node:test';
import { type MetricsOutput, metricsOutput } from '../../../agent/service/metrics.js';

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

  it('does not overwrite the target of a link planted in its directory', {
    skip: process.geteuid?.() === 0 ? false : 'only root can make files of another user',
  }, async (context) => {
    const root = mkdtempSync('/run/vgpu-metrics-');
    context.after(() => rmSync(root, { recursive: true, force: true }));
    const victim = path.join(root, 'victim');
    writeFileSync(victim, 'as before');
    const theirs = path.join(root, 'theirs');
    mkdirSync(theirs);
    chownSync(theirs, 65534, 65534);
    for (const name of ['.vgpu.prom.new', 'vgpu.prom', '.vgpu.prom.tmp']) {
      symlinkSync(victim, path.join(theirs, name));
      lchownSync(path.join(theirs, name), 65534, 65534);
    }
    const output = metricsOutput(
      async () => 'vgpu_agent_info 1\n',
      (message) => assert.fail(message),
    );
    output.configure({ textfile: path.join(theirs, 'vgpu.prom'), listen: null });
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(readFileSync(victim, 'utf8'), 'as before');
    assert.equal(readFileSync(path.join(theirs, 'vgpu.prom'), 'utf8'), 'vgpu_agent_info 1\n');
    output.close();
    assert.ok(!existsSync(path.join(theirs, 'vgpu.prom')));
    assert.equal(readFileSync(victim, 'utf8'), 'as before');
  });

  it('has a socket that everybody may connect to, and its mode comes from no chmod', async (context) => {
    const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-metrics-'));
    context.after(() => rmSync(directory, { recursive: true, force: true }));
    const socket = path.join(directory, 'socket');
    const umask = process.umask();
    const output = metricsOutput(
      async () => '',
      (message) => assert.fail(message),
    );
    output.configure({ textfile: null, listen: `unix:${socket}` });
    assert.equal(statSync(socket).mode & 0o777, 0o666);
    assert.equal(process.umask(), umask);
    output.close();
  });
});
