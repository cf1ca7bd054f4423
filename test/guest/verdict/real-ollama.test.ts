// A real Ollama in the guest: its answers are those that it gave on the CPU, and the verdict is what it does, also where a
// model is loaded on the CPU although the start found the GPU: because the host was away, or refused the session.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { Reason } from '../../../agent/contracts/verdict.js';
import { long, whyNoOllama } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { differences, documentOf, uninstall } from '../support/installed.js';
import { until } from '../support/process.js';
import {
  answering,
  chat,
  createModel,
  embedding,
  type Generated,
  generate,
  makeModel,
  ollamaGuest,
  type ToyModel,
  unload,
  verdictNow,
  whileLoading,
} from '../support/real-ollama.js';
import { assertVerdict, evidence, installedGpu, tell } from '../support/scenario.js';
import { generous, settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoOllama();
const models: readonly ToyModel[] = [
  { name: 'one', words: ['one', 'two', 'three', 'four', 'five'] },
  { name: 'two', words: ['two', 'one', 'four', 'three', 'six'] },
  { name: 'three', words: ['six', 'two', 'one', 'four', 'three'] },
  { name: 'reads' },
  { name: 'halves', type: 'f16' },
  { name: 'embeds', embeds: true },
  ...(long
    ? ([
        { name: 'bytes', type: 'q8_0' },
        { name: 'k', type: 'q4_k' },
      ] as const)
    : []),
];
const letters = 'e t a o i n s h r d l u c m w f g y p b v k';
/** 4 tokens with the one that begins a text, and 26; 202 of them. */
const short = 'e t a';
const medium = `${letters} ${short}`;
const far = `${Array(9).fill(letters).join(' ')} ${short}`;
/** Of 4 and 12 tokens, then of 3: with an odd number, ggml turns to cuBLAS. */
const texts = [short, 'e t a o i n s h r d l'] as const;
const odd = 'e t';

test('a real Ollama: the verdict is what it does', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  for (const model of models) makeModel(model, directory);
  const guest = await ollamaGuest(t, directory);
  for (const { name } of models) await createModel(guest, name);
  const learnt = async (name: string): Promise<void> => {
    const words = models.find((one) => one.name === name)?.words ?? [];
    const { status, text } = await generate(guest, name, 'one two');
    assert.equal(status, 200, name);
    assert.equal(text?.trim(), words.join(' '), name);
  };
  const readers = ['reads', ...(long ? ['bytes', 'k'] : [])];
  /** Everything that is asked of it, by name. Quantised weights alone: f16 has a case of its own. */
  const answers = async (): Promise<Readonly<Record<string, unknown>>> => {
    const all: Record<string, unknown> = {};
    for (const name of readers) {
      all[`${name}, a short prompt`] = await generate(guest, name, medium);
      all[`${name}, a long prompt`] = await generate(guest, name, far);
      all[`${name}, a conversation`] = await chat(guest, name, medium);
    }
    return all;
  };
  const vectors = (): Promise<readonly (readonly number[] | null)[]> =>
    Promise.all(texts.map((text) => embedding(guest, 'embeds', text)));

  await guest.must('ldconfig', '-X');
  const before = await guest.listing();
  const onCpu = await answers();
  const half = await generate(guest, 'halves', medium);
  const vectorsOnCpu = await vectors();
  const same = async (): Promise<void> => assert.deepEqual(await answers(), onCpu);

  await t.test('on the CPU it goes on with what it has read', () => {
    assert.deepEqual(onCpu['reads, a long prompt'], { status: 200, text: ' o i n s h r d l' });
  });

  await t.test('install gives GPU; every answer is the CPU’s, and what was loaded is named', async () => {
    await installedGpu(guest);
    await verdictNow(guest, { mode: 'gpu' });
    await same();
    await learnt('one');
    const verdict = await verdictNow(guest, { mode: 'gpu' });
    assert.match(evidence(verdict, 'loaded').join(), /one:latest: (\S+ \S+) of \1 on the GPU/);
    assert.match(
      evidence(verdict, 'sessions').join(),
      /^llama-server \(process \d+\) .* [1-9]\d* kernels launched/,
    );
  });

  await t.test('vectors of texts are the CPU’s', async () => {
    for (const [i, vector] of (await vectors()).entries()) {
      const cosine = vectorsOnCpu[i]?.reduce((sum, value, k) => sum + value * (vector?.[k] ?? 0), 0) ?? 0;
      // Quantised, both round what they compute with to 8 bits, and not alike.
      assert.ok(cosine > 0.999 && cosine < 1.001, `${texts[i]}: ${cosine}`);
    }
    await verdictNow(guest, { mode: 'gpu' });
  });

  await t.test('several models and requests at once', async () => {
    for (const name of ['embeds', 'reads']) await unload(guest, name);
    const names = ['one', 'two', 'three'];
    await Promise.all([...names, ...names, 'one'].map(learnt));
    const verdict = await verdictNow(guest, { mode: 'gpu' });
    assert.equal(evidence(verdict, 'loaded').length, 3);
    for (const name of names) await unload(guest, name);
  });

  await t.test(
    'what needs cuBLAS fails, the doctor names the kernel, and 16 tokens at a time need none',
    async () => {
      assert.equal(half.status, 200);
      assert.equal((await generate(guest, 'halves', medium)).status, 500);
      // Its process has ended over it: nothing is on the CPU, though it is listed.
      await verdictNow(guest, { mode: 'gpu' });
      const kernel = async (): Promise<string> => {
        const doctor = await tell(guest, 'doctor');
        const found = doctor.document.checks.find(({ id }) => id === 'refused-kernels')?.finding;
        assert.ok(found?.kind === 'warning', doctor.stdout);
        return found.evidence.join();
      };
      assert.match(await kernel(), /for llama-server: _ZN7cutlass\S*tensorop\S*gemm/);
      assert.deepEqual(await generate(guest, 'halves', medium, { num_batch: 16 }), half);
      assert.equal(await embedding(guest, 'embeds', odd), null);
      assert.match(await kernel(), /for llama-server: _ZN\S*gemv/);
      for (const name of ['halves', 'embeds']) await unload(guest, name);
    },
  );

  await t.test(
    'the host is frozen under a loaded model: said so, and the same answers when it goes on',
    async () => {
      await learnt('one');
      await guest.hosts.freeze();
      await verdictNow(guest, { mode: 'degraded', reason: 'host-slow' });
      await guest.hosts.thaw();
      await learnt('one');
      await verdictNow(guest, { mode: 'gpu' });
    },
  );

  await t.test('a freeze of the host while it answers costs time, and nothing else', async () => {
    const answer = generate(guest, 'reads', far);
    await guest.hosts.freeze();
    await setTimeout(1_000);
    await guest.hosts.thaw();
    assert.deepEqual(await answer, onCpu['reads, a long prompt']);
    await unload(guest, 'reads');
  });

  const { hosts } = guest;
  /** Ollama takes the CPU without a word where the GPU goes away while it loads; or the load fails. */
  const loadedElsewhere = async ({ status, text }: Generated): Promise<void> => {
    assert.ok(status === 200 || status === 500, `${status}`);
    if (status === 200)
      assert.equal(text?.trim(), models.find(({ name }) => name === 'two')?.words?.join(' '));
    else await learnt('two');
    const verdict = await verdictNow(guest, {
      mode: status === 200 ? 'cpu' : 'gpu',
      ...(status === 200 ? { reason: 'model-on-cpu' } : {}),
    });
    const doctor = await tell(guest, 'doctor');
    assert.equal(doctor.document.first, status === 200 ? 'loaded-models' : null, doctor.stdout);
    if (status === 200)
      assert.match(verdict.summary, /two:latest: loaded, and the host has no session of its/);
    await unload(guest, 'two');
    await learnt('two');
    await verdictNow(guest, { mode: 'gpu' });
    await unload(guest, 'two');
  };
  await t.test('a model that is unloaded is not judged', async () => {
    await unload(guest, 'one');
    await verdictNow(guest, { mode: 'gpu' });
  });
  /** Whatever the load has come to, and however it is said: it is not on the GPU now, and the host is why. */
  const hostIsWhy = async (reason: Reason, back: () => Promise<void>): Promise<void> => {
    const verified = await tell(guest, 'verify');
    const doctor = await tell(guest, 'doctor');
    await back();
    const { mode } = verified.document.verdict ?? {};
    await assertVerdict(guest, verified, { mode: mode === 'degraded' ? mode : 'cpu', reason });
    assert.equal(doctor.document.first, 'host', doctor.stdout);
  };
  for (const moment of ['looks', 'loads'] as const) {
    await t.test(
      `the host is killed while a model is loaded (${moment}): said so, and how it ends`,
      async () => {
        const got = await whileLoading(guest, 'two', moment, () => hosts.stop('SIGKILL'));
        await hostIsWhy('host-unreachable', () => hosts.start());
        await loadedElsewhere(got);
      },
    );
  }

  for (const moment of ['looks', 'loads'] as const) {
    await t.test(
      `the host is frozen while a model is loaded (${moment})`,
      { skip: !long && 'takes a minute: --long' },
      async () => {
        const got = await whileLoading(guest, 'two', moment, () => hosts.freeze());
        await hostIsWhy('host-slow', () => hosts.thaw());
        await loadedElsewhere(got);
      },
    );
  }

  await t.test(
    'the host is killed under a loaded model and comes back: on the CPU, and said so',
    async () => {
      await learnt('one');
      await guest.hosts.stop('SIGKILL');
      assert.equal((await generate(guest, 'one', 'one two')).status, 500);
      await learnt('one');
      await guest.hosts.start();
      await learnt('one');
      const verdict = await verdictNow(guest, { mode: 'cpu', reason: 'model-on-cpu' });
      assert.match(verdict.summary, /one:latest: loaded, and the host has no session of its processes/);
      const explained = await guest.run(
        'bash',
        '-c',
        'journalctl -q -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID ollama) | vgpu-agent explain-log --json -',
      );
      assert.match(explained.stdout, /"mode": "degraded"[\s\S]*"reason": "model-on-cpu"/);
      const doctor = await tell(guest, 'doctor');
      assert.equal(doctor.document.first, 'loaded-models');
    },
  );

  await t.test('unloaded and loaded again it is on the GPU, and the verdict with it', async () => {
    await unload(guest, 'one');
    await verdictNow(guest, { mode: 'degraded', reason: 'model-on-cpu' });
    await learnt('one');
    await verdictNow(guest, { mode: 'gpu' });
  });

  await t.test(
    'the host is killed while it answers: that request fails, the next is on the GPU',
    async () => {
      await learnt('one');
      assert.deepEqual(await generate(guest, 'reads', far), onCpu['reads, a long prompt']);
      const answer = generate(guest, 'reads', medium, { num_predict: 180 });
      await setTimeout(700);
      await guest.hosts.stop('SIGKILL');
      assert.equal((await answer).status, 500, 'it was under way');
      await guest.hosts.start();
      await unload(guest, 'one');
      assert.deepEqual(await generate(guest, 'reads', far), onCpu['reads, a long prompt']);
      await verdictNow(guest, { mode: 'gpu' });
      await unload(guest, 'reads');
    },
  );

  const hostWith = async (...lines: readonly string[]): Promise<void> => {
    const config = join(directory, 'hostd.conf');
    await writeFile(config, `allow unix uid=0\n${lines.join('\n')}\n`);
    await guest.hosts.start({ args: ['--config', config] });
    await guest.must('systemctl', 'restart', 'ollama');
    await answering(guest);
  };

  await t.test('the third model gets no session: degraded, with the reason of the host', async () => {
    await hostWith('allow unix sessions=2');
    for (const name of ['one', 'two']) await learnt(name);
    const full = await verdictNow(guest, { mode: 'gpu' });
    assert.equal(evidence(full, 'loaded').length, 2, 'a host that is full serves those that it has');
    await learnt('three');
    const verdict = await verdictNow(guest, { mode: 'degraded', reason: 'host-refused' });
    assert.match(verdict.summary, /it has as many sessions as it allows/);
    const doctor = await tell(guest, 'doctor');
    const first = doctor.document.checks.find(({ id }) => id === doctor.document.first)?.finding;
    assert.ok(first?.kind === 'broken');
    assert.match(first.cause, /as many sessions as it may/);
    assert.match(first.remedy.text, /sessions=/);
  });

  await t.test(
    'a limit of device memory: what fits is on the GPU, and the doctor names the limit',
    async () => {
      // llama.cpp leaves 1 GiB free. Of this model all three layers take 3 MiB and a little, and none of them 2.
      const limited = async (memory: string): Promise<void> => {
        await hostWith(`allow unix memory=${memory}`);
        await learnt('one');
      };
      const cause = async (): Promise<string> => {
        const { document } = await tell(guest, 'doctor');
        const found = document.checks.find(({ id }) => id === 'device-memory')?.finding;
        assert.equal(document.first, 'device-memory');
        assert.ok(found?.kind === 'broken', JSON.stringify(found));
        assert.match(found.remedy.text, /raise memory= in hostd\.conf of the host \(line 2,/);
        return found.evidence.join('\n');
      };
      await limited('1027M');
      const partly = await verdictNow(guest, { mode: 'degraded', reason: 'layers-not-offloaded' });
      assert.match(
        partly.summary,
        /not all layers of the model are on it \(one:latest: \S+ MiB of \S+ MiB on the GPU\)/,
      );
      assert.equal(partly.next, 'sudo vgpu-agent doctor --profile ollama');
      assert.match(evidence(partly, 'sessions').join(), /[1-9]\d* kernels launched/);
      assert.match(
        await cause(),
        /cannot meet free memory target of 1024 MiB[\s\S]* may hold 1\.0 GiB of device memory together \(memory= in line 2 of hostd\.conf/,
      );
      if (long) {
        await limited('64M');
        await verdictNow(guest, { mode: 'cpu', reason: 'model-on-cpu' });
        assert.match(await cause(), / may hold 64\.0 MiB of device memory together/);
        await limited('2G');
        await verdictNow(guest, { mode: 'gpu' });
      }
      await hostWith('allow unix memory=4M');
      assert.equal((await generate(guest, 'one', 'one two', { num_gpu: 99 })).status, 500, 'out of memory');
      await verdictNow(guest, { mode: 'gpu' });
      const { document } = await tell(guest, 'doctor');
      const told = document.checks.find(({ id }) => id === 'device-memory')?.finding;
      assert.ok(told?.kind === 'warning', JSON.stringify(told));
      assert.match(
        told.evidence.join(),
        /refused llama-server .* may hold 4\.0 MiB of device memory together/,
      );
    },
  );

  await t.test(
    'with the service it comes back to the GPU by itself, and is on it after a reboot',
    async () => {
      /** The service sees to it: no model is unloaded by hand. */
      const onGpuAgain = async (name: string): Promise<void> => {
        await until(`${name} is on the GPU again`, 120_000, async () => {
          // No answer: the service restarts it at this moment.
          if ((await generate(guest, name, 'one two')).status !== 200) return undefined;
          const { document } = await tell(guest, 'verify');
          return document.verdict?.mode === 'gpu' ? true : undefined;
        });
        await settledOnGpu(guest);
        await learnt(name);
        await verdictNow(guest, { mode: 'gpu' });
      };
      await hostWith('allow unix sessions=8');
      await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
      documentOf(await guest.agent('install', '--service', '--yes', '--json'));
      await settledOnGpu(guest);
      await learnt('one');
      await guest.hosts.stop('SIGKILL');
      assert.equal((await generate(guest, 'one', 'one two')).status, 500);
      await guest.hosts.start();
      await settledOnGpu(guest);
      await learnt('one');
      await verdictNow(guest, { mode: 'gpu' });
      await whileLoading(guest, 'two', 'looks', () => hosts.stop('SIGKILL'));
      await hosts.start();
      await onGpuAgain('two');
      await guest.reboot();
      await answering(guest);
      await settledOnGpu(guest);
      await same();
      await verdictNow(guest, { mode: 'gpu' });
    },
  );

  await t.test('uninstall leaves it answering on the CPU, and nothing of vgpu-agent', async () => {
    await uninstall(guest);
    await guest.must('rm', '-rf', '/etc/vgpu-agent');
    await answering(guest);
    await same();
    assert.deepEqual(await differences(before, await guest.listing()), []);
  });
});
