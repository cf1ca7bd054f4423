// A real program that no profile is for: Debian's llama-server in a unit of another name, by the generic profile; and
// Debian's llama-bench by `vgpu-agent run`, with nothing installed.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeGguf } from '../../shim/support/make-gguf.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, differences, uninstall } from '../support/installed.js';
import { answering, complete, llamaGuest, whyNoLlama } from '../support/real-llama.js';
import { evidence, tell } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoLlama();
const unit = 'chat.service';
const words = ['one', 'two', 'three', 'four', 'five'];

test('a real program in a unit that no profile is for', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755); // the service has a user of its own
  writeFileSync(join(directory, 'toy.gguf'), makeGguf({ type: 'q4_0', seed: 20_260_101, sentence: words }));
  const guest = await llamaGuest(t, directory, 'toy', unit);
  await guest.must('ldconfig', '-X');
  const before = await guest.listing();
  const onCpu = await complete(guest, 'one two', unit);
  const verify = () => tell(guest, 'verify', '--unit', unit);

  await t.test('run: a command of it computes on the GPU, and nothing is installed', async () => {
    const bench = [
      'llama-bench',
      '-m',
      '/opt/models/toy.gguf',
      '-p',
      '8',
      '-n',
      '4',
      '-r',
      '1',
      '-o',
      'json',
    ];
    const host = ['--host', 'unix:/run/vgpu/hostd.sock'];
    const ran = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'run', ...host, '--', ...bench);
    assert.equal(ran.code, 0, ran.stderr);
    const results: unknown = JSON.parse(ran.stdout);
    assert.equal(at(results, 0, 'backends'), 'CUDA', ran.stdout);
    assert.match(String(at(results, 0, 'gpu_info')), /NVIDIA H100 80GB HBM3 \(simulated\)/);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });

  await t.test('install --unit gives GPU by the sessions that the host has of it', async () => {
    const installed = await tell(guest, 'install', '--yes', '--unit', unit);
    const { verdict } = installed.document;
    assert.deepEqual(
      [installed.code, verdict?.mode, verdict?.profile],
      [0, 'gpu', 'generic'],
      installed.stderr,
    );
    assert.ok(verdict !== null);
    assert.equal(verdict.unit, unit);
    assert.deepEqual(evidence(verdict, 'log-line'), [], 'no log is read');
    assert.match(
      evidence(verdict, 'sessions').join(),
      /^llama-server \(process \d+\) .* [1-9]\d* kernels? launched$/,
    );
    await answering(guest, unit);
    assert.deepEqual(await complete(guest, 'one two', unit), onCpu);
  });

  await t.test('the host is killed: the program ends over it, and the verdict follows', async () => {
    await guest.hosts.stop('SIGKILL');
    assert.notEqual((await complete(guest, 'one two', unit)).curl, 0);
    await answering(guest, unit);
    assert.deepEqual(await complete(guest, 'one two', unit), onCpu, 'on the CPU');
    const lost = (await verify()).document.verdict;
    assert.deepEqual([lost?.mode, lost?.reason], ['cpu', 'host-unreachable']);
    await guest.hosts.start();
    await guest.must('systemctl', 'restart', unit);
    await answering(guest, unit);
    assert.equal((await verify()).document.verdict?.mode, 'gpu');
  });

  await t.test('uninstall leaves nothing of vgpu-agent', async () => {
    await uninstall(guest, '--unit', unit);
    await answering(guest, unit);
    assert.deepEqual(await complete(guest, 'one two', unit), onCpu);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });
});
