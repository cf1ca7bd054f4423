import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VgpuError } from '../../../agent/lib/errors.js';
import { spawnRunner, toolEnvironment } from '../../../agent/lib/run-command.js';

const runner = spawnRunner();

describe('run-command', () => {
  it('gives exit status, standard output and standard error as bytes', async () => {
    const result = await runner.run('/bin/sh', ['-c', "printf 'a\\377'; printf err >&2; exit 3"]);
    assert.equal(result.code, 3);
    assert.equal(result.signal, null);
    assert.deepEqual(result.stdout, Buffer.from([0x61, 0xff]));
    assert.equal(result.stderr.toString(), 'err');
    assert.equal(result.timedOut, false);
  });

  it('passes arguments as they are, without a shell', async () => {
    const result = await runner.run('printf', ['%s|', '$HOME', '; exit 1', '*']);
    assert.equal(result.stdout.toString(), '$HOME|; exit 1|*|');
  });

  it('gives an empty standard input', async () => {
    const result = await runner.run('cat', []);
    assert.deepEqual([result.code, result.stdout.length], [0, 0]);
  });

  it('ends a program that runs past its time and says so', async () => {
    const started = performance.now();
    const result = await runner.run('sleep', ['30'], { timeoutMs: 100 });
    assert.equal(result.timedOut, true);
    assert.equal(result.signal, 'SIGTERM');
    assert.ok(performance.now() - started < 20_000);
  });

  it('kills a program that ignores SIGTERM', async () => {
    const script = "trap '' TERM; echo ignores; while :; do sleep 0.05; done";
    // On a busy machine the time may be over before the shell ignores the signal: then try a longer one.
    for (let timeoutMs = 100; ; timeoutMs *= 4) {
      const result = await runner.run('/bin/sh', ['-c', script], { timeoutMs });
      assert.equal(result.timedOut, true);
      if (result.stdout.length === 0 && timeoutMs < 10_000) continue;
      assert.equal(result.signal, 'SIGKILL');
      break;
    }
  });

  it('does not wait for a grandchild that keeps the pipes open', async () => {
    const started = performance.now();
    const result = await runner.run('/bin/sh', ['-c', 'sleep 20 & echo done']);
    assert.equal(result.stdout.toString(), 'done\n');
    assert.ok(performance.now() - started < 15_000);
  });

  it('does not wait for a grandchild that writes on', async () => {
    const started = performance.now();
    const loop = 'while sleep 0.05; do echo late; done & echo $!';
    const result = await runner.run('/bin/sh', ['-c', loop], { timeoutMs: 60_000 });
    process.kill(Number.parseInt(result.stdout.toString(), 10));
    assert.equal(result.timedOut, false);
    assert.ok(performance.now() - started < 30_000);
  });

  it('reads the output that arrived while this process stood still', async () => {
    const running = runner.run('/bin/sh', ['-c', '(sleep 0.1; echo late; sleep 20) & echo $!']);
    const stand = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000);
    // From an immediate the engine goes to its timers before it reads.
    setTimeout(() => setImmediate(stand), 50);
    const [grandchild = '', late] = (await running).stdout.toString().split('\n');
    process.kill(Number(grandchild));
    assert.equal(late, 'late');
  });

  it('names a program that does not exist', async () => {
    await assert.rejects(runner.run('/nonexistent/tool', []), (error) => {
      assert.ok(error instanceof VgpuError);
      assert.equal(error.kind, 'failed');
      assert.equal(error.path, '/nonexistent/tool');
      assert.match(error.message, /"\/nonexistent\/tool".*no such program/);
      return true;
    });
  });

  it('stops a program that floods its output', async () => {
    await assert.rejects(runner.run('yes', []), /wrote more than/);
  });

  it('takes no directory of root from the PATH of its caller', () => {
    assert.deepEqual(toolEnvironment({ PATH: '/home/x/bin:/bin' }, true), {
      PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
      LC_ALL: 'C.UTF-8',
    });
  });

  it('keeps the loader variables of its own environment from the child', async () => {
    const given = { LD_PRELOAD: '/x.so', LD_LIBRARY_PATH: '/x', PATH: '/bin', A: undefined };
    const environment = toolEnvironment(given, false);
    assert.deepEqual(environment, { PATH: '/bin', LC_ALL: 'C.UTF-8' });
    const result = await spawnRunner({ LD_LIBRARY_PATH: '/x', PATH: process.env['PATH'] }).run('env', []);
    assert.doesNotMatch(result.stdout.toString(), /LD_LIBRARY_PATH/);
  });

  it('gives exactly the environment asked for', async () => {
    const result = await runner.run('/usr/bin/env', [], { env: { ONLY: '1' } });
    assert.equal(result.stdout.toString(), 'ONLY=1\n');
  });
});
