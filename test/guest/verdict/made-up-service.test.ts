// docs/howto/write-a-profile.md followed word for word: the made-up service of its example, the profile as it stands there.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { uninstall } from '../support/installed.js';
import { repository } from '../support/repository.js';
import { evidence, tell } from '../support/scenario.js';

const profile = ['--profile', 'painter'] as const;
const page = readFileSync(join(repository, 'docs/howto/write-a-profile.md'), 'utf8');

/** The page's only block of that language. */
function block(language: string): string {
  const found = new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(page)?.[1];
  assert.ok(found !== undefined, `docs/howto/write-a-profile.md has no ${language} block`);
  return found;
}

test("the profiles page's example, word for word", { skip: whyNoGuest() || whyNoHostd() }, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  /** The service logs what the page says, and is asked at the address that it names. */
  const paints = async (log: string): Promise<void> => {
    await guest.write('/opt/painter.log', log);
    await guest.must('systemctl', 'restart', 'painter');
  };
  /** A copy of generic.json with the page's members changed. */
  const describes = async (change: (text: string) => string): Promise<void> => {
    const generic: unknown = JSON.parse(readFileSync(join(repository, 'profiles/generic.json'), 'utf8'));
    const changed: unknown = JSON.parse(change(block('json')));
    assert.ok(typeof generic === 'object' && typeof changed === 'object');
    const text = JSON.stringify({ ...generic, ...changed });
    await guest.write('/etc/vgpu-agent/profiles/painter.json', text);
  };
  await guest.write(
    '/etc/systemd/system/painter.service',
    `[Service]
DynamicUser=yes
ExecStart=/bin/sh -c 'cat /opt/painter.log; exec python3 -m http.server --bind 127.0.0.1 --directory /srv 9090'
[Install]
WantedBy=multi-user.target
`,
  );
  await guest.must('systemctl', 'daemon-reload');
  await describes((text) => text);
  await paints(block('log'));

  const explained = await guest.run('vgpu-agent', 'explain-log', ...profile, '/opt/painter.log');
  assert.match(explained.stdout, /^GPU/m, explained.stdout + explained.stderr);
  const installed = await tell(guest, 'install', '--yes', ...profile);
  assert.equal(installed.code, 0, JSON.stringify(installed.document.verdict, null, 1));
  assert.equal(installed.document.verdict?.mode, 'gpu');
  assert.equal(installed.document.verdict?.unit, 'painter.service');
  assert.match(evidence(installed.document.verdict, 'readiness').join(), /it answers requests/);

  await paints(block('log').replace(/device: .* via/, 'device: GPU #0 via'));
  const other = (await tell(guest, 'verify', ...profile)).document.verdict;
  assert.deepEqual([other?.mode, other?.reason], ['degraded', 'probe-disagrees']);
  assert.match(other?.summary ?? '', /it names GPU #0, vgpu-probe finds NVIDIA H100 80GB HBM3 \(simulated\)/);
  await describes((text) => text.replace('"name": ["name"]', '"name": []'));
  assert.equal((await tell(guest, 'verify', ...profile)).document.verdict?.mode, 'gpu');
  await uninstall(guest, ...profile);
});
