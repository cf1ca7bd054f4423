// Debian's llama-server, unmodified, in a guest of Debian sid, as its package installs it. Its log does not name the GPU,
// so its verdict comes from the host's sessions. Its tokens are those that it gave on the CPU.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeGguf } from '../../shim/support/make-gguf.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { differences, documentOf, uninstall } from '../support/installed.js';
import { until } from '../support/process.js';
import { answering, complete, llamaGuest, restarted, unit, whyNoLlama } from '../support/real-llama.js';
import { assertVerdict, evidence, tell } from '../support/scenario.js';
import { generous, said } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoLlama();
const words = ['one', 'two', 'three', 'four', 'five'];
const profile = ['--profile', 'llama-server'] as const;
/** Tokens that come back after `period`: the toy model goes on with what it has read. */
const repeating = (count: number, period: number): number[] =>
  Array.from({ length: count }, (_, i) => 20 + (i % period));
const prompts = ['one two', repeating(16, 7), repeating(200, 67)] as const;

test("the verdict agrees with Debian's llama-server, whose tokens are the CPU's", { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755); // the service has a user of its own
  const model = makeGguf({ type: 'q4_0', seed: 20_260_101, sentence: words });
  writeFileSync(join(directory, 'toy.gguf'), model);
  const guest = await llamaGuest(t, directory, 'toy');
  await guest.must('ldconfig', '-X');
  const before = await guest.listing();

  const answers = async (): Promise<readonly (readonly number[])[]> => {
    const all: (readonly number[])[] = [];
    for (const prompt of prompts) all.push((await complete(guest, prompt)).tokens);
    return all;
  };
  const onCpu = await answers();
  const same = async (): Promise<void> => assert.deepEqual(await answers(), onCpu);
  const verify = () => tell(guest, 'verify', ...profile);

  await t.test('on the CPU it goes on with what it has read', () => {
    assert.deepEqual(onCpu[2], repeating(208, 67).slice(200));
  });

  await t.test('install gives GPU on the word of the host alone, and the same tokens', async () => {
    const installed = await tell(guest, 'install', '--yes', ...profile);
    const verdict = await assertVerdict(guest, installed, { mode: 'gpu' });
    assert.equal(verdict.unit, unit);
    assert.deepEqual(evidence(verdict, 'log-line'), [], 'its log says nothing');
    assert.match(
      evidence(verdict, 'sessions').join(),
      /^llama-server \(process \d+\) .* [1-9]\d* kernels? launched$/,
    );
    await same();
  });

  await t.test('the host is killed: degraded at once, on the CPU after its next request', async () => {
    await guest.hosts.stop('SIGKILL');
    await assertVerdict(guest, await verify(), { mode: 'degraded', reason: 'host-unreachable' });
    assert.notEqual((await complete(guest, 'one two')).curl, 0, 'ggml ends a process whose GPU is lost');
    // systemd starts it again, without a host.
    await answering(guest);
    await same();
    await assertVerdict(guest, await verify(), { mode: 'cpu', reason: 'host-unreachable' });
    assert.equal((await tell(guest, 'doctor', ...profile)).document.first, 'host');
  });

  await t.test('the host is back: still on the CPU until it is started again', async () => {
    await guest.hosts.start();
    await assertVerdict(guest, await verify(), { mode: 'cpu', reason: 'probe-disagrees' });
    await restarted(guest);
    await assertVerdict(guest, await verify(), { mode: 'gpu' });
    await same();
  });

  await t.test('the host is frozen: degraded, and on the GPU again when it goes on', async () => {
    await guest.hosts.freeze();
    const told = await verify();
    await assertVerdict(guest, told, { mode: 'degraded', reason: 'host-slow' });
    await guest.hosts.thaw();
    await answering(guest);
    await assertVerdict(guest, await verify(), { mode: 'gpu' });
    await same();
  });

  await t.test(
    'with the service it comes back to the GPU by itself, and does so after a reboot',
    async () => {
      await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
      documentOf(await guest.agent('install', '--service', '--yes', '--json', ...profile));
      const start = await guest.invocationId(unit);
      await guest.hosts.stop('SIGKILL');
      assert.notEqual((await complete(guest, 'one two')).curl, 0);
      await answering(guest);
      await guest.hosts.start();
      const settled = async (when: string): Promise<void> => {
        try {
          await until(when, 60_000, async () => {
            const { document } = await tell(guest, 'status', ...profile);
            const fine = document.service?.state === 'settled' && document.verdict?.mode === 'gpu';
            return fine ? true : undefined;
          });
        } catch (error) {
          throw new Error(`${String(error)}\n${await said(guest)}`);
        }
      };
      await settled('the service has brought it back to the GPU');
      assert.notEqual(await guest.invocationId(unit), start);
      await same();
      await guest.reboot();
      await settled('it is on the GPU after a reboot');
      await same();
    },
  );

  await t.test('uninstall leaves it on the CPU, and nothing of vgpu-agent', async () => {
    await uninstall(guest, ...profile);
    await guest.must('rm', '-rf', '/etc/vgpu-agent');
    await answering(guest);
    await same();
    assert.deepEqual(differences(before, await guest.listing()), []);
  });
});
