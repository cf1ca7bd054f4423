// docs/howto/incus.md, word for word: a privileged container of Incus in a Debian 13 guest.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { shellBlocks } from '../../pages.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { repository } from '../support/repository.js';
import { testNode, testRoot, whyNoNode, whyNoRoot } from '../support/roots.js';

const skip =
  whyNoGuest() || whyNoHostd() || whyNoRoot('incus-trixie') || whyNoRoot('trixie') || whyNoNode(22);
const blocks = shellBlocks('docs/howto/incus.md').filter(
  ({ mark }) => mark === 'run: test/guest/clusters/incus.test.ts',
);

/** Waits until systemd in the container has booted. */
const booted =
  "timeout 60 bash -c 'until incus exec c1 -- systemctl is-system-running --wait; do sleep 0.2; done'";

/** A container of Debian 13 with vgpu-agent. */
const launch = `systemctl start incus
incus admin init --minimal
cd /root
printf 'architecture: x86_64\\ncreation_date: 1700000000\\n' >metadata.yaml
tar cf meta.tar metadata.yaml
tar cf root.tar -C /run/image --exclude './dev/*' .
incus image import meta.tar root.tar --alias debian13
rm root.tar
incus launch debian13 c1 --config security.privileged=true
incus config device add c1 checkout disk source=${repository} path=${repository} readonly=true
incus file push /run/node c1/usr/bin/node --mode 0755
${booted}
incus exec c1 -- ${repository}/scripts/install-agent
incus exec c1 -- systemd-run --unit=worker sleep infinity
`;

describe('a container of Incus', { skip }, () => {
  let guest: Guest;
  /** Incus reads YAML from a standard input that is no terminal. */
  const bash = (text: string): Promise<string> =>
    guest.must('bash', '-e', '-o', 'pipefail', '-c', `exec </dev/null\nsudo() { "$@"; }\n${text}`);
  before(async () => {
    const readOnlyBinds = [`${testRoot('trixie')}:/run/image`, `${testNode(22)}:/run/node`];
    guest = await Guest.start({ root: testRoot('incus-trixie'), readOnlyBinds, size: '4g' });
    await guest.hosts.start();
    await bash(launch);
  });
  after(() => guest.stop());

  test('is installed with the address of the page', async () => {
    assert.equal(blocks.length, 2);
    assert.match(await bash(blocks[0]?.text ?? ''), /installed \(\d+ changes\)/);
  });

  test('computes through shared memory, after a restart too', async () => {
    const said = await bash(blocks[1]?.text ?? '');
    const probe: unknown = JSON.parse(said.slice(said.indexOf('{')));
    assert.equal(at(probe, 'compute', 'ok'), true, said);
    assert.equal(at(probe, 'host', 'carrier'), 'rings', said);
    assert.equal(at(probe, 'host', 'address'), 'unix:/srv/vgpu/hostd.sock');
  });

  test('finds another host behind the same directory', async () => {
    await guest.hosts.stop('SIGKILL');
    const probe = 'incus exec c1 -- /opt/vgpu/current/vgpu-probe --compute';
    await assert.rejects(bash(probe));
    await guest.hosts.start();
    assert.match(await bash(probe), /"compute":\{"ok":true/);
  });

  test('loses a device below /run with the first restart, as the page says', async () => {
    await bash('incus config device add c1 below-run disk source=/run/vgpu path=/run/vgpu');
    assert.match(await bash('incus exec c1 -- ls /run/vgpu'), /hostd\.sock/);
    await bash(`incus restart c1 && ${booted}`);
    await assert.rejects(bash('incus exec c1 -- ls /run/vgpu'), /No such file/);
  });
});
