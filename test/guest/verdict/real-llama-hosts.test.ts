// Two hosts are killed in turn at random moments under Debian's llama-server: idle, with a request, during a start. Each time
// the service moves it to the host that lives, the verdict names that host's device, and the tokens are the CPU's.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { makeGguf } from '../../shim/support/make-gguf.js';
import { long } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { documentOf } from '../support/installed.js';
import { answering, complete, llamaGuest, unit, whyNoLlama } from '../support/real-llama.js';
import { tell } from '../support/scenario.js';
import { generous, said } from '../support/service.js';
import { twoHosts, untilUsed } from '../support/two-hosts.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoLlama();
const profile = ['--profile', 'llama-server'] as const;
const config = {
  ...generous,
  hosts: { leaveAfterSeconds: 1, returnAfterSeconds: 1 },
};
const kills = long ? 20 : 4;
const prompt = Array.from({ length: 200 }, (_, at) => 20 + (at % 67));

test(`${kills} kills of two hosts under Debian's llama-server`, { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755); // the service has a user of its own
  const model = makeGguf({ type: 'q4_0', seed: 20_260_101, sentence: ['one', 'two', 'three'] });
  writeFileSync(join(directory, 'toy.gguf'), model);
  const guest = await llamaGuest(t, directory, 'toy');
  let [used, other] = twoHosts(guest);
  t.after(async () => {
    for (const { hosts } of [used, other]) await hosts.stop();
  });
  const { tokens: onCpu } = await complete(guest, prompt);
  for (const { hosts, profile: device } of [used, other]) await hosts.start({ profile: device });
  await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(config));
  const both = ['--host', used.address, '--host', other.address];
  documentOf(await guest.agent('install', '--service', '--yes', '--json', ...profile, ...both));
  await untilUsed(guest, used);

  for (let kill = 1; kill <= kills; kill += 1) {
    const during = (['nothing', 'a request', 'a start'] as const)[kill % 3];
    const wait = Math.random() * 1_500;
    t.diagnostic(`kill ${kill} of ${used.address}, ${Math.round(wait)} ms after the begin of ${during}`);
    const request = during === 'a request' ? complete(guest, prompt) : null;
    if (during === 'a start') await guest.must('systemctl', 'restart', '--no-block', unit);
    await new Promise((resolve) => setTimeout(resolve, wait));
    await used.hosts.stop('SIGKILL');
    // The request was answered before the kill, or it fails; it has no wrong tokens.
    const answer = await request;
    if (answer !== null && answer.curl === 0) assert.deepEqual(answer.tokens, onCpu);
    await untilUsed(guest, other);
    await answering(guest);
    assert.deepEqual((await complete(guest, prompt)).tokens, onCpu);
    const { document } = await tell(guest, 'verify', ...profile);
    assert.equal(document.verdict?.mode, 'gpu', await said(guest));
    assert.ok(document.verdict?.devices[0]?.name.includes(other.device), document.verdict?.summary);
    await used.hosts.start({ profile: used.profile });
    [used, other] = [other, used];
  }
});
