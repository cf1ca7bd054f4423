import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runElsewhere } from '../../../agent/service/sessions-asker.js';

test("programs that run as the consumer's user are started by systemd, because the service cannot change its user", async () => {
  const ran: string[] = [];
  const runner = runElsewhere({
    run: async (file, args) => {
      ran.push([file, ...args].join(' '));
      return { code: 0, signal: null, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), timedOut: false };
    },
  });
  await runner.run('setpriv', [
    '--reuid=995',
    '--regid=994',
    '--groups=44,994',
    '--inh-caps=-all',
    '--',
    'test',
    '-r',
    '/x',
  ]);
  await runner.run('setpriv', ['--', 'vgpu-probe'], { timeoutMs: 4_200 });
  await runner.run('ldconfig', ['-X']);
  assert.deepEqual(ran, [
    'systemd-run --quiet --collect --wait --pipe --property=RuntimeMaxSec=30 -- setpriv --reuid=995 --regid=994 --groups=44,994 --inh-caps=-all -- test -r /x',
    'systemd-run --quiet --collect --wait --pipe --property=RuntimeMaxSec=5 -- setpriv -- vgpu-probe',
    'ldconfig -X',
  ]);
});
