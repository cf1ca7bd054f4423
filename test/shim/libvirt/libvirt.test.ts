/** docs/howto/libvirt.md, word for word, with libvirt, QEMU and AppArmor of Debian 13, and a migration to a second libvirtd. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { whyNoNode, whyNoRoot } from '../../guest/support/roots.js';
import { shellBlocks } from '../../pages.js';
import { builtFile, scratchDirectory } from '../shim_host.js';
import { type DebianMachine, NODE_MAJOR, startDebian } from '../vm/debian_machine.js';
import { makeInitrd } from '../vm/initrd.js';
import { NESTED } from '../vm/inner_machine.js';
import { whyNoMachine } from '../vm/machine.js';
import { VM } from '../vm/qemu.js';

const page = 'docs/howto/libvirt.md';
const skip =
  whyNoMachine ||
  whyNoRoot('libvirt-trixie') ||
  whyNoNode(NODE_MAJOR) ||
  (process.getuid?.() === 0 ? false : 'needs root');
/** Longer than the 12 s after which a host asks a silent guest for a sign of life. */
const SUSPENDED_S = 17;
/** The machine computes 25 s after its start on an idle machine. */
const HUNG_MS = 150_000;

const commands = [
  '/bin/ptx_guest /ptx 80',
  'VGPU_VM_MEMORY=none /bin/ptx_guest /ptx 80',
  '& VGPU_RECONNECT=600 /bin/vm_memory works_on',
  '& VGPU_RECONNECT=600 VGPU_VM_MEMORY=none /bin/vm_memory works_on',
  'seconds 100000',
];
const images = '/var/lib/libvirt/images';
const machineXml = `<domain type='kvm'>
  <name>vm3</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>${images}/vm3.kernel</kernel><initrd>${images}/vm3.initrd</initrd>
    <cmdline>console=ttyS0 panic=-1 quiet mitigations=off no_timer_check</cmdline></os>
  <features><acpi/></features><cpu mode='host-passthrough'/>
  <devices><serial type='file'><source path='/var/log/libvirt/vm3.console' append='on'/></serial></devices>
</domain>
`;

/**
 * A second libvirtd with a host name, an ID, files and /dev/shm of its own. Without AppArmor: both are on one kernel, and the
 * first would remove the profile that the second uses.
 */
const second = `#!/bin/bash
set -e
hostname host2
for one in etc:/etc/libvirt lib:/var/lib/libvirt run:/run/libvirt log:/var/log/libvirt cache:/var/cache/libvirt; do
  mount --bind "/srv/second/\${one%%:*}" "\${one#*:}"
done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
exec /usr/sbin/libvirtd --config /etc/libvirt/libvirtd.conf --pid-file /run/libvirt/libvirtd.pid
`;
const startSecond = `cd /srv/second
mkdir -p etc lib run log cache /run/second
cp -a /etc/libvirt/. etc/ && rm -rf etc/qemu/*
cp -a /var/lib/libvirt/. lib/
printf 'host_uuid = "11111111-2222-3333-4444-555555555555"\\nunix_sock_dir = "/run/second"\\nauth_unix_rw = "none"\\n' >etc/libvirtd.conf
printf 'security_driver = "none"\\nstdio_handler = "file"\\n' >etc/qemu.conf
systemd-run --unit=second -p Delegate=yes unshare --mount --uts --propagation private /srv/second/start
`;
const secondUri = "'qemu+unix:///system?socket=/run/second/libvirt-sock'";

describe(`libvirt, by ${page}`, { skip }, () => {
  const scratch = scratchDirectory();
  const blocks = shellBlocks(page).filter(({ mark }) => mark === 'run: test/shim/libvirt/libvirt.test.ts');
  let host: DebianMachine;
  let console = '/var/log/libvirt/vm3.console';
  const sudo = 'sudo() { "$@"; }\n';
  const runBlock = (which: number): Promise<string> => host.must(`${sudo}${blocks[which]?.text ?? 'exit 1'}`);
  /** Waits until a command of the host succeeds. */
  const waitsFor = async (command: string): Promise<void> => {
    const { code } = await host.run(
      `for i in $(seq 240); do ! { ${command}; } || exit 0; sleep 1; done; exit 1`,
    );
    if (code !== 0)
      assert.fail(`${command}\n${await host.must(`tail -c 3000 ${console}; vgpu-hostd status`)}`);
  };
  /**
   * Starts the machine. QEMU emulates KVM here, and once in a few runs the machine's kernel spins without end on a lock, with
   * interrupts off: then it is started again.
   */
  const starts = async (): Promise<void> => {
    for (let left = 2; ; left--) {
      await runBlock(3);
      const until = Date.now() + HUNG_MS;
      while (Date.now() < until) {
        if ((await host.run(`sleep 1; grep -q 'tick 3' ${console}`)).code === 0) return;
      }
      if (left === 0) assert.fail(await host.must(`tail -c 3000 ${console}; vgpu-hostd status`));
      await host.must(`virsh destroy vm3 && truncate -s 0 ${console}`);
    }
  };
  const shown = async (): Promise<string> => (await host.must(`cat ${console}`)).replaceAll('\r', '');
  const journal = (): Promise<string> => host.must('journalctl -u vgpu-hostd -o cat --no-pager');
  const ticks = async (): Promise<number> => [...(await shown()).matchAll(/^tick \d+$/gm)].length;
  /** Waits until two sessions have made further calls. */
  const bothGoOn = async (): Promise<void> => {
    const calls = "vgpu-hostd status | awk '/vm_memory/ && !/waiting/ { print $1, $11 }' | sort";
    const before = (await host.must(calls)).trim();
    await waitsFor(`[ $(join <(echo '${before}') <(${calls}) | awk '$3 > $2 + 10' | wc -l) = 2 ]`);
  };
  const lost = async (): Promise<number> => [...(await shown()).matchAll(/^lost$/gm)].length;
  /** The number of the last session that began in this way. */
  const sessionOf = (text: string, way: string): string =>
    [...text.matchAll(new RegExp(`session (\\d+) with .*, ${way}`, 'g'))].at(-1)?.[1] ?? 'none';

  before(async () => {
    assert.equal(blocks.length, 5);
    const kernel = readdirSync(`${VM}/boot`).find((name) => name.startsWith('vmlinuz-')) ?? '';
    host = await startDebian(scratch.path, {
      root: 'libvirt-trixie',
      memory: 2048,
      disk: 3072,
      modules: NESTED.modules,
      files: [
        { name: `${images}/vm3.kernel`, content: readFileSync(`${VM}/boot/${kernel}`) },
        {
          name: `${images}/vm3.initrd`,
          content: makeInitrd({ commands, programs: [builtFile('programs/vm_memory')] }),
        },
        { name: 'root/vm3.xml', content: Buffer.from(machineXml) },
        { name: 'srv/second/start', content: Buffer.from(second), executable: true },
      ],
    });
    await host.must('vgpu-agent host install --device software --listen vsock:14833 --yes');
    await host.must('virsh define /root/vm3.xml');
  });
  after(() => {
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined) process.stderr.write(host.console());
    host.stop();
    scratch.remove();
  });

  it('virt-xml adds what the page shows as XML', async () => {
    for (const which of [0, 1, 2]) await runBlock(which);
    const defined = (await host.must('virsh dumpxml vm3')).replaceAll(/\s+/g, ' ');
    const pieces = [...readFileSync(page, 'utf8').matchAll(/^```xml\n([\s\S]*?)\n<\/\w+>\n```/gm)];
    assert.equal(pieces.length, 2);
    for (const [, xml = ''] of pieces) assert.ok(defined.includes(xml.replaceAll(/\s+/g, ' ')), defined);
  });

  it('a CUDA program computes over vsock, and through shared memory', async () => {
    await starts();
    const text = await shown();
    assert.equal([...text.matchAll(/vector_add 0 wrong 0/g)].length, 2, text);
    assert.equal([...text.matchAll(/vm: exit 0/g)].length, 2, text);
    const ways = [...text.matchAll(/at vsock:2:14833: 1 device\(s\), (.*)/g)].map(([, way]) => way);
    assert.deepEqual(ways.slice(0, 2), ["through the VM's shared memory", 'over the socket']);
    assert.match(await host.must('vgpu-hostd status'), /(?: vsock:3 .*vm_memory[\s\S]*){2}/);
    assert.match(await journal(), /libcuda vm_memory .* begins, in its VM's shared memory/);
    assert.match(await host.must('aa-status'), /libvirt-[0-9a-f-]{36}/, 'the machine is confined');
  });

  it('sessions continue after a pause', async () => {
    await host.must('virsh suspend vm3');
    const paused = await ticks();
    await host.must(`sleep ${SUSPENDED_S}`);
    assert.ok((await ticks()) <= paused + 1, 'it was paused');
    await host.must('virsh resume vm3');
    await bothGoOn();
    assert.equal(await lost(), 0);
  });

  it('after managed save and start, sessions over vsock continue, and those in shared memory end', async () => {
    const text = await shown();
    const [inMemory, overVsock] = [
      sessionOf(text, "through the VM's shared memory"),
      sessionOf(text, 'over the socket'),
    ];
    await runBlock(4);
    await waitsFor(`grep -q '^back' ${console}`);
    await bothGoOn();
    assert.match(await shown(), new RegExp(`session ${overVsock} continues after \\d+ ms`));
    assert.match(await shown(), new RegExp(`session ${inMemory} is lost`));
    assert.equal(await lost(), 1, await shown());
    assert.match(
      await journal(),
      new RegExp(`session ${inMemory}: its rings were changed: the VM was restored`),
    );
  });

  it('after a live migration the machine goes on, its sessions end, and new ones begin', async () => {
    await host.must(startSecond);
    await waitsFor(`virsh -c ${secondUri} hostname`);
    const before = await lost();
    // The kernel, which both have, gives a CID to one machine.
    await host.must("echo 'allow vsock cid=4' >>/etc/vgpu/hostd.conf && vgpu-hostd reload");
    await host.must(
      `virsh dumpxml --migratable vm3 |
         sed "s/cid auto='no' address='3'/cid auto='no' address='4'/; /<seclabel.*apparmor/d" >/root/moved.xml
       virsh migrate --live --xml /root/moved.xml vm3 ${secondUri} --migrateuri tcp://127.0.0.1:49152`,
    );
    assert.match(await host.must('virsh domstate vm3'), /shut off/);
    assert.match(await host.must(`virsh -c ${secondUri} domstate vm3`), /running/);
    const left = await shown();
    console = '/srv/second/log/vm3.console';
    await waitsFor(`[ $(grep -c '^back' ${console}) = 2 ]`);
    await bothGoOn();
    assert.equal(before + (await lost()), 1 + 2, `${left}\n${await shown()}`);
    const said = await journal();
    assert.equal(
      [...said.matchAll(/refused vsock, cid 4, .*: this daemon has no session with/g)].length,
      2,
      said,
    );
    assert.match(await host.must('vgpu-hostd status'), /(?: vsock:4 .*vm_memory[\s\S]*){2}/);
  });

  it('sessions of a destroyed machine wait for it', async () => {
    await host.must(`virsh -c ${secondUri} destroy vm3`);
    await waitsFor("vgpu-hostd status | grep -q 'vsock:4 .*waiting for its guest'");
  });
});
