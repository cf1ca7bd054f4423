// Debian's whisper-server, unmodified, in a guest of Debian sid, with its own profile. Its matrix products need cuBLAS, so
// the simulated GPU skips its kernels: it starts, answers and stops, and its transcripts mean nothing.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeTone, makeWhisper } from '../../shim/support/make-whisper.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { differences, uninstall } from '../support/installed.js';
import { until } from '../support/process.js';
import { testRoot, whyNoRoot } from '../support/roots.js';
import { assertVerdict, evidence, tell } from '../support/scenario.js';

const root = 'whisper-sid';
const skip = whyNoGuest() || whyNoHostd() || whyNoRoot(root);
const unit = 'whisper-server.service';
const profile = ['--profile', 'whisper-server'] as const;

test("Debian's whisper-server finds the GPU, answers and stops", { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755); // the service runs as another user
  writeFileSync(join(directory, 'toy.bin'), makeWhisper());
  writeFileSync(join(directory, 'tone.wav'), makeTone());
  const guest = await Guest.start({ root: testRoot(root), readOnlyBinds: [`${directory}:/opt/models`] }, t);
  await guest.hosts.start({ args: ['--software-kernels', 'skip'] });
  await guest.write(
    `/etc/systemd/system/${unit}`,
    '[Service]\nDynamicUser=yes\nWorkingDirectory=/tmp\n' +
      'ExecStart=/usr/bin/whisper-server --model /opt/models/toy.bin --no-timestamps --no-fallback --threads 1\n' +
      '[Install]\nWantedBy=multi-user.target\n',
  );
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'enable', '--now', '--quiet', unit);
  await guest.must('ldconfig', '-X');
  const before = await guest.listing();

  const answering = () =>
    until('whisper-server answers', 60_000, async () =>
      (await guest.run('curl', '-fsS', '-m', '5', 'http://127.0.0.1:8080/')).code === 0 ? true : undefined,
    );
  const said = /^\{"text":"( [a-zA-Z]{3})+\\n"\}$/;
  const transcribe = async (): Promise<string> => {
    const form = ['-F', 'file=@/opt/models/tone.wav', '-F', 'response_format=json'];
    const ask = ['curl', '-fsS', '-m', '120', 'http://127.0.0.1:8080/inference'] as const;
    const { stdout, stderr } = await guest.run(...ask, ...form);
    return stdout + stderr;
  };

  await t.test('on the CPU it answers with words of its vocabulary', async () => {
    await answering();
    assert.match(await transcribe(), said);
  });

  await t.test(
    'installed it finds the GPU, transcribes there, and the verdict waits for a kernel that runs',
    async () => {
      await tell(guest, 'install', '--yes', ...profile);
      await answering();
      assert.match(await transcribe(), said);
      const verified = await tell(guest, 'verify', ...profile);
      const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-work-yet' });
      assert.equal(verdict.unit, unit);
      assert.match(
        evidence(verdict, 'sessions').join(),
        /^whisper-server \(process \d+\) .* [1-9]\d*\.\d MiB of device memory, 0 kernels launched$/,
      );
      assert.match(evidence(verdict, 'readiness').join(), /^it answers requests, /);
    },
  );

  await t.test('uninstall leaves it on the CPU, and nothing of vgpu-agent', async () => {
    await uninstall(guest, ...profile);
    await answering();
    assert.match(await transcribe(), said);
    await guest.must('rm', '-rf', '/etc/vgpu-agent');
    assert.deepEqual(differences(before, await guest.listing()), []);
    await guest.must('systemctl', 'stop', unit);
    assert.equal(await guest.property(unit, 'Result'), 'success');
  });
});
