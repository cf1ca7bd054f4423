// Any service, with no profile and no log that says anything: its verdict comes from the sessions that the host has
// with its processes. The service is a shell that does what lines in a pipe say, as its own user.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { tell } from '../support/scenario.js';

const program = join(repository, 'build/shim/programs/code_shell');
const skip =
  whyNoGuest() || whyNoHostd() || (existsSync(program) ? false : 'build/shim/programs is not built');
const unit = 'worker.service';
const kernel = '.version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n';

test('a service without a profile is undetermined, then gpu, then cpu, by its sessions at the host', {
  skip,
}, async (t) => {
  const guest = await Guest.start({ readOnlyBinds: [`${program}:/opt/worker`] }, t);
  await guest.hosts.start();
  await guest.must('useradd', '-r', 'worker');
  await guest.write('/var/lib/worker.ptx', kernel);
  await guest.write(
    `/etc/systemd/system/${unit}`,
    [
      '[Service]',
      'User=worker',
      'RuntimeDirectory=worker',
      'ExecStartPre=/usr/bin/mkfifo -m 0600 /run/worker/orders',
      // Its output is discarded, so there is no log to read.
      "ExecStart=/bin/sh -c 'exec /opt/worker <>/run/worker/orders >/dev/null'",
      '',
    ].join('\n'),
  );
  await guest.must('systemctl', 'daemon-reload');
  await guest.must('systemctl', 'start', unit);
  const order = (...lines: readonly string[]): Promise<string> =>
    guest.must(
      'sh',
      '-c',
      `printf '%s\\n' ${lines.map((line) => `'${line}'`).join(' ')} >/run/worker/orders`,
    );

  const installed = await tell(guest, 'install', '--yes', '--unit', unit, '--timeout', '4');
  assert.equal(installed.code, 4, installed.stderr);
  const { verdict } = installed.document;
  assert.deepEqual([verdict?.mode, verdict?.reason, verdict?.unit], ['undetermined', 'no-session', unit]);
  assert.match(verdict?.next ?? '', /vgpu-agent verify --unit worker\.service$/);

  await order('begin', 'load 0 /var/lib/worker.ptx', 'function 1 0 nothing');
  const waiting = await until('it has a session', 60_000, async () => {
    const told = await tell(guest, 'verify', '--unit', 'worker');
    return told.document.verdict?.reason === 'no-session' ? undefined : told;
  });
  assert.equal(waiting.code, 4);
  assert.equal(waiting.document.verdict?.reason, 'no-work-yet');

  await order('launch 1 1 1 1 1 1 1 0 -', 'sync');
  const working = await until('it has launched a kernel', 60_000, async () => {
    const told = await tell(guest, 'verify', '--unit', unit);
    return told.document.verdict?.reason === 'no-work-yet' ? undefined : told;
  });
  assert.equal(working.code, 0, JSON.stringify(working.document.verdict, null, 1));
  assert.equal(working.document.verdict?.mode, 'gpu');
  assert.equal(working.document.verdict?.simulated, true);
  assert.match(working.document.verdict?.devices[0]?.name ?? '', /\(simulated\)$/);
  const sessions = working.document.verdict?.evidence.filter(({ kind }) => kind === 'sessions') ?? [];
  assert.deepEqual(
    sessions.map(({ weight }) => weight),
    ['for'],
  );
  assert.match(sessions[0]?.text ?? '', /^worker \(process \d+\) for \d+ s: .*, 1 kernels? launched$/);

  assert.equal(working.document.verdict?.carrier, 'rings');

  // Another process of the same user is not this service.
  await guest.must('systemctl', 'restart', unit);
  assert.equal((await tell(guest, 'verify', '--unit', unit)).document.verdict?.reason, 'no-session');
  await guest.hosts.stop('SIGKILL');
  const lost = await tell(guest, 'verify', '--unit', unit);
  assert.deepEqual(
    [lost.code, lost.document.verdict?.mode, lost.document.verdict?.reason],
    [3, 'cpu', 'host-unreachable'],
  );
  const removed = await tell(guest, 'uninstall', '--yes', '--unit', unit);
  assert.equal(removed.code, 0, removed.stderr);
  assert.equal(await guest.exists(`/etc/systemd/system/${unit}.d`), false);
});
