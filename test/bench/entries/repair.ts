// From a link that was bent to the link that is right again: the service, beside a .path unit that starts a shell script.

import { mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { agent, runTimed } from '../run-timed.js';

export const repair: Entry = {
  name: 'repair',
  what: 'drift to repaired, by the service and by a .path unit with a shell script',
  runs: 25,
  measure,
};

const ours = {
  link: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
  target: '/opt/vgpu/current/libcuda.so.1',
};
const theirs = { link: '/usr/local/lib/by-hand/libcuda.so.1', target: ours.target };
const config = {
  schema: 1,
  repair: { perHour: 100_000, backoffSeconds: 0 },
};
/** Both have come to rest by then: the service has looked once more, systemd has collected the script. */
const restMs = 1_000;
const limitMs = 20_000;

async function measure(runs: number): Promise<readonly Comparison[]> {
  mkdirSync('/etc/vgpu-agent', { recursive: true });
  writeFileSync('/etc/vgpu-agent/agent.json', JSON.stringify(config));
  agent('install', '--service', '--yes', '--quiet');
  pathUnit();
  try {
    return [
      await inTurn('a bent link is right again', runs, [
        { name: 'vgpu-agent.service', unit: 'ms', once: () => bend(ours) },
        { name: '.path unit and shell script', unit: 'ms', once: () => bend(theirs) },
      ]),
    ];
  } finally {
    runTimed('systemctl', ['disable', '--now', '--quiet', 'by-hand.path']);
    agent('uninstall', '--yes', '--quiet');
    rmSync('/etc/vgpu-agent', { recursive: true, force: true });
  }
}

/** Milliseconds from the rename that bends the link until it leads where it should. */
async function bend({ link, target }: { readonly link: string; readonly target: string }): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, restMs));
  symlinkSync('/nonexistent', `${link}.bent`);
  const begun = performance.now();
  renameSync(`${link}.bent`, link);
  for (;;) {
    if (points(link, target)) return performance.now() - begun;
    if (performance.now() - begun > limitMs) throw new Error(`${link} was not repaired`);
    // Looking takes microseconds; sleeping in between leaves the processor to the service that repairs.
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

function points(link: string, target: string): boolean {
  try {
    return readlinkSync(link) === target;
  } catch {
    return false;
  }
}

function pathUnit(): void {
  mkdirSync('/usr/local/lib/by-hand', { recursive: true });
  symlinkSync(theirs.target, theirs.link);
  writeFileSync(
    '/usr/local/sbin/by-hand',
    `#!/bin/sh
[ "$(readlink ${theirs.link})" = ${theirs.target} ] && exit 0
ln -s ${theirs.target} ${theirs.link}.new && mv -T ${theirs.link}.new ${theirs.link} && exec ldconfig -X
`,
    { mode: 0o755 },
  );
  writeFileSync(
    '/etc/systemd/system/by-hand.path',
    `[Unit]\nStartLimitIntervalSec=0\n[Path]\nPathChanged=/usr/local/lib/by-hand\nTriggerLimitIntervalSec=0\n[Install]\nWantedBy=multi-user.target\n`,
  );
  writeFileSync(
    '/etc/systemd/system/by-hand.service',
    '[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/usr/local/sbin/by-hand\n',
  );
  runTimed('systemctl', ['daemon-reload']);
  runTimed('systemctl', ['enable', '--now', '--quiet', 'by-hand.path']);
}
