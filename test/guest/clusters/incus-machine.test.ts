// docs/howto/incus.md for virtual machines: Incus on a Debian 13 that is itself a virtual machine with emulated AMD-V, because
// the kernel here may have no vhost-vsock. VGPU_TEST_LONG=1 only.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { shellBlocks } from '../../pages.js';
import { scratchDirectory } from '../../shim/shim_host.js';
import { type DebianMachine, NODE_MAJOR, startDebian } from '../../shim/vm/debian_machine.js';
import { makeInitrd } from '../../shim/vm/initrd.js';
import { NESTED } from '../../shim/vm/inner_machine.js';
import { whyNoMachine } from '../../shim/vm/machine.js';
import { VM } from '../../shim/vm/qemu.js';
import { long } from '../support/consumer.js';
import { whyNoNode, whyNoRoot } from '../support/roots.js';

const page = 'docs/howto/incus.md';
const skip =
  whyNoMachine ||
  whyNoRoot('incus-trixie') ||
  whyNoNode(NODE_MAJOR) ||
  (process.getuid?.() === 0 ? false : 'needs root') ||
  (long ? false : 'a machine in a machine, minutes: VGPU_TEST_LONG=1');
const [block] = shellBlocks(page).filter(
  ({ mark }) => mark === 'run: test/guest/clusters/incus-machine.test.ts',
);

const files = '/srv/vm1';
const commands = [
  '/bin/ptx_guest /ptx 80',
  '/bin/vgpu-probe --library /lib/vgpu/libcuda.so.1',
  'seconds 100000',
];
/** The kernel from a file, because its start needs no firmware; all of it in files that AppArmor lets this machine's qemu open. */
const settings = [
  'limits.memory=256MiB',
  'security.secureboot=false',
  'security.csm=true',
  `raw.apparmor='${files}/** rw,'`,
  `raw.qemu='-kernel ${files}/kernel -initrd ${files}/initrd -append "console=ttyS1 panic=-1 quiet mitigations=off no_timer_check" -serial file:${files}/console'`,
];
/**
 * Reads qemu's files before Incus needs them: this machine's clock runs on while it waits for its disk, and Incus gives qemu
 * five seconds. The disk of the machine of Incus stays empty.
 */
const prepare = `find /usr/bin/qemu-system-x86_64 /usr/libexec /usr/lib/x86_64-linux-gnu /usr/share/qemu /usr/share/seabios \
  -type f ! -name 'libLLVM*' -exec cat {} + >/dev/null
echo 'allow vsock' >/root/hostd.conf
systemd-run --unit=vgpu-hostd /usr/lib/vgpu-agent/build/shim/vgpu-hostd --device software --listen vsock:14833 \
  --control /run/vgpu-control --config /root/hostd.conf
systemctl start incus
incus storage create default dir
incus profile device add default root disk path=/ pool=default
incus init vm1 --empty --vm ${settings.map((one) => `--config ${one}`).join(' ')}
`;

describe('a virtual machine of Incus', { skip }, () => {
  const scratch = scratchDirectory();
  let host: DebianMachine;
  const bash = (text: string): Promise<string> => host.must(`sudo() { "$@"; }\n${text}`);
  const journal = (): Promise<string> => host.must('journalctl -u vgpu-hostd -o cat --no-pager');
  /** Waits until the machine has run its commands. */
  const ran = async (): Promise<string> => {
    const found = `grep -q '^vm: run seconds' ${files}/console`;
    let code = 1;
    // In pieces: on a busy machine a command has a limit.
    for (let turn = 0; code !== 0 && turn < 20; turn += 1)
      ({ code } = await host.run(`for i in $(seq 30); do ! ${found} || exit 0; sleep 1; done; exit 1`));
    const shown = (await host.must(`cat ${files}/console`)).replaceAll('\r', '');
    if (code !== 0)
      assert.fail(`${shown}\n${await host.must('incus info vm1 --show-log')}\n${await journal()}`);
    return shown;
  };

  /** The device's memory as the probe sees it. */
  const memory = (shown: string): number => Number(/"memory":(\d+)/.exec(shown)?.[1]);

  before(async () => {
    assert.ok(block !== undefined);
    const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-')) ?? '';
    host = await startDebian(scratch.path, {
      root: 'incus-trixie',
      memory: 2048,
      disk: 3072,
      // lxcfs, without which incus.service does not start, needs FUSE.
      modules: [...NESTED.modules, 'fuse'],
      files: [
        { name: `${files.slice(1)}/kernel`, content: readFileSync(`${VM}/boot/${kernel}`) },
        { name: `${files.slice(1)}/initrd`, content: makeInitrd({ commands }) },
      ],
    });
    await bash(prepare);
  });
  after(() => {
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined) process.stderr.write(host.console());
    host.stop();
    scratch.remove();
  });

  test('computes over the vsock device that Incus gives it', async () => {
    await bash('incus start vm1');
    const shown = await ran();
    assert.match(shown, /at vsock:2:14833: 1 device\(s\), over the socket/);
    assert.match(shown, /vector_add 0 wrong 0/);
    assert.equal([...shown.matchAll(/^vm: exit 0$/gm)].length, 2, shown);
    assert.ok(memory(shown) > 8 * 1024 ** 3, 'no rule limits it');
  });

  test('is known to the host by the CID that the page shows, and keeps it and the rule for it', async () => {
    const cid = (await bash(block?.text ?? 'exit 1')).trim();
    assert.match(cid, /^\d+$/);
    assert.match(await journal(), new RegExp(`session \\d+: vsock, cid ${cid},`));
    await bash(
      `echo 'allow vsock cid=${cid} memory=8G' >/root/hostd.conf
       /usr/lib/vgpu-agent/build/shim/vgpu-hostd reload --control /run/vgpu-control
       incus stop --force vm1
       rm ${files}/console
       incus start vm1`,
    );
    const shown = await ran();
    assert.match(shown, /vector_add 0 wrong 0/);
    assert.equal(memory(shown), 8 * 1024 ** 3, 'as the rule says');
  });
});
