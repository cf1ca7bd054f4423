// docs/howto/incus.md, word for word: containers of Incus in a Debian 13 guest, unprivileged and privileged.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { shellBlocks } from '../../pages.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { repository } from '../support/repository.js';
import { testNode, testRoot, whyNoNode, whyNoRoot } from '../support/roots.js';

const skip =
  whyNoGuest() || whyNoHostd() || whyNoRoot('incus-trixie') || whyNoRoot('trixie') || whyNoNode(22);
const page = 'docs/howto/incus.md';
const shim = join(repository, 'build/shim');
const blocks = shellBlocks(page).filter(({ mark }) => mark === 'run: test/guest/clusters/incus.test.ts');

/** Waits until systemd in a container has booted; an unprivileged one may load no kernel modules and is degraded. */
const booted = (name: string): string =>
  `timeout 60 bash -c 'until incus exec ${name} -- systemctl is-system-running --wait | grep -qE "running|degraded"; do sleep 0.2; done'`;

/**
 * An image of Debian 13. Incus mounts /proc and /sys in a container's user namespace, which the kernel permits only where a
 * mount of each is visible that is writable and has no mounts over parts of it: the guest's own are not.
 */
const prepare = `mkdir -p /run/whole/proc /run/whole/sys
mount -t proc proc /run/whole/proc
mount -t sysfs sysfs /run/whole/sys
mount -o remount,rw /run/whole/sys
systemctl start incus
incus admin init --minimal
cd /root
printf 'architecture: x86_64\\ncreation_date: 1700000000\\n' >metadata.yaml
tar cf meta.tar metadata.yaml
tar cf root.tar -C /run/image --exclude './dev/*' .
incus image import meta.tar root.tar --alias debian13
rm root.tar
`;

/** A container that sees the checkout. */
const launch = (name: string, settings: string): string => `incus launch debian13 ${name} ${settings}
incus config device add ${name} checkout disk source=${repository} path=${repository} readonly=true
${booted(name)}
`;
/** vgpu-agent and a service. */
const furnish = `incus file push --quiet /run/node c1/usr/bin/node --mode 0755
incus exec c1 -- ${repository}/scripts/install-agent
incus exec c1 -- systemd-run --unit=worker sleep infinity
`;
const probe = '/opt/vgpu/current/vgpu-probe --compute';

describe('containers of Incus', { skip }, () => {
  let guest: Guest;
  /** Incus reads YAML from a standard input that is no terminal. */
  const bash = (text: string): Promise<string> =>
    guest.must('bash', '-e', '-o', 'pipefail', '-c', `exec </dev/null\nsudo() { "$@"; }\n${text}`);
  const block = (which: number): Promise<string> => bash(blocks[which]?.text ?? 'exit 1');
  before(async () => {
    assert.equal(blocks.length, 2);
    const readOnlyBinds = [`${testRoot('trixie')}:/run/image`, `${testNode(22)}:/run/node`];
    guest = await Guest.start({ root: testRoot('incus-trixie'), readOnlyBinds, size: '4g' });
    await guest.hosts.start();
    await bash(prepare);
  });
  after(() => guest.stop());

  for (const [kind, settings, uid] of [
    ['a privileged container', '--config security.privileged=true', 0],
    ['an unprivileged container', '', 1_000_000],
  ] as const)
    describe(kind, () => {
      before(() => bash(launch('c1', settings) + furnish));
      after(() => bash('incus delete --force c1'));

      test('is installed with the address of the page', async () => {
        assert.match(await block(0), /installed \(\d+ changes\)/);
      });

      test('computes through shared memory, after a restart too', async () => {
        const said = await block(1);
        const told: unknown = JSON.parse(said.slice(said.indexOf('{')));
        assert.equal(at(told, 'compute', 'ok'), true, said);
        assert.equal(at(told, 'host', 'carrier'), 'rings', said);
        assert.equal(at(told, 'host', 'address'), 'unix:/srv/vgpu/hostd.sock');
        const last = [...guest.hosts.log.matchAll(/session \d+: unix, pid \d+, uid (\d+),/g)].at(-1)?.[1];
        assert.equal(last, String(uid), 'the user that the host sees');
      });

      test('finds another host behind the same directory', async () => {
        await guest.hosts.stop('SIGKILL');
        await assert.rejects(bash(`incus exec c1 -- ${probe}`));
        await guest.hosts.start();
        assert.match(await bash(`incus exec c1 -- ${probe}`), /"compute":\{"ok":true/);
      });

      test('loses a device below /run with the first restart, as the page says', async () => {
        await bash('incus config device add c1 below-run disk source=/run/vgpu path=/run/vgpu');
        assert.match(await bash('incus exec c1 -- ls /run/vgpu'), /hostd\.sock/);
        await bash(`incus restart c1 && ${booted('c1')}`);
        await assert.rejects(bash('incus exec c1 -- ls /run/vgpu'), /No such file/);
      });
    });

  test('a rule for the user IDs of a range limits its containers, and refuses one with a range of its own', async () => {
    const rule = /`(allow unix uid=\d+-\d+ memory=8G)`/.exec(
      readFileSync(join(repository, page), 'utf8'),
    )?.[1];
    assert.ok(rule !== undefined, 'the rule of the page');
    await guest.hosts.stop('SIGTERM');
    writeFileSync(`${guest.state}/hostd.conf`, `${rule}\n`);
    await guest.hosts.start({ args: ['--config', `${guest.state}/hostd.conf`] });
    const ask = async (name: string, settings: string): Promise<unknown> => {
      await bash(launch(name, settings));
      await bash(`incus config device add ${name} vgpu disk source=/run/vgpu path=/srv/vgpu`);
      const asks = `env VGPU_HOST=unix:/srv/vgpu/hostd.sock ${shim}/vgpu-probe --library ${shim}/libcuda.so.1`;
      return JSON.parse(await bash(`incus exec ${name} -- ${asks} || true`));
    };
    const limited = await ask('c1', '');
    assert.equal(at(limited, 'devices', 0, 'memory'), 8 * 1024 ** 3, JSON.stringify(limited));
    const refused = await ask('c2', '--config security.idmap.isolated=true');
    assert.equal(at(refused, 'ok'), false, JSON.stringify(refused));
    assert.match(guest.hosts.log, /refused unix, pid \d+, uid 1065536, gid 1065536: no line/);
  });
});
