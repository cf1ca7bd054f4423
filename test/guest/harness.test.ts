// The harness itself: what a scenario test relies on.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Guest, whyNoGuest } from './support/guest.js';
import { ended, until } from './support/process.js';
import { repository } from './support/repository.js';
import { nodeVersions, releases, testNode, testRoot, whyNoNode, whyNoRoot } from './support/roots.js';

const skip = whyNoGuest();

/** Cgroups of guests, wherever cgroup2 is mounted here. */
function guestCgroups(): string[] {
  const roots = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].filter((root) =>
    existsSync(join(root, 'cgroup.procs')),
  );
  return roots.flatMap((root) => readdirSync(root).filter((name) => name.startsWith('vgpu-guest-test-')));
}

/** Processes whose mount namespace is another one than ours and whose arguments name the guest. */
function processesOf(name: string): string[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`G_NAME=${name}\0`);
      } catch {
        return false; // gone meanwhile
      }
    });
}

describe('a guest', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
  });
  after(() => guest.stop());

  test('boots a systemd of its own, with nothing failed', async () => {
    assert.equal((await guest.must('cat', '/proc/1/comm')).trim(), 'systemd');
    const ran = await guest.run('systemctl', 'is-system-running');
    assert.equal(ran.stdout.trim(), 'running', await guest.must('systemctl', 'list-units', '--failed'));
  });

  test("cannot set the machine's clock, neither by a command nor by a service", async () => {
    // It sets the time that it has, so no harm is done if that succeeds.
    const set = ['bash', '-c', 'date -s "@$(date +%s.%N)"'] as const;
    for (const ran of [
      await guest.run(...set),
      await guest.run('systemd-run', '--wait', '--quiet', '--pipe', ...set),
    ]) {
      assert.notEqual(ran.code, 0);
      assert.match(ran.stderr, /cannot set date: Operation not permitted/);
    }
  });

  test('has its own name, PIDs, network and IPC', async () => {
    assert.equal((await guest.must('hostname')).trim(), guest.name);
    const links = await guest.must(
      'readlink',
      ...['pid', 'net', 'ipc', 'uts', 'mnt'].map((ns) => `/proc/self/ns/${ns}`),
    );
    for (const link of links.trim().split('\n')) {
      const kind = link.split(':')[0];
      assert.notEqual(link, readlinkSync(`/proc/self/ns/${kind}`), `${kind} namespace`);
    }
    assert.equal((await guest.must('sh', '-c', 'ls /sys/class/net')).trim(), 'lo');
  });

  test('starts bare: nothing of vgpu-agent but the command, nothing of NVIDIA and of Ollama', async () => {
    for (const path of ['/opt/vgpu', '/etc/vgpu', '/var/lib/vgpu-agent', '/usr/local/bin/ollama']) {
      assert.equal(await guest.exists(path), false, path);
    }
    const cache = await guest.must('ldconfig', '-p');
    assert.doesNotMatch(cache, /libcuda\.so|libnvidia-ml\.so|vgpu/);
    assert.equal(
      (await guest.must('readlink', '/usr/local/bin/vgpu-agent')).trim(),
      join(repository, 'dist/bundle/main.js'),
    );
  });

  test('passes on exit status, stdin, stdout, stderr and environment', async () => {
    const script = 'cat; echo "$COLOUR" >&2; exit 37';
    const ran = await guest.runWith({ stdin: 'one\ntwo', env: { COLOUR: 'blue' } }, 'sh', '-c', script);
    assert.deepEqual(ran, { code: 37, stdout: 'one\ntwo', stderr: 'blue\n' });
  });

  test('no start-up file of a shell has a say in what is run', async () => {
    // Bash reads it where its standard input is a socket, as ours is, and it takes itself for a remote shell.
    const before = await guest.read('/root/.bashrc').catch(() => '');
    await guest.write('/root/.bashrc', 'echo remote >>/run/bashrc-was-read\n');
    assert.equal((await guest.run('true')).code, 0);
    assert.equal((await guest.run('bash', '-c', 'true')).code, 0);
    assert.equal(await guest.exists('/run/bashrc-was-read'), false);
    await guest.write('/root/.bashrc', before);
  });

  test('tells a death by signal as a shell does', async () => {
    assert.equal((await guest.run('sh', '-c', 'kill -9 $$')).code, 137);
  });

  test('runs as another user', async () => {
    assert.equal((await guest.runWith({ user: 'nobody' }, 'id', '-un')).stdout.trim(), 'nobody');
  });

  test('passes SIGTERM on to what it runs', async () => {
    const child = guest.spawn([
      'sh',
      '-c',
      'trap "echo bye; exit 9" TERM; echo up; while :; do sleep 0.05; done',
    ]);
    let said = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    await until('the program runs', 60_000, () => (said.includes('up') ? true : undefined));
    child.kill('SIGTERM');
    assert.equal(await ended(child), 9);
    assert.match(said, /bye/);
  });

  test('returns the exit status of a child that ended before the call', { timeout: 30_000 }, async () => {
    for (const [script, code] of [
      ['exit 3', 3],
      ['kill -KILL $$', 137],
    ] as const) {
      const child = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'pipe'] });
      child.stdout.resume();
      child.stderr.resume();
      assert.equal(await ended(child), code);
      assert.equal(await ended(child), code);
    }
  });

  test('a program that takes too long is ended and told', async () => {
    await assert.rejects(guest.runWith({ timeoutMs: 200 }, 'sleep', '60'), /sleep 60: not done after 200 ms/);
    await until('it is gone', 60_000, async () =>
      (await guest.run('pgrep', '-x', 'sleep')).code === 1 ? true : undefined,
    );
  });

  test('changes nothing outside, and cannot change the checkout', async () => {
    await guest.write('/etc/vgpu-harness-test', 'inside');
    assert.equal(existsSync('/etc/vgpu-harness-test'), false);
    assert.equal((await guest.must('cat', '/etc/vgpu-harness-test')).trim(), 'inside');
    const ran = await guest.run('touch', join(repository, 'harness-was-here'));
    assert.match(ran.stderr, /Read-only file system/);
  });

  test('shares /run/vgpu with the outside, sockets included', async () => {
    await guest.write(
      '/run/server.py',
      'import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nprint("up",flush=True)\nc,_=s.accept()\nc.sendall(b"hello")\n',
    );
    const server = guest.spawn(['python3', '/run/server.py', '/run/vgpu/test.sock']);
    const done = ended(server);
    const socket = join(guest.state, 'vgpu/test.sock');
    let words = '';
    server.stdout?.on('data', (chunk: Buffer) => {
      words += chunk.toString();
    });
    await until('it listens', 60_000, () => (words.includes('up') ? true : undefined));
    const said = await new Promise<string>((resolve, reject) => {
      const client = connect(socket);
      client.on('data', (chunk) => resolve(chunk.toString()));
      client.on('error', reject);
    });
    assert.equal(said, 'hello');
    assert.equal(await done, 0);
  });

  test('reads the journal of one start only', async () => {
    // journald may miss whose line it is when its sender ends at once.
    const sync = 'journalctl --sync';
    await guest.must('systemd-run', '--quiet', '--wait', '--unit=once', 'sh', '-c', `echo first; ${sync}`);
    const first = await guest.journal('once');
    assert.ok(first.some((entry) => entry.message === 'first'));
    const invocation = first.find((entry) => entry.message === 'first')?.invocation;
    await guest.must(
      'systemd-run',
      '--quiet',
      '--wait',
      '--unit=once',
      'sh',
      '-c',
      `printf "\\377x\\n"; ${sync}`,
    );
    const again = await guest.journal('once', invocation);
    assert.ok(again.some((entry) => entry.message === 'first'));
    assert.ok(!again.some((entry) => entry.message.endsWith('x')));
    assert.ok((await guest.journal('once')).some((entry) => entry.message === '\xffx'));
  });
});

describe('a listing', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.must('ldconfig');
  });
  after(() => guest.stop());

  test('says nothing when nothing changed, and everything that did', async () => {
    await guest.write('/etc/present', 'one');
    const before = await guest.listing();
    assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
    const steps = [
      'echo two >/etc/added; printf two >/etc/present; chmod 600 /etc/issue; chown 1:2 /etc/issue.net',
      'rm /etc/debian_version; rm -r /etc/skel; mkdir /etc/skel; echo x >/etc/skel/x',
      'ln -sfn elsewhere /etc/os-release; mkdir -p /opt/a/b; touch -d @7 /etc/hosts',
    ];
    await guest.must('sh', '-ec', steps.join('\n'));
    const diff = before.diff(await guest.listing());
    assert.deepEqual(
      diff.map((line) => line.replace(/ -> .*/, '')),
      [
        '+ /etc/added',
        '- /etc/debian_version',
        '~ /etc/issue: mode 644',
        '~ /etc/issue.net: uid 0',
        '~ /etc/os-release: target ../usr/lib/os-release',
        '~ /etc/present: content',
        '- /etc/skel/.bash_logout',
        '- /etc/skel/.bashrc',
        '- /etc/skel/.profile',
        '+ /etc/skel/x',
        '+ /opt/a',
        '+ /opt/a/b',
      ],
    );
    const withTimes = before.diff(await guest.listing(), { mtimes: 'all' });
    assert.ok(withTimes.includes('~ /etc/hosts: mtime'), withTimes.join('\n'));
  });

  test('a file written again with the same bytes is the same file', async () => {
    const before = await guest.listing();
    await guest.must(
      'sh',
      '-ec',
      'cp -a /usr/bin/env /tmp/env; rm /usr/bin/env; cp -a /tmp/env /usr/bin/env',
    );
    assert.deepEqual(before.diff(await guest.listing()), []);
    await guest.must('sh', '-ec', 'printf x >>/usr/bin/env');
    assert.match(before.diff(await guest.listing()).join(), /^~ \/usr\/bin\/env: size .*, content$/);
  });
});

describe('the life of guests', { skip }, () => {
  test('a reboot keeps the disk and starts everything again', async (t) => {
    const guest = await Guest.start({}, t);
    await guest.write('/etc/kept', 'yes');
    await guest.write('/run/lost', 'yes');
    const boot = await guest.must('cat', '/proc/sys/kernel/random/boot_id');
    await guest.reboot();
    assert.notEqual(await guest.must('cat', '/proc/sys/kernel/random/boot_id'), boot);
    assert.equal(await guest.read('/etc/kept'), 'yes');
    assert.equal(await guest.exists('/run/lost'), false);
    const boots = (await guest.must('journalctl', '--list-boots', '-q', '--no-pager')).trim().split('\n');
    assert.ok(
      boots.some((line) => line.trim().startsWith('-1')),
      boots.join('\n'),
    );
  });

  test('two side by side do not see each other', async (t) => {
    const [one, two] = await Promise.all([Guest.start({}, t), Guest.start({}, t)]);
    await one.write('/etc/only-one', 'x');
    await one.write('/run/vgpu/only-one', 'x');
    assert.equal(await two.exists('/etc/only-one'), false);
    assert.equal(await two.exists('/run/vgpu/only-one'), false);
    assert.notEqual(await one.must('hostname'), await two.must('hostname'));
  });

  test('--size bounds what the guest can write', async (t) => {
    const guest = await Guest.start({ size: '24m' }, t);
    const ran = await guest.run('dd', 'if=/dev/zero', 'of=/opt/big', 'bs=1M', 'count=64');
    assert.match(ran.stderr, /No space left on device/);
  });

  test('a stopped guest leaves no process, mount, cgroup and state', async () => {
    const guest = await Guest.start();
    assert.ok(guestCgroups().some((name) => name.includes(guest.name)));
    assert.notDeepEqual(processesOf(guest.name), []);
    await guest.stop();
    assert.ok(!guestCgroups().some((name) => name.includes(guest.name)));
    assert.deepEqual(processesOf(guest.name), []);
    assert.equal(existsSync(guest.state), false);
    assert.ok(!readFileSync('/proc/self/mountinfo', 'utf8').includes(guest.name));
  });

  test('an orderly end runs the shutdown jobs', async (t) => {
    const outside = mkdtempSync(join(tmpdir(), 'vgpu-harness-'));
    t.after(() => rmSync(outside, { recursive: true }));
    const guest = await Guest.start({ binds: [`${outside}:/outside`] }, t);
    await guest.write('/run/stopper', '#!/bin/sh\necho stopped >/outside/out\n', 0o755);
    await guest.must(
      'systemd-run',
      '--quiet',
      '-p',
      'RemainAfterExit=yes',
      '-p',
      'ExecStop=/run/stopper',
      'true',
    );
    execFileSync(join(repository, 'scripts/guest'), ['down', guest.name]);
    assert.equal(readFileSync(join(outside, 'out'), 'utf8'), 'stopped\n');
  });

  test('a guest dies with the process that started it, and the next one clears up after it', async (t) => {
    const module = JSON.stringify(join(repository, 'dist/test/guest/support/guest.js'));
    const script = `const { Guest } = await import(${module}); const g = await Guest.start(); console.log(g.name); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    // Also when the test fails, because a child that lives on delays the end of this file.
    t.after(() => child.kill('SIGKILL'));
    let name = '';
    child.stdout.on('data', (chunk: Buffer) => {
      name += chunk.toString().trim();
    });
    await until('a guest of another process', 60_000, () => (name === '' ? undefined : true));
    assert.notDeepEqual(processesOf(name), []);
    const gone = ended(child);
    child.kill('SIGKILL');
    await gone;
    await until('its guest is gone', 60_000, () => (processesOf(name).length === 0 ? true : undefined));
    const next = await Guest.start();
    await next.stop();
    assert.equal(existsSync(join('/run/vgpu-guests', name)), false);
    assert.ok(!guestCgroups().some((cgroup) => cgroup.includes(name)));
  });
});

for (const release of releases) {
  test(`a guest of Debian's ${release} boots, and runs this checkout's command`, {
    skip: skip || whyNoRoot(release),
  }, async (t) => {
    const guest = await Guest.start({ root: testRoot(release) }, t);
    const ran = await guest.run('systemctl', 'is-system-running');
    assert.equal(ran.stdout.trim(), 'running', await guest.must('systemctl', 'list-units', '--failed'));
    assert.match(
      await guest.must('cat', '/etc/os-release'),
      new RegExp(`^VERSION_CODENAME=.*${release}|/sid`, 'm'),
    );
    assert.match(await guest.must('vgpu-agent', '--version'), /^\d+\.\d+\.\d+/);
    assert.equal(
      existsSync(join(testRoot(release), 'etc/machine-id')),
      false,
      'the root itself stays as it is',
    );
  });
}

for (const major of nodeVersions) {
  test(`a guest runs Node ${major} where it is told to`, { skip: skip || whyNoNode(major) }, async (t) => {
    const guest = await Guest.start({ node: testNode(major) }, t);
    assert.match(await guest.must('node', '--version'), new RegExp(`^v${major}\\.`));
  });
}
