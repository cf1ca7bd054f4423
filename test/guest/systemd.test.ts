/** agent/systemd/ against a real systemd and journald. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Guest, whyNoGuest } from './support/guest.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';

const skip = whyNoGuest();
const driver = join(repository, 'dist/test/guest/drivers/systemd.js');

type Json = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

describe('agent/systemd in a guest', { skip }, () => {
  let guest: Guest;

  before(async () => {
    guest = await Guest.start();
  });
  after(() => guest.stop());

  async function ask(...args: readonly string[]): Promise<unknown> {
    const ran = await guest.run('node', driver, ...args);
    const line = ran.stdout.trim();
    assert.notEqual(line, '', ran.stderr);
    return JSON.parse(line);
  }

  async function object(...args: readonly string[]): Promise<Json> {
    const answer = await ask(...args);
    assert.ok(isObject(answer), JSON.stringify(answer));
    return answer;
  }

  /** Writes a unit and makes systemd read it. */
  async function define(name: string, content: string, dropIn?: string): Promise<void> {
    await guest.write(`/etc/systemd/system/${name}`, content);
    if (dropIn !== undefined) await guest.write(`/etc/systemd/system/${name}.d/10-test.conf`, dropIn);
    await guest.must('systemctl', 'daemon-reload');
  }

  test('a loaded unit includes the settings that only its files have', async () => {
    await guest.write('/etc/default/full', 'FROM_FILE=1\n');
    await define(
      'full.service',
      `[Service]
ExecStart=/bin/sleep 1000
User=nobody
Environment=A=1 "B=two words"
EnvironmentFile=-/etc/default/full
StandardOutput=append:/var/log/full.log
RestrictAddressFamilies=AF_INET
`,
      '[Service]\nEnvironment=A=2\n',
    );
    await guest.must('systemctl', 'start', 'full.service');
    const unit = await object('unit', 'full.service');
    assert.equal(unit['kind'], 'loaded');
    assert.equal(unit['fragment'], '/etc/systemd/system/full.service');
    assert.deepEqual(unit['dropIns'], [
      { path: '/etc/systemd/system/full.service.d/10-test.conf', content: '[Service]\nEnvironment=A=2\n' },
    ]);
    assert.deepEqual(unit['environment'], { A: '2', B: 'two words' });
    assert.deepEqual(unit['environmentFiles'], ['-/etc/default/full']);
    assert.deepEqual(unit['execStart'], ['/bin/sleep', '1000']);
    assert.equal(unit['standardOutput'], 'append:/var/log/full.log');
    assert.equal(unit['standardError'], 'append:/var/log/full.log');
    assert.equal(unit['invocationId'], await guest.invocationId('full.service'));
    assert.equal(unit['activeState'], 'active');
    assert.ok(isObject(unit['sandbox']));
    assert.deepEqual(unit['sandbox']['restrictAddressFamilies'], { deny: false, families: ['AF_INET'] });
    assert.deepEqual(await ask('processes', 'full.service'), [unit['mainPid']]);
  });

  test('absent, masked and bad units are three different things', async () => {
    await guest.must('ln', '-s', '/dev/null', '/etc/systemd/system/masked.service');
    await define('bad.service', '[Service]\nUser=nobody\n');
    assert.deepEqual(await ask('unit', 'nothing.service'), { kind: 'absent', name: 'nothing.service' });
    assert.deepEqual(await ask('unit', 'masked.service'), {
      kind: 'masked',
      name: 'masked.service',
      path: '/etc/systemd/system/masked.service',
    });
    const bad = await object('unit', 'bad.service');
    assert.equal(bad['kind'], 'bad');
    assert.equal(bad['loadState'], 'bad-setting');
    assert.match(String(bad['message']), /bad\.service has a bad unit file setting/);
  });

  test('a restart is awaited, and its result told', async () => {
    await define('good.service', '[Service]\nType=exec\nExecStart=/bin/sleep 1000\n');
    await define('broken.service', '[Service]\nType=exec\nExecStart=/nonexistent\n');
    await define('once.service', '[Service]\nType=oneshot\nExecStart=/bin/sleep 0.3\n');
    assert.equal(await ask('restart', 'good.service', '10000'), 'done');
    const first = await guest.invocationId('good.service');
    assert.equal(await ask('restart', 'good.service', '10000'), 'done');
    assert.notEqual(await guest.invocationId('good.service'), first);
    assert.equal(await ask('restart', 'broken.service', '10000'), 'failed');
    assert.equal(await ask('restart', 'once.service', '10000'), 'done');
    assert.equal(
      await guest.property('once.service', 'ActiveState'),
      'inactive',
      'the job was awaited to its end',
    );
  });

  test('several restarts at once each get their own result', async () => {
    const results = await ask('restart-all', 'good.service', 'broken.service', 'once.service');
    assert.deepEqual(results, ['done', 'failed', 'done']);
  });

  test('a restart that takes too long is a failure that names the unit and a command', async () => {
    await define('slow.service', '[Service]\nType=oneshot\nExecStart=/bin/sleep 1000\n');
    const { error } = await object('restart', 'slow.service', '300');
    assert.ok(isObject(error));
    assert.equal(error['kind'], 'failed');
    assert.match(String(error['message']), /slow\.service within 0\.3 s/);
    assert.match(String(error['remedy']), /systemctl status slow\.service/);
    await guest.must('systemctl', 'kill', '--signal=SIGKILL', 'slow.service');
  });

  test('restarting what does not exist or is masked says so', async () => {
    const message = async (unit: string): Promise<string> => {
      const { error } = await object('restart', unit, '1000');
      return isObject(error) ? String(error['message']) : 'no error';
    };
    assert.match(await message('nothing.service'), /nothing\.service not found/);
    assert.match(await message('masked.service'), /masked\.service is masked/);
  });

  test('many restarts within seconds are not refused by the start limit', async () => {
    await define('often.service', '[Unit]\nStartLimitBurst=2\n[Service]\nExecStart=/bin/sleep 1000\n');
    for (let round = 0; round < 5; round += 1) {
      assert.equal(await ask('restart', 'often.service', '10000'), 'done', `round ${round}`);
    }
    assert.equal(await guest.property('often.service', 'ActiveState'), 'active');
  });

  describe('the journal', () => {
    let talker = 0;

    interface Following {
      readonly unit: string;
      messages(): readonly string[];
      cursors(): readonly string[];
      say(...lines: readonly string[]): Promise<void>;
      stop(): Promise<void>;
    }

    /** Follows the unit of a new talker; what it says is written into its FIFO. */
    async function follow(
      /** Gives the cursor to follow from; '' is the journal's end. */
      beforehand: (unit: string, say: Following['say']) => Promise<string> = async () => '',
    ): Promise<Following> {
      talker += 1;
      const name = `talker${talker}`;
      const pipe = `/run/${name}`;
      await guest.must('mkfifo', pipe);
      await define(
        `${name}.service`,
        // Opened for writing too, so that the reader never sees an end.
        `[Service]\nExecStart=/bin/sh -c 'exec cat <>${pipe}'\nLogRateLimitIntervalSec=0\n`,
      );
      await guest.must('systemctl', 'start', `${name}.service`);
      const say: Following['say'] = async (...lines) => {
        await guest.runWith({ stdin: lines.map((line) => `${line}\n`).join('') }, 'tee', pipe);
      };
      const cursor = await beforehand(`${name}.service`, say);
      let output = '';
      const child: ChildProcess = guest.spawn(['node', driver, 'follow', `${name}.service`, cursor], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
      child.stdout?.on('data', (chunk: Buffer) => {
        output += chunk.toString();
      });
      const entries = (): Json[] =>
        output
          .split('\n')
          .slice(1, -1)
          .map((line): unknown => JSON.parse(line))
          .filter(isObject);
      await until('the follower follows', 60_000, () => (output.includes('following') ? true : undefined));
      return {
        unit: `${name}.service`,
        messages: () => entries().map((entry) => String(entry['message'])),
        cursors: () => entries().map((entry) => String(entry['cursor'])),
        say,
        stop: async () => {
          child.kill('SIGTERM');
          await ended;
        },
      };
    }

    async function heard(following: Following, last: string): Promise<readonly string[]> {
      await until(`the follower hears ${last}`, 60_000, () =>
        following.messages().includes(last) ? true : undefined,
      );
      return following.messages();
    }

    const numbered = (from: number, to: number): string[] =>
      Array.from({ length: to - from }, (_, index) => `line ${from + index}`);

    test('rotation in the middle of the following loses and doubles nothing', async () => {
      const following = await follow();
      for (let round = 0; round < 10; round += 1) {
        await following.say(...numbered(round * 100, round * 100 + 100));
        await guest.must('journalctl', '--rotate');
      }
      assert.deepEqual(await heard(following, 'line 999'), numbered(0, 1000));
      await following.stop();
    });

    test('an entry right after one of another unit is not lost', async () => {
      const following = await follow(async (unit, say) => {
        await guest.must('logger', '--tag', 'other', 'something else');
        const cursor = await ask('tail');
        await say(...numbered(0, 3));
        await until('the lines are in the journal', 60_000, async () =>
          (await guest.must('journalctl', '-u', unit)).includes('line 2') ? true : undefined,
        );
        return String(cursor);
      });
      assert.deepEqual(await heard(following, 'line 2'), numbered(0, 3));
      await following.stop();
    });

    test('a vacuum of entries that were read loses and doubles nothing', async () => {
      const following = await follow();
      await following.say(...numbered(0, 50));
      await heard(following, 'line 49');
      await guest.must('journalctl', '--rotate');
      await guest.must('journalctl', '--vacuum-files=1');
      await following.say(...numbered(50, 100));
      assert.deepEqual(await heard(following, 'line 99'), numbered(0, 100));
      await following.stop();
    });

    test('a journalctl that dies is started again where it was', async () => {
      const following = await follow();
      await following.say(...numbered(0, 10));
      await heard(following, 'line 9');
      const pid = (await guest.must('pgrep', '-f', `journalctl.*--follow.*${following.unit}`)).trim();
      assert.match(pid, /^\d+$/, 'exactly one follower');
      await guest.must('kill', '-KILL', pid);
      await following.say(...numbered(10, 20));
      assert.deepEqual(await heard(following, 'line 19'), numbered(0, 20));
      assert.equal(new Set(following.cursors()).size, following.cursors().length);
      await following.stop();
    });

    test('a journald that restarts is followed on', async () => {
      const following = await follow();
      await following.say('before');
      await heard(following, 'before');
      await guest.must('systemctl', 'restart', 'systemd-journald.service');
      await following.say('after');
      assert.deepEqual(await heard(following, 'after'), ['before', 'after']);
      await following.stop();
    });

    test('bytes that are not UTF-8 and very long lines arrive', async () => {
      const following = await follow();
      await guest.must(
        'sh',
        '-c',
        `printf 'bad \\377\\376 bytes\\n' >/run/${following.unit.replace('.service', '')}`,
      );
      await following.say('x'.repeat(20_000), 'end');
      const messages = await heard(following, 'end');
      assert.equal(messages[0], 'bad \ufffd\ufffd bytes');
      assert.equal(messages[1]?.length, 20_000);
      await following.stop();
    });

    test('nothing of journalctl is left when the following ends', async () => {
      const following = await follow();
      await following.stop();
      await until('nothing is left', 60_000, async () =>
        (await guest.run('pgrep', '-f', `journalctl.*${following.unit}`)).stdout === '' ? true : undefined,
      );
    });

    test('one start is read without the lines of the one before', async () => {
      await define(
        'twice.service',
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo I am $INVOCATION_ID; journalctl --sync'\n",
      );
      await guest.must('systemctl', 'restart', 'twice.service');
      const first = await guest.invocationId('twice.service');
      await guest.must('systemctl', 'restart', 'twice.service');
      const second = await guest.invocationId('twice.service');
      await guest.must('journalctl', '--sync');
      for (const [own, other] of [
        [first, second],
        [second, first],
      ] as const) {
        const entries = await ask('read', 'twice.service', own);
        assert.ok(Array.isArray(entries));
        const messages = entries.map((entry: Json) => String(entry['message']));
        assert.ok(messages.includes(`I am ${own}`), messages.join('\n'));
        assert.ok(!messages.includes(`I am ${other}`), messages.join('\n'));
      }
    });

    test('our own entry is found by its message ID and by the unit it is about', async () => {
      await guest.must('node', driver, 'write', 'ollama.service');
      await guest.must('journalctl', '--sync');
      const entry: unknown = JSON.parse(
        await guest.must('journalctl', '-o', 'json', 'VGPU_UNIT=ollama.service'),
      );
      assert.ok(isObject(entry));
      assert.equal(entry['SYSLOG_IDENTIFIER'], 'vgpu-agent');
      assert.equal(entry['VGPU_CHANGES'], '3');
      assert.match(String(entry['MESSAGE_ID']), /^[0-9a-f]{32}$/);
    });
  });

  describe('the probe', () => {
    /** A program that tells how it was run, in the probe's place. */
    async function install(script: string): Promise<void> {
      await guest.write('/opt/fake-probe', `#!/bin/sh\n${script}\n`, 0o755);
    }

    async function probe(unit: string, timeoutMs = '5000'): Promise<Json> {
      return object('probe', unit, '/opt/fake-probe', timeoutMs);
    }

    test("runs as the service's user, in its environment and behind its sandbox", async () => {
      await guest.write('/etc/default/boxed', 'FROM_FILE=yes\n');
      await define(
        'boxed.service',
        `[Service]
ExecStart=/bin/sleep 1000
User=nobody
Environment="WORDS=a b%%n\\"c"
EnvironmentFile=/etc/default/boxed
PrivateNetwork=yes
NoNewPrivileges=yes
`,
      );
      await install(
        'echo "$(id -un)|$WORDS|$FROM_FILE|$(ls /sys/class/net | tr "\\n" " ")|$(grep NoNewPrivs /proc/self/status | tr -d "\\t")|$*"',
      );
      const ran = await probe('boxed.service');
      assert.equal(ran['kind'], 'ran', JSON.stringify(ran));
      assert.equal(ran['exitCode'], 0);
      const [user, words, fromFile, , privileges, args] = String(ran['stdout']).trim().split('|');
      assert.deepEqual([user, words, fromFile], ['nobody', 'a b%n"c', 'yes']);
      assert.equal(privileges, 'NoNewPrivs:1');
      assert.equal(args, '--json --timeout 5');
    });

    test('that crashes, hangs or exits is three different ends', async () => {
      await install('kill -SEGV $$');
      assert.equal((await probe('boxed.service'))['signal'], 'SEGV');
      await install('sleep 100');
      assert.equal((await probe('boxed.service', '500'))['timedOut'], true);
      await install('echo out; echo err >&2; exit 7');
      const ran = await probe('boxed.service');
      assert.deepEqual([ran['exitCode'], ran['stdout'], String(ran['stderr']).trim()], [7, 'out\n', 'err']);
    });

    test('for a user that does not exist did not run, and says why', async () => {
      await define('nobody-there.service', '[Service]\nExecStart=/bin/true\nUser=no-such-user\n');
      const ran = await probe('nobody-there.service');
      assert.deepEqual(ran, {
        kind: 'not-run',
        message: 'the user "no-such-user" of nobody-there.service does not exist',
      });
    });

    test('leaves no unit behind', async () => {
      const list = ['systemctl', 'list-units', '--all', '--no-legend', 'vgpu-probe-*'] as const;
      await until('no unit is left', 60_000, async () =>
        (await guest.must(...list)).trim() === '' ? true : undefined,
      );
    });
  });
});
