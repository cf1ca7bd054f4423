/**
 * A virtual machine with a Debian of scripts/test-roots on its disk: systemd, this project's agent, and commands that a
 * test gives it while it runs. With emulated AMD-V it runs machines inside by KVM.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import path from 'node:path';
import { testNode, testRoot } from '../../guest/support/roots.js';
import { ROOT } from '../cuda/private_programs.js';
import { until } from '../shim_host.js';
import type { ImageFile } from './image.js';
import { makeInitrd } from './initrd.js';
import { running } from './machine.js';
import { listens, startQemu } from './qemu.js';

export const NODE_MAJOR = 22;
/** Of a machine on a busy one; commands have limits of their own, by the machine's clock. */
const LIMIT = 1_800_000;

export interface DebianOptions {
  /** A name of scripts/test-roots. */
  readonly root: string;
  /** Its memory and its disk, MiB. */
  readonly memory: number;
  readonly disk: number;
  /** Kernel modules; what they need is loaded before them. */
  readonly modules: readonly string[];
  readonly files: readonly ImageFile[];
}

export interface Answer {
  readonly code: number;
  /** stdout and stderr. */
  readonly said: string;
}

export interface DebianMachine {
  /** Runs the text as root's bash would, with -e and pipefail. */
  run(text: string): Promise<Answer>;
  /** As run; another status than 0 rejects with what was said. */
  must(text: string): Promise<string>;
  /** The output of its kernel and systemd. */
  console(): string;
  stop(): void;
}

/** Runs each command that comes over the second serial port, and sends its status and what it said. */
const SERVE = `#!/bin/bash
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
echo ready >&3
while read -r -u 3 number text; do
  base64 -d <<<"$text" >/run/test-command
  bash -e -o pipefail /run/test-command >/run/test-said 2>&1 </dev/null 3>&-
  echo "$number $? $(base64 -w 0 /run/test-said)" >&3
done
`;
const UNIT = `[Service]
ExecStart=/usr/local/sbin/test-serve
Environment=HOME=/root LANG=C.UTF-8
`;

/** The disk: the root, the agent as scripts/install-agent installs it, and the unit that serves the test. */
function makeDisk(directory: string, { root, disk, files }: DebianOptions): string {
  const tree = path.join(directory, 'tree');
  const inside = (name: string): string => path.join(tree, name);
  execFileSync('cp', ['-a', testRoot(root), tree]);
  const write = (name: string, content: string | Buffer, mode = 0o644): void => {
    mkdirSync(path.dirname(inside(name)), { recursive: true });
    writeFileSync(inside(name), content);
    chmodSync(inside(name), mode);
  };
  cpSync(testNode(NODE_MAJOR), inside('usr/bin/node'));
  // In a mount namespace: the checkout is in the tree only as long as the script runs.
  const install =
    'mkdir -p "$0$1" && for one in "$1" /proc /dev; do mount --rbind "$one" "$0$one"; done && chroot "$0" "$1/scripts/install-agent"';
  execFileSync('unshare', ['--mount', '--propagation', 'private', 'bash', '-ec', install, tree, ROOT]);
  write('etc/machine-id', `${'0'.repeat(31)}1\n`);
  write('etc/hostname', 'host1\n');
  write('etc/hosts', '127.0.0.1 localhost\n127.0.1.1 host1\n');
  write('etc/fstab', '');
  // Newer than /usr, so that no unit with ConditionNeedsUpdate= runs, such as ldconfig.service.
  for (const name of ['etc/.updated', 'var/.updated']) write(name, '');
  write('usr/local/sbin/test-serve', SERVE, 0o755);
  write('etc/systemd/system/test.service', UNIT);
  for (const { name, content, executable } of files)
    write(name, content, executable === true ? 0o755 : 0o644);
  const units = 'etc/systemd/system';
  mkdirSync(inside(`${units}/multi-user.target.wants`), { recursive: true });
  symlinkSync('../test.service', inside(`${units}/multi-user.target.wants/test.service`));
  rmSync(inside(`${units}/default.target`), { force: true });
  symlinkSync('/usr/lib/systemd/system/multi-user.target', inside(`${units}/default.target`));
  for (const name of [
    'serial-getty@ttyS0.service',
    'getty.target',
    'apt-daily.timer',
    'dpkg-db-backup.timer',
  ])
    symlinkSync('/dev/null', inside(`${units}/${name}`));
  const image = path.join(directory, 'disk');
  execFileSync('/usr/sbin/mkfs.ext4', ['-q', '-d', tree, image, `${disk}M`]);
  rmSync(tree, { recursive: true });
  return image;
}

/** Boots it; files are put into `directory`. */
export async function startDebian(directory: string, options: DebianOptions): Promise<DebianMachine> {
  const disk = makeDisk(directory, options);
  const modules = ['virtio_pci', 'virtio_blk', 'ext4', ...options.modules];
  writeFileSync(`${directory}/initrd`, makeInitrd({ commands: [], modules, handsOver: true }));
  const lines = `${directory}/lines`;
  const qemu = startQemu(directory, {
    memory: options.memory,
    disk,
    // A busy machine then makes it slow and nothing else. A machine inside does not get on without this.
    counts: true,
    alone: ['-chardev', `socket,id=lines,path=${lines},server=on,wait=off`, '-serial', 'chardev:lines'],
  });
  const machine = running(directory, qemu);
  let answers = '';
  await until('qemu', () => listens(lines) || qemu.exitCode !== null, 60_000);
  const connection = createConnection(lines);
  connection.on('error', () => undefined);
  connection.on('data', (chunk: Buffer) => {
    answers += chunk.toString();
  });
  const answered = async (pattern: RegExp, what: string): Promise<RegExpExecArray> => {
    await until(what, () => pattern.test(answers) || qemu.exitCode !== null, LIMIT).catch((error: unknown) =>
      assert.fail(`${String(error)}\n${machine.console()}`),
    );
    const found = pattern.exec(answers);
    assert.ok(found !== null, `the machine ended:\n${machine.console()}`);
    return found;
  };
  await answered(/^ready\n/m, 'the machine to boot');
  let count = 0;
  const run: DebianMachine['run'] = async (text) => {
    count += 1;
    connection.write(`${count} ${Buffer.from(text).toString('base64')}\n`);
    const pattern = new RegExp(`^${count} (\\d+) (\\S*)\\n`, 'm');
    const [, code, said = ''] = await answered(pattern, text);
    return { code: Number(code), said: Buffer.from(said, 'base64').toString() };
  };
  return {
    run,
    must: async (text) => {
      const { code, said } = await run(text);
      assert.equal(code, 0, `${text}\n${said}`);
      return said;
    },
    console: machine.console,
    stop: () => {
      connection.destroy();
      qemu.kill('SIGKILL');
    },
  };
}
