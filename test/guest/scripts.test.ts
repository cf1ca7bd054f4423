// scripts/guest and scripts/demo as a person uses them.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { shellBlocks } from '../pages.js';
import { whyNoConsumer, whyNoOllama } from './support/consumer.js';
import { whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { run } from './support/process.js';
import { whyNoLlama } from './support/real-llama.js';
import { repository } from './support/repository.js';
import { nodeVersions, testNode } from './support/roots.js';

const GUEST = join(repository, 'scripts/guest');
const DEMO = join(repository, 'scripts/demo');
const name = `scripts-${process.pid}`;

test('the pages say the commands that are run here', () => {
  const thisFile = 'run: test/guest/scripts.test.ts';
  const said = ['README.md', 'docs/tutorial.md'].flatMap((page) =>
    shellBlocks(page).filter(({ mark }) => mark === thisFile),
  );
  assert.deepEqual(
    said.map(({ text }) => text),
    ['sudo ./scripts/demo\n', 'sudo ./scripts/guest shell\n'],
  );
});

test('npm leaves nothing in the home and in the folder for temporary files', async (t) => {
  const scratch = mkdtempSync(join(tmpdir(), 'vgpu-test-npm-'));
  t.after(() => rmSync(scratch, { recursive: true }));
  // The last one has the compile cache, which Node 20 lacks.
  const node = nodeVersions
    .map((version) => testNode(version))
    .filter((path) => existsSync(path))
    .at(-1);
  const ran = await run(
    'bash',
    [
      '-ec',
      'cd "$1"; . scripts/lib/common.sh; use_fetched; npm=$(readlink -f "$(command -v npm)"); "$0" "$npm" config get cache; "$0" "$npm" run',
      node ?? process.execPath,
      repository,
    ],
    { env: { HOME: scratch, TMPDIR: scratch } },
  );
  assert.equal(ran.code, 0, ran.stderr);
  assert.match(ran.stdout, /build:agent/);
  // npm makes the directory of its cache in any case; setup removes it.
  assert.deepEqual(
    readdirSync(scratch, { recursive: true }).filter((name) => name !== '.npm'),
    [],
  );
});

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

describe('scripts/demo', { skip: whyNoGuest() || whyNoHostd() }, () => {
  const shows = async (args: readonly string[], ...patterns: readonly RegExp[]): Promise<void> => {
    const ran = await run(DEMO, args, { timeoutMs: 300_000 });
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    for (const pattern of [
      /the GPU is SIMULATED/,
      /^GPU \(simulated\)/m,
      /What stays: no package/,
      ...patterns,
    ])
      assert.match(ran.stdout, pattern);
  };
  const device = /Before[\s\S]*library=cpu[\s\S]*vgpu-agent install[\s\S]*After[\s\S]*library=CUDA/i;
  // Once on the CPU and once on the GPU: the demo fails unless the sentences are the same.
  const sentences =
    /on the CPU: model has learnt one sentence by heart\n[\s\S]*After[\s\S]*: model has learnt one sentence by heart\n/;
  const atWork = /\+ sessions {2}llama-server \(process \d+\)[\s\S]*[1-9]\d* kernels? launched/;

  test('runs a real Ollama where there is one, whatever else there is', { skip: whyNoOllama() }, () =>
    shows([], /consumer {2}a real Ollama \(\d+\.\d+\.\d+;\s+\//, device, sentences, atWork),
  );

  test('runs Debian’s llama-server', { skip: whyNoLlama() }, () =>
    shows(
      ['--consumer', 'llama-server'],
      /guest {5}Debian GNU\/Linux \S*sid/,
      /consumer {2}a real llama-server, Debian sid's/,
      sentences,
      atWork,
    ),
  );

  test('runs the stand-in, and says that it is one', { skip: whyNoConsumer() }, () =>
    shows(['--consumer', 'stand-in'], /consumer {2}a STAND-IN for Ollama, design 3/, device),
  );

  test('tells a mistake in one line, with status 2', async () => {
    for (const [args, env, says] of [
      [['--frob'], {}, /unknown option "--frob"/],
      [['--consumer', 'vllm'], {}, /"vllm"/],
      [['--consumer'], {}, /ollama, llama-server or stand-in/],
      [['--design', '4'], {}, /"4"/],
      [['--consumer', 'ollama', '--design', '2'], {}, /--design is for the stand-in/],
      [[], { VGPU_TEST_OLLAMA: '/nonexistent/ollama' }, /"\/nonexistent\/ollama"/],
    ] as const) {
      const ran = await run(DEMO, args, { env });
      assert.equal(ran.code, 2, args.join(' '));
      assert.match(ran.stderr, /^demo: [^\n]+\n$/, args.join(' '));
      assert.match(ran.stderr, says);
    }
  });
});
