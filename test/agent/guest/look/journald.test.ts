import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { readJournald } from '../../../../agent/guest/look/closer-look.js';
import { type CommandRunner, spawnRunner } from '../../../../agent/lib/run-command.js';

test('the last drop-in of a journald says what it keeps; /etc hides a file of the same name; a namespace has its own', async (t) => {
  const root = mkdtempSync(path.join(tmpdir(), 'vgpu-journald-'));
  t.after(() => rmSync(root, { recursive: true }));
  const write = (file: string, ...lines: readonly string[]): void => {
    mkdirSync(path.join(root, path.dirname(file)), { recursive: true });
    writeFileSync(path.join(root, file), ['[Journal]', ...lines, ''].join('\n'));
  };
  write('/usr/lib/systemd/journald.conf', 'Storage=none', 'RateLimitBurst=1');
  write('/etc/systemd/journald.conf', '#Storage=none', 'MaxLevelStore=debug', 'RateLimitBurst=5');
  write('/usr/lib/systemd/journald.conf.d/90-a.conf', 'Storage=none');
  write('/etc/systemd/journald.conf.d/90-a.conf', 'MaxLevelStore=notice');
  write('/run/systemd/journald.conf.d/50-b.conf', 'MaxLevelStore=err', 'Storage=volatile');
  write('/etc/systemd/journald@apart.conf', 'Storage=none');
  const runner: CommandRunner = {
    run: async (program, args) => {
      const ran = await spawnRunner().run(program, [`--root=${root}`, ...args]);
      return { ...ran, stdout: Buffer.from(ran.stdout.toString().replaceAll(root, '')) };
    },
  };
  const look = await readJournald(runner, '');
  assert.deepEqual(look, {
    Storage: { value: 'volatile', file: '/run/systemd/journald.conf.d/50-b.conf' },
    MaxLevelStore: { value: 'notice', file: '/etc/systemd/journald.conf.d/90-a.conf' },
    RateLimitBurst: { value: '5', file: '/etc/systemd/journald.conf' },
  });
  assert.deepEqual(await readJournald(runner, 'apart'), {
    Storage: { value: 'none', file: '/etc/systemd/journald@apart.conf' },
  });
});
