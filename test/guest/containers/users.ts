// podman of a user who is not root, in a guest that has one (`person`, with a root filesystem in its home): a container, the
// user's own quadlet, and a unit of the system with `User=`.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Guest } from '../support/guest.js';
import { at, documentOf, uninstall } from '../support/installed.js';
import { assertVerdict, errorOf, evidence, tell } from '../support/scenario.js';

const person = { user: 'person', env: { XDG_RUNTIME_DIR: '/run/user/1000', HOME: '/home/person' } };
const rootfs = '/home/person/root';

/** A user's manager without PAM, which the root has not. */
const userManager = `
chown -R person: /home/person/.config
mkdir -p /etc/systemd/system/user@1000.service.d
printf '[Service]\\nPAMName=\\nEnvironment=XDG_RUNTIME_DIR=/run/user/1000\\n' \
  >/etc/systemd/system/user@1000.service.d/50-test.conf
systemctl daemon-reload
systemctl start user@1000
rm -r /etc/systemd/system/user@1000.service.d
`;

/** vgpu-probe, at the path that it has in a container too. */
export async function probeOf(guest: Guest): Promise<string> {
  return `${(await guest.must('readlink', '-f', '/opt/vgpu/current')).trim()}/vgpu-probe`;
}

export async function podmanOfUser(t: TestContext, guest: Guest): Promise<void> {
  await t.test("a user's container that asks for the device computes", async () => {
    // A /proc of its own is what a user namespace in a guest in namespaces may not mount.
    const options = ['--cgroup-manager=cgroupfs', 'run', '--rm', '--network=host', '--pid=host'];
    const rootless = await guest.runWith(
      person,
      'sh',
      '-c',
      `cd; exec podman ${options.join(' ')} --device vgpu.org/gpu=all --rootfs /home/person/root ${await probeOf(guest)} --json --compute`,
    );
    assert.equal(at(documentOf(rootless), 'compute', 'ok'), true, rootless.stdout);
  });

  await t.test(
    'a system unit with User=: the probe and the verdict are in the container of that user',
    async () => {
      // Its first podman makes the process that holds the user namespace, in the unit, and each start makes it again.
      const run = `--rm --replace --name theirs --pid=host --network=host --stop-timeout=1 --device vgpu.org/gpu=all`;
      await guest.write(
        '/etc/systemd/system/theirs.service',
        `[Service]
User=person
Environment=XDG_RUNTIME_DIR=/run/user/1000
ExecStart=/usr/bin/podman --cgroup-manager=cgroupfs run ${run} --rootfs ${rootfs} /usr/bin/sleep infinity
`,
      );
      await guest.must('systemctl', 'daemon-reload');
      await guest.must('systemctl', 'start', 'theirs');
      await tell(guest, 'install', '--yes', '--unit', 'theirs', '--timeout', '3');
      const verified = await tell(guest, 'verify', '--unit', 'theirs', '--compute', '--timeout', '3');
      const verdict = await assertVerdict(guest, verified, { mode: 'undetermined', reason: 'no-session' });
      assert.match(evidence(verdict, 'compute').join(), /each the same as on the CPU/);
      assert.deepEqual(
        evidence(verdict, 'maps'),
        ['its child sleep has no libcuda loaded'],
        'nothing of podman',
      );
      await uninstall(guest, '--unit', 'theirs');
      await guest.must('systemctl', 'stop', 'theirs');
      await guest.must('rm', '/etc/systemd/system/theirs.service');
      await guest.must('systemctl', 'daemon-reload');
    },
  );

  await t.test("a user's quadlet is refused, and computes when it asks for the device", async () => {
    const file = '/home/person/.config/containers/systemd/mine.container';
    await guest.write(
      file,
      `[Container]
Rootfs=/home/person/root
Exec=/usr/bin/sleep infinity
PodmanArgs=--pid=host --network=host --stop-timeout=1
GlobalArgs=--cgroup-manager=cgroupfs
AddDevice=vgpu.org/gpu=all
[Quadlet]
DefaultDependencies=false
`,
    );
    const refused = errorOf(await guest.agent('install', '--json', '--yes', '--unit', 'mine'));
    assert.match(refused.message, /^there is no mine\.service on this machine$/);
    await guest.write(
      '/home/person/.config/systemd/user/ask.service',
      `[Service]
Type=oneshot
ExecStart=/usr/bin/podman --cgroup-manager=cgroupfs exec systemd-mine ${await probeOf(guest)} --json --compute
StandardOutput=file:/home/person/answer
`,
    );
    await guest.must('bash', '-c', userManager);
    const asked = await guest.runWith(
      person,
      'sh',
      '-c',
      // The first podman of a user makes a process that holds the user namespace. Made by the unit it would end with
      // the unit, since there is no session bus here to move it by, and podman would be of no unit when it says READY=1.
      `cd; podman --cgroup-manager=cgroupfs unshare true
         systemctl --user daemon-reload
         systemctl --user start mine || journalctl --user -u mine -n 20 >&2
         systemctl --user start ask; cat answer`,
    );
    assert.equal(at(documentOf(asked), 'compute', 'ok'), true, asked.stdout + asked.stderr);
    await guest.must('systemctl', 'stop', 'user@1000');
  });
}
