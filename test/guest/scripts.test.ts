// scripts/guest and scripts/demo as a person uses them.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { realOllama, whyNoConsumer } from './support/consumer.js';
import { whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { run } from './support/process.js';
import { repository } from './support/repository.js';

const GUEST = join(repository, 'scripts/guest');
const DEMO = join(repository, 'scripts/demo');
const name = `scripts-${process.pid}`;

describe('scripts/guest', { skip: whyNoGuest() }, () => {
  test('up, run, status, down', async (t) => {
    t.after(() => run(GUEST, ['kill', name]));
    const up = await run(GUEST, ['up', name]);
    assert.deepEqual([up.code, up.stdout.trim()], [0, 'running'], up.stderr);
    const again = await run(GUEST, ['up', name]);
    assert.equal(again.code, 1);
    assert.match(again.stderr, /is up already/);
    assert.equal((await run(GUEST, ['run', name, 'sh', '-c', 'exit 5'])).code, 5);
    assert.match((await run(GUEST, ['status'])).stdout, new RegExp(`^${name}\tpid \\d+`, 'm'));
    assert.equal((await run(GUEST, ['down', name])).code, 0);
    assert.equal((await run(GUEST, ['status', name])).code, 1);
    assert.equal((await run(GUEST, ['down', name])).code, 0, 'nothing to do is fine');
    assert.equal(existsSync(`/run/vgpu-guests/${name}`), false);
  });

  test('shell has host and consumer, passes the exit status on, leaves nothing', {
    skip: whyNoHostd() || whyNoConsumer(),
  }, async () => {
    const script =
      'hostname; systemctl is-active ollama; test -S /run/vgpu/hostd.sock && echo socket; exit 9';
    const ran = await run(GUEST, ['shell', name], { stdin: script });
    assert.deepEqual(ran, { code: 9, stdout: `${name}\nactive\nsocket\n`, stderr: '' });
    assert.equal(existsSync(`/run/vgpu-guests/${name}`), false);
  });

  test('tells a mistake in one line, with status 2', async () => {
    const mistakes = [
      ['frobnicate'],
      ['up', 'bad/name'],
      ['up', name, '--frob', 'x'],
      ['up', name, '--size'],
      ['up', name, '--bind', 'x'],
      ['up', name, '--consumer', '4'],
      ['run', name],
    ];
    for (const args of mistakes) {
      const ran = await run(GUEST, args);
      assert.equal(ran.code, 2, args.join(' '));
      assert.match(ran.stderr, /^guest: [^\n]+\n$/, args.join(' '));
    }
  });

  test('is refused with status 6 without root', async () => {
    const ran = await run('setpriv', ['--reuid', '65534', '--clear-groups', 'bash', GUEST, 'up', name]);
    assert.equal(ran.code, 6);
    assert.match(ran.stderr, /needs root/);
  });
});

describe('scripts/demo', { skip: whyNoGuest() || whyNoHostd() || whyNoConsumer() }, () => {
  test('ends with a GPU verdict and says what was not real', async () => {
    const ran = await run(DEMO, [], { timeoutMs: 300_000 });
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.match(ran.stdout, /the GPU is SIMULATED/);
    assert.match(ran.stdout, realOllama() === undefined ? /STAND-IN for Ollama/ : /a real Ollama/);
    assert.match(
      ran.stdout,
      /Before[\s\S]*library=cpu[\s\S]*vgpu-agent install[\s\S]*After[\s\S]*library=CUDA/i,
    );
    assert.match(ran.stdout, /GPU \(simulated\)/);
  });
});
