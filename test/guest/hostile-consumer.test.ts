// A hostile consumer: the service's user has been taken over, and plants what it can wherever the agent looks. Then
// every command and the service run as root: nothing of it is executed, followed, printed raw or waited for without end.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { whyNoConsumer, whyNoStandIn } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { type Ran, until } from './support/process.js';
import { settings } from './support/scenario.js';
import { generous, installService } from './support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || whyNoStandIn();
const lib = '/usr/local/lib/ollama';
const theirs = '/srv/theirs';
/** As long as the name of the interpreter in programs of this machine, so that it can replace that name. */
const realInterpreter = '/lib64/ld-linux-x86-64.so.2';
const interpreter = `${theirs}/ld`.padEnd(realInterpreter.length, 'x');
/** The text of files that only root may read; no output may have it. */
const secret = 'the-word-that-only-root-may-read';

/** Run by the service's user inside the unit, after its start. */
const plant = `#!/bin/bash
cd ${theirs} || exit 1
exec >plant.log 2>&1
set -x
umask 0
unset LD_PRELOAD LD_LIBRARY_PATH
evil=$'\\n\\e[2J\\e]0;owned\\a\\u009b31m'

# A program of theirs, whose interpreter becomes a script once it runs.
cp ${realInterpreter} ${interpreter}
sed 's|${realInterpreter}|${interpreter}|' /bin/sleep >"prog$evil"
chmod 755 "prog$evil" ${interpreter}
setsid "./prog$evil" 100000 </dev/null &
disown
sleep 0.3
rm ${interpreter}
printf '#!/bin/sh\\nid -u >>${theirs}/executed-as\\n' >${interpreter}
chmod 755 ${interpreter}

# Libraries where the unit and the consumer look for them.
for directory in ${theirs}/lib ${lib} ${lib}/cuda_v13; do
  mkdir -p $directory
  mkfifo $directory/libcuda.so.1
  ln -s /root/secret $directory/libcuda.so
  ln -s /dev/zero $directory/libnvidia-ml.so.1
  ln -s libnvidia-ml.so $directory/libnvidia-ml.so
  mkfifo "$directory/libcuda.so.9$evil"
  head -c 64 /bin/true >"$directory/libggml-cuda.so.1$evil"
  truncate -s 1T "$directory/libcuda.so.2"
  cp /bin/true $directory/libcuda.so.3
  truncate -s 200G $directory/libcuda.so.3
  mkfifo $directory/libggml-base.so
  # Half an ELF file, and one of nothing but section headers.
  head -c 700 /bin/true >$directory/libggml-half.so
  { head -c 64 /bin/true; head -c 65536 /dev/urandom; } >$directory/libggml-noise.so
  perl -e 'symlink "/root/secret", "$ARGV[0]/libcuda.so.1.$_" for 0 .. 2999' $directory
done
ln -s ${theirs} ${lib}/loop
perl -e 'for (0 .. 299) { mkdir "deep"; chdir "deep" }'

# Files that the unit names: its log, its variables, its preload.
rm -f log && ln -s /root/secret log
rm -f env && ln -s /root/secret env
ln -s /root/secret "secret$evil"

# Files that root writes.
chmod 777 metrics
ln -s /root/victim metrics/.vgpu.prom.new
ln -sf /root/victim metrics/vgpu.prom

# The consumer's output.
printf 'time=2026-01-01T00:00:00Z level=INFO msg="inference compute" library=CUDA compute=9.0 name="%s" driver=12.4\\n' "$evil" >&9
head -c 200000 /dev/zero | tr '\\0' 'x' >&9
echo >&9
touch planted
head -c 64 /bin/true >preload.so
`;

/** Control characters that a terminal would obey; colours are off, so none is ours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the purpose
const raw = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/;

describe('files that a hostile consumer plants', { skip }, () => {
  let guest: Guest;

  before(async () => {
    guest = await Guest.start({}, undefined);
    await guest.hosts.start();
    await guest.must(
      'bash',
      '-c',
      `mkdir -p ${theirs}/metrics && echo ${secret} >/root/secret && echo untouched >/root/victim && chmod 600 /root/*`,
    );
    await installService(guest, {
      ...generous,
      metrics: { textfile: `${theirs}/metrics/vgpu.prom`, listen: null },
    });
    await guest.write(
      '/etc/systemd/system/vgpu-agent.service.d/metrics.conf',
      `[Service]\nReadWritePaths=${theirs}/metrics\n`,
    );
    await guest.write(`${theirs}/plant`, plant, 0o755);
    await guest.must('chown', '-R', 'ollama:ollama', theirs, lib);
    const named = [
      `Environment=LD_LIBRARY_PATH=${theirs}/lib "NAME=\\x1b[2J"`,
      `Environment=LD_PRELOAD=${theirs}/preload.so`,
      `EnvironmentFile=-${theirs}/env`,
      `StandardOutput=append:${theirs}/log`,
    ];
    await settings(guest, ...named, `ExecStartPost=-/bin/bash -c '${theirs}/plant 9>&1'`);
    await guest.must('systemctl', 'restart', 'vgpu-agent', 'ollama');
    // From now on a start of the unit does only what the planted files make of it.
    await settings(guest, ...named);
    await guest.must('test', '-e', `${theirs}/planted`);
  });
  after(() => guest.stop());

  /** The output of a run, compared with the rule. */
  async function sound(ran: Ran, what: string): Promise<void> {
    const said = ran.stdout + ran.stderr;
    assert.notEqual(ran.code, null, `${what} was waited for without end`);
    assert.notEqual(ran.code, 1, `${what}: ${said}`);
    const at = raw.exec(said)?.index ?? -1;
    assert.equal(at, -1, `${what} prints raw: ${JSON.stringify(said.slice(at - 200, at + 50))}`);
    assert.ok(!said.includes(secret), `${what} tells what only root may read`);
    assert.equal(
      (await guest.run('cat', `${theirs}/executed-as`)).stdout,
      '',
      `${what} ran their interpreter`,
    );
    assert.equal(await guest.read('/root/victim'), 'untouched\n', `${what} wrote through a link`);
  }

  const commands: readonly (readonly [string, ...string[]])[] = [
    ['status'],
    ['status', '--fresh'],
    ['status', '--fresh', '--json'],
    ['verify', '--timeout', '5'],
    ['plan'],
    ['plan', '--json'],
    ['doctor'],
    ['doctor', '--json'],
    ['doctor', '--report', '/root/report.tar.gz', '--yes'],
    ['install', '--yes', '--timeout', '5'],
    ['doctor', '--fix', '--yes', '--timeout', '5'],
    ['doctor', '--trace', '--yes', '--timeout', '5'],
    ['explain-log', '--profile', 'ollama', `${theirs}/plant.log`],
    ['metrics'],
    ['version'],
    ['uninstall', '--dry-run'],
  ];
  for (const command of commands) {
    test(`vgpu-agent ${command.join(' ')}`, async () => {
      const ran = await guest.agent('--no-color', ...command);
      await sound(ran, command.join(' '));
    });
  }

  test('a report has nothing in it that only root may read', async () => {
    const packed = await guest.run('sh', '-c', `tar -xzOf /root/report.tar.gz | grep -c ${secret}`);
    assert.equal(packed.stdout.trim(), '0');
  });

  test('the service continues, and does not write its metrics through a link', async () => {
    assert.equal(await guest.property('vgpu-agent', 'ActiveState'), 'active');
    assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0');
    const metrics = await guest.run('sh', '-c', `test ! -L ${theirs}/metrics/vgpu.prom`);
    assert.equal(metrics.code, 0, 'the link is replaced');
  });

  test('only root can hold the lock', async () => {
    const held = await guest.runWith({ user: 'nobody' }, 'flock', '-n', '/run/vgpu-agent/lock', 'true');
    assert.notEqual(held.code, 0);
  });

  test('a directory named agent.json is reported, and the previous configuration stays in force', async () => {
    await guest.must('sh', '-c', 'mv /etc/vgpu-agent/agent.json /root/; mkdir /etc/vgpu-agent/agent.json');
    await guest.run('systemctl', 'reload', 'vgpu-agent');
    await guest.must('systemctl', 'restart', 'vgpu-agent');
    // Before the service's first check, `status` makes its own and cannot report which settings are in force.
    await until('the service has looked', 60_000, async () =>
      (await guest.agent('status')).stdout.includes('agent.json is not valid and not in force: ')
        ? true
        : undefined,
    );
    const fresh = await guest.agent('status', '--fresh');
    await sound(fresh, 'status --fresh');
    assert.match(fresh.stdout, /^agent\.json {2}is not valid: /m);
    assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0');
    await guest.must('sh', '-c', 'rmdir /etc/vgpu-agent/agent.json; mv /root/agent.json /etc/vgpu-agent/');
  });

  test('everything can be taken back', async () => {
    const ran = await guest.agent('--no-color', 'uninstall', '--yes');
    await sound(ran, 'uninstall');
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  });
});
