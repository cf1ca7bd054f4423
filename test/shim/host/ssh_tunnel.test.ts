// docs/howto/remote-host.md: SSH brings the host's socket to a guest, and the host knows the guest by its user. The real
// sshd, with the page's settings, on a loopback address; the page's own command in place of the guest's unit.

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseProbeReport } from '../../../agent/contracts/probe.js';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  scratchDirectory,
  sleep,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';

const packages = path.join(ROOT, '.cache/roots/ssh');
const page = readFileSync(path.join(ROOT, 'docs/howto/remote-host.md'), 'utf8');
const port = await freePort();
const uid = 61_185;

function whyNot(): string | false {
  if (process.getuid?.() !== 0) return 'needs root: sshd becomes another user';
  return existsSync(path.join(packages, '.complete')) ? false : 'scripts/fetch-packages ssh was not run';
}

/** The code block of the page in that language, the first after `title`. */
function block(language: string, title: string): string {
  const from = page.indexOf(title);
  const [, text] = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(page.slice(from)) ?? [];
  assert.ok(from >= 0 && text !== undefined, `${title} of the page`);
  return text;
}

function connects(socket: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    connection.once('error', () => resolve(false));
    connection.once('connect', () => {
      connection.destroy();
      resolve(true);
    });
  });
}

describe('a host that is reached through SSH', { skip: whyNot() }, () => {
  const scratch = scratchDirectory();
  const at = (name: string): string => path.join(scratch.path, name);
  const libraries = ['lib', 'usr/lib'].map((one) => path.join(packages, one, 'x86_64-linux-gnu')).join(':');
  const remote = at('remote.sock');
  let host: Host;
  let sshd: ChildProcess;
  let tunnel: ChildProcess;
  let said = '';

  const start = (command: string, args: readonly string[]): ChildProcess => {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', command, ...args], {
      env: { ...process.env, LD_LIBRARY_PATH: libraries },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    return child;
  };
  /** The unit's command, with the paths and the name of this test. */
  const startTunnel = async (): Promise<void> => {
    const [, line = ''] = /^ExecStart=\/usr\/bin\/ssh (.*)$/m.exec(block('ini', 'vgpu-tunnel.service')) ?? [];
    const args = line
      .replace('/etc/vgpu/tunnel_key', at('key'))
      .replace('/run/vgpu-tunnel/hostd.sock:/run/vgpu/hostd.sock', `${remote}:${at('hostd.sock')}`)
      .replace('@HOST', '@127.0.0.1')
      .split(' ');
    const here = ['-p', String(port), '-o', `UserKnownHostsFile=${at('known')}`];
    tunnel = start(path.join(packages, 'usr/bin/ssh'), [...here, ...args]);
    // A killed ssh leaves its socket behind: only one that takes connections counts.
    const end = performance.now() + 60_000;
    while (!(await connects(remote))) {
      assert.ok(tunnel.exitCode === null && performance.now() < end, `no tunnel: ${said}`);
      await sleep(50);
    }
  };
  const probe = async () => {
    const library = ['--library', builtFile('libcuda.so.1')];
    const ended = await runProgram(builtFile('vgpu-probe'), ['--compute', ...library], {
      env: { VGPU_HOST: `unix:${remote}` },
      limit: 30_000,
    });
    const report = parseProbeReport(ended.stdout);
    return 'problem' in report ? assert.fail(report.problem) : report;
  };

  before(async () => {
    for (const name of ['host_key', 'key'])
      execFileSync(path.join(packages, 'usr/bin/ssh-keygen'), [
        '-q',
        '-t',
        'ed25519',
        '-N',
        '',
        '-f',
        at(name),
      ]);
    writeFileSync(at('known'), `[127.0.0.1]:${port} ${readFileSync(at('host_key.pub'), 'utf8')}`);
    const users = readFileSync('/etc/passwd', 'utf8');
    const added = `sshd:x:61186:65534::/run/sshd:/usr/sbin/nologin\nvgpu-guest7:x:${uid}:65534::/:/usr/sbin/nologin\n`;
    writeFileSync(at('passwd'), `${users.replace(/^sshd:.*\n/m, '')}${added}`);
    const settings = [`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${at('host_key')}`, 'UsePAM no'];
    const keys = ['StrictModes no', `AuthorizedKeysFile ${at('key.pub')}`, 'PidFile none'];
    writeFileSync(at('sshd_config'), [...settings, ...keys, block('sshd_config', 'vgpu.conf')].join('\n'));
    writeFileSync(at('hostd.conf'), `allow unix uid=${uid} memory=1G\n`);
    execFileSync('chmod', ['0711', scratch.path]);
    host = await startHost({ listen: `unix:${at('hostd.sock')}`, args: ['--config', at('hostd.conf')] });
    // Users and a /run that only this sshd sees.
    const inside = `mount --bind ${at('passwd')} /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd && exec "$0" "$@"`;
    const daemon = [path.join(packages, 'usr/sbin/sshd'), '-D', '-e', '-f', at('sshd_config')];
    sshd = start('unshare', ['--mount', 'sh', '-c', inside, ...daemon]);
    await until(`sshd: ${said}`, () => said.includes('Server listening'));
    await startTunnel();
  });
  after(async () => {
    tunnel?.kill();
    sshd?.kill();
    await host?.stop();
    scratch.remove();
  });

  it('computes right, over the socket, with the limits of the user that hostd.conf names', async () => {
    const report = await probe();
    assert.deepEqual([report.ok, report.compute?.ok, report.error], [true, true, null], said);
    assert.equal(report.host?.carrier, 'unix');
    assert.equal(report.devices[0]?.memory, 2 ** 30);
    await host.logged(new RegExp(`uid ${uid}`));
  });

  it('gives that user no shell, and no port that listens', async () => {
    const args = [
      '-p',
      String(port),
      '-o',
      `UserKnownHostsFile=${at('known')}`,
      '-i',
      at('key'),
      '-o',
      'BatchMode=yes',
    ];
    const shell = start(path.join(packages, 'usr/bin/ssh'), [...args, 'vgpu-guest7@127.0.0.1', 'true']);
    const status = await new Promise((resolve) => shell.once('exit', resolve));
    assert.notEqual(status, 0, 'no command');
    const tcp = start(path.join(packages, 'usr/bin/ssh'), [
      ...args,
      ...['-o', 'ExitOnForwardFailure=yes', '-N', '-R', '0:127.0.0.1:1', 'vgpu-guest7@127.0.0.1'],
    ]);
    assert.notEqual(await new Promise((resolve) => tcp.once('exit', resolve)), 0, 'no port');
  });

  it('goes on with the next tunnel, or says that its host is lost if it may not wait', async () => {
    const patient = startShell({ VGPU_HOST: `unix:${remote}` });
    const impatient = startShell({ VGPU_HOST: `unix:${remote}`, VGPU_RECONNECT: '0' });
    try {
      for (const shell of [patient, impatient]) await askAll(shell, ['init', 'retain 0', 'use 1']);
      const ended = new Promise((resolve) => tunnel.once('exit', resolve));
      tunnel.kill('SIGKILL');
      await ended;
      await assert.rejects(askAll(impatient, ['alloc 300000']), 'its session is lost');
      assert.equal((await probe()).host?.code, 'unreachable');
      const waiting = askAll(patient, ['alloc 300000', 'sync']);
      await startTunnel();
      await waiting;
    } finally {
      for (const shell of [patient, impatient]) shell.kill();
    }
    assert.equal((await probe()).ok, true, said);
  });

  const long = process.env['VGPU_TEST_LONG'] ? false : 'with --long: SSH waits for 10 to 15 seconds';
  it('ends when its peer is frozen, and the next one serves again', { skip: long }, async () => {
    const children = (pid: number): number[] => {
      const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
      const own = text === '' ? [] : text.split(' ').map(Number);
      return [...own, ...own.flatMap(children)];
    };
    const frozen = children(sshd.pid ?? assert.fail('sshd has no process'));
    assert.ok(frozen.length > 0, 'sshd serves the tunnel in processes of its own');
    const ended = new Promise((resolve) => tunnel.once('exit', resolve));
    for (const pid of frozen) process.kill(pid, 'SIGSTOP');
    try {
      assert.equal(await ended, 255, 'as ssh ends when it lost its peer: systemd starts it again');
    } finally {
      for (const pid of frozen) process.kill(pid, 'SIGKILL');
    }
    await startTunnel();
    assert.equal((await probe()).ok, true, said);
  });
});
