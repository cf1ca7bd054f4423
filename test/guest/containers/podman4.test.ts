// podman 4.3 as Debian 12 has it: no quadlets, so the units are those that `podman generate systemd` writes.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { whyNoRoot } from '../support/roots.js';
import { assertVerdict, errorOf, evidence, tell } from '../support/scenario.js';
import { containerGuest } from './ollama.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoRoot('podman-bookworm') || whyNoRoot('bookworm');

/** As in a guest it must be: limits are not raised there, and a device filter needs a raised one. */
const prepare = `
mkdir -p /etc/containers /var/lib/containers
mount -t tmpfs tmpfs /var/lib/containers
printf '[containers]\\npids_limit=0\\ndefault_ulimits=["nofile=1024:1024","nproc=1024:1024"]\\n[network]\\nnetwork_backend="netavark"\\n' \
  >/etc/containers/containers.conf
printf '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n' \
  >/etc/containers/storage.conf
`;
const options = '--cgroups=disabled --network=host --stop-timeout=1';
const what = '--rootfs /run/image:O sleep infinity';

describe('podman 4', { skip }, () => {
  test('a unit of podman generate systemd gets the option to add, and is followed', async (t) => {
    const guest = await containerGuest('podman-bookworm', t);
    await guest.must('bash', '-c', prepare);
    const generate = (name: string, device: string, how: string) =>
      guest.must(
        'bash',
        '-c',
        `podman create --replace --name ${name} ${options} ${device} ${what}
podman generate systemd ${how} --name ${name} | sed s/--cgroups=no-conmon/--cgroups=disabled/ >/etc/systemd/system/${name}.service
systemctl daemon-reload
systemctl restart ${name}`,
      );
    const install = (name: string) => tell(guest, 'install', '--yes', '--unit', name, '--timeout', '3');

    await t.test('refuses a quadlet when podman creates no unit for it', async () => {
      await guest.write('/etc/containers/systemd/box.container', '[Container]\nImage=x\n');
      await guest.must('systemctl', 'daemon-reload');
      const refused = errorOf(await guest.agent('install', '--json', '--yes', '--unit', 'box'));
      assert.match(refused.message, /there is no box\.service on this machine/);
    });

    await t.test('the command is told to ask for the device', async () => {
      await generate('fresh', '', '--new');
      const installed = await install('fresh');
      assert.match(installed.stdout, /add --device vgpu\.org\/gpu=all to podman run in \/etc\/systemd/);
    });

    for (const [name, how] of [
      ['fresh', '--new'],
      ['made', ''],
    ] as const) {
      await t.test(`with the device it computes (generate systemd ${how})`, async () => {
        await generate(name, '--device vgpu.org/gpu=all', how);
        await install(name);
        const verified = await tell(guest, 'verify', '--unit', name, '--compute');
        const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-session' });
        assert.match(evidence(verdict, 'compute').join(), /each the same as on the CPU/);
        assert.match(evidence(verdict, 'maps').join('\n'), /^the main process \(sleep\)/);
      });
    }
  });
});
