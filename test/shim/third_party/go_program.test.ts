// A program in Go, as Ollama is one: its threads, its signals, its children, and our library in the middle.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, scratchDirectory, startHost, until, VARIANT } from '../shim_host.js';

const GOROOT = path.join(ROOT, '.cache/roots/go-1.19/usr/lib/go-1.19');
const skip =
  VARIANT !== 'shim'
    ? 'a program that is not sanitized cannot load a sanitized library'
    : existsSync(path.join(GOROOT, '../../../.complete'))
      ? false
      : 'no Go here: run scripts/fetch-packages go-1.19';

describe('a Go program', { skip }, () => {
  const scratch = scratchDirectory();
  const program = path.join(scratch.path, 'go_consumer');
  let host: Host;

  before(async () => {
    const source = path.join(ROOT, 'test/shim/programs/go_consumer.go');
    await promisify(execFile)(path.join(GOROOT, 'bin/go'), ['build', '-o', program, source], {
      cwd: scratch.path,
      env: {
        ...process.env,
        GOROOT,
        GOCACHE: path.join(scratch.path, 'cache'),
        GO111MODULE: 'off',
        CGO_ENABLED: '1',
      },
    });
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const start = (env: Readonly<Record<string, string>>, rounds = 8) =>
    runProgram(program, [builtFile('libcuda.so.1'), String(rounds)], { env, limit: 120_000 });

  for (const transport of ['rings', 'socket']) {
    it(`computes in 32 goroutines while it collects garbage and starts children, over ${transport}`, async () => {
      const env = {
        VGPU_HOST: host.address,
        ...(transport === 'socket' ? { VGPU_TRANSPORT: 'socket' } : {}),
      };
      const ended = await start(env);
      assert.equal(ended.stdout, '1 device, 32 goroutines, 8 rounds each\n', ended.stderr);
      assert.equal(ended.code, 0, ended.stderr);
    });
  }

  it('gets "no device" when there is no host', async () => {
    const ended = await start({ VGPU_HOST: `unix:${scratch.path}/none` });
    assert.equal(ended.stdout, 'no device: 100\n');
    assert.equal(ended.code, 2);
  });

  it('gets an error, and no signal, when the host goes in the middle', async () => {
    const other = await startHost({ listen: `unix:${scratch.path}/other` });
    const child = spawn(program, [builtFile('libcuda.so.1'), '1000000'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, VGPU_HOST: other.address },
    });
    let out = '';
    let begun = false;
    // Not the host's "begins": cuInit may still be under way then, and finds no device.
    child.stderr.once('data', () => {
      begun = true;
    });
    child.stdout.on('data', (chunk: Buffer) => {
      out += chunk.toString();
    });
    const end = new Promise<[number | null, NodeJS.Signals | null]>((resolve) =>
      child.once('close', (...how) => resolve(how)),
    );
    try {
      await until('the program to compute', () => begun, 30_000);
      other.signal('SIGKILL');
      assert.deepEqual(await end, [1, null], out);
      assert.match(out, /^(work|synchronize): \d+$/m);
    } finally {
      child.kill('SIGKILL');
      await other.stop();
    }
  });
});
