// The service under a real systemd: boot, readiness, death, reload, stop, the bus, and taking it away.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, differences, documentOf, prepareConsumer } from '../support/installed.js';
import { journalctl } from '../support/journal.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import {
  documentOnBus,
  entries,
  installService,
  linkTarget,
  property,
  publicLink,
  repairs,
  said,
  settledOnGpu,
  status,
  untilEntry,
} from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

describe('one guest with the service', { skip }, () => {
  let guest: Guest;
  after(() => guest.stop());
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await installService(guest);
  });

  test('systemd-analyze security gives 2.5 or better, and verify finds nothing', async () => {
    const text = await guest.must('systemd-analyze', 'security', '--no-pager', 'vgpu-agent.service');
    const score = Number(/Overall exposure level for vgpu-agent\.service: ([0-9.]+)/.exec(text)?.[1]);
    assert.ok(score <= 2.5, `${score}`);
    const verify = await guest.run('systemd-analyze', 'verify', '--man=no', 'vgpu-agent.service');
    assert.doesNotMatch(verify.stderr, /vgpu-agent/);
  });

  test('man finds its pages, and the shells that are here their completion', async () => {
    if ((await guest.run('sh', '-c', 'command -v man')).code === 0) {
      for (const page of ['vgpu-agent', 'vgpu-agent.json', 'vgpu-doctor'])
        assert.match(await guest.must('man', '-w', page), /^\/usr\/share\/man\/man\d\//);
    }
    const directory = '/usr/share/bash-completion/completions';
    if ((await guest.run('test', '-d', directory)).code === 0)
      assert.match(await guest.read(`${directory}/vgpu-agent`), /complete -F _vgpu_agent vgpu-agent/);
  });

  test('systemctl status shows the state, and that the GPU is simulated', async () => {
    assert.match(
      await guest.must('systemctl', 'status', '--no-pager', 'vgpu-agent'),
      /Status: "settled, gpu \(simulated\)"/,
    );
  });

  test('status asks the service, and says the same as the schema', async () => {
    const ran = await guest.agent('status', '--json');
    const document = assertDocument('status', ran.stdout);
    assert.equal(ran.code, 0);
    assert.equal(at(document, 'service', 'state'), 'settled');
    assert.equal(at(document, 'verdict', 'simulated'), true);
    assert.match(String(at(document, 'host', 'answer', 'device')), /\(simulated\)$/);
  });

  test('a property that JavaScript objects inherit is refused to any user, and the service goes on', async () => {
    const before = await guest.property('vgpu-agent', 'MainPID');
    for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
      const ran = await guest.runWith(
        { user: 'nobody' },
        ...['busctl', 'get-property', 'org.vgpu.Agent1', '/org/vgpu/Agent1', 'org.vgpu.Agent1', name],
      );
      assert.match(ran.stderr, new RegExp(`there is no property ${name}`));
    }
    assert.equal(await property(guest, 'Verdict'), 's "gpu"');
    assert.equal(await guest.property('vgpu-agent', 'MainPID'), before);
    assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0');
  });

  test('everybody may read on the bus, to act one needs to be root or allowed by polkit', async () => {
    const asUser = (...args: readonly string[]) =>
      guest.runWith({ user: 'nobody' }, 'busctl', 'call', 'org.vgpu.Agent1', '/org/vgpu/Agent1', ...args);
    const read = await asUser('org.freedesktop.DBus.Properties', 'Get', 'ss', 'org.vgpu.Agent1', 'Verdict');
    assert.equal(read.stdout.trim(), 'v s "gpu"', read.stderr);
    assert.match((await asUser('org.vgpu.Agent1', 'Metrics')).stdout, /vgpu_verdict/);
    for (const method of ['Verify', 'Repair', 'Reload']) {
      const ran = await asUser('org.vgpu.Agent1', method);
      assert.notEqual(ran.code, 0);
      assert.match(ran.stderr, /Access denied/);
    }
    const rule = '/etc/polkit-1/rules.d/40-test.rules';
    const text = `polkit.addRule(function(action, subject) {
      if (action.id == "org.vgpu.Agent1.verify" && subject.user == "nobody") return polkit.Result.YES;
    });`;
    // Written inside: polkitd watches the directory.
    await guest.runWith({ stdin: text }, 'tee', rule);
    // polkitd notices the file by itself, a moment later.
    const allowed = await until('polkit to know the rule', 60_000, async () => {
      const ran = await asUser('org.vgpu.Agent1', 'Verify');
      return ran.code === 0 ? ran.stdout : undefined;
    });
    assert.match(allowed, /\\"mode\\":\\"gpu\\"/);
    assert.notEqual((await asUser('org.vgpu.Agent1', 'Repair')).code, 0, 'the rule is for Verify alone');
    await guest.must('rm', rule);
    // Without polkit only root is allowed.
    await guest.must('systemctl', 'mask', '--runtime', '--now', '--quiet', 'polkit');
    assert.match((await asUser('org.vgpu.Agent1', 'Verify')).stderr, /Access denied/);
    await guest.must('systemctl', 'unmask', '--runtime', '--quiet', 'polkit');
    const verify = await guest.must(
      'busctl',
      'call',
      'org.vgpu.Agent1',
      '/org/vgpu/Agent1',
      'org.vgpu.Agent1',
      'Verify',
    );
    assert.match(verify, /\\"mode\\":\\"gpu\\"/);
  });

  test('the introspection document is that of the repository, and busctl can read it', async () => {
    const text = await guest.must('busctl', 'introspect', 'org.vgpu.Agent1', '/org/vgpu/Agent1');
    for (const name of [
      'Verdict',
      'Evidence',
      'Drift',
      'Host',
      'Version',
      'Profiles',
      'Verify',
      'Repair',
      'Reload',
      'VerdictChanged',
      'DriftFound',
      'Repaired',
    ]) {
      assert.match(text, new RegExp(`^\\.${name} `, 'm'), name);
    }
  });

  test('metrics tell the verdict, and promtool-like lines parse', async () => {
    const text = await guest.must('vgpu-agent', 'metrics');
    assert.match(
      text,
      /^vgpu_verdict\{profile="ollama",unit="ollama\.service",mode="gpu",simulated="1",reason=""\} 1$/m,
    );
    assert.match(text, /^vgpu_host_up 1$/m);
    assert.match(text, /^vgpu_agent_info\{version="[0-9.]+",profile="ollama",unit="ollama.service"\} 1$/m);
    for (const line of text.split('\n').filter((one) => one !== ''))
      assert.match(line, /^(#|[a-z_]+(\{.*\})? [0-9.e+-]+$)/);
  });

  test('sends a signal for a drift and one for its repair', async () => {
    const rule = "type='signal',interface='org.vgpu.Agent1'";
    const child = guest.spawn(['busctl', 'monitor', '--json=short', '--match', rule], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
    }
    try {
      await until('busctl listens', 60_000, () => (text.includes('Monitoring') ? true : undefined));
      await repairs(
        guest,
        () => guest.must('rm', publicLink),
        async () => (await linkTarget(guest)) !== '',
      );
      await until('both signals', 60_000, () =>
        /"member":"DriftFound"[\s\S]*"member":"Repaired"/.test(text) ? true : undefined,
      );
    } finally {
      child.kill('SIGTERM');
    }
  });

  test('journalctl -x explains the entries of the service', async () => {
    const text = await journalctl(guest, '--no-pager', '--catalog', '--unit=vgpu-agent.service');
    assert.match(text, /repaired in/);
    assert.match(text, /Drift was repaired/);
    // journald takes one of the two @ of a field that the entry does not have.
    const unfilled = /@VGPU_|VGPU_[A-Z]+@|VGPU_(REASON|PROFILE|PATHS)/;
    assert.doesNotMatch(text, unfilled, 'every field that an explanation names is in its entry');
    const catalog = await guest.must('journalctl', '--list-catalog');
    for (const [kind, id] of Object.entries(messageIds)) assert.ok(catalog.includes(id), kind);
  });

  test('a bad agent.json is refused with every problem, and the former one stays in force', async () => {
    const good = await guest.read('/etc/vgpu-agent/agent.json');
    await guest.write(
      '/etc/vgpu-agent/agent.json',
      '{\n  "schema": 1,\n  "repai": "x",\n  "checkMinutes": -1\n}\n',
    );
    const line = await untilEntry(guest, messageIds.configRefused);
    assert.match(line, /is not valid, so the service keeps its current settings/);
    const all = (await said(guest)).replaceAll('\n', ' ');
    assert.match(all, /line 3.*repai: unknown key/);
    assert.match(all, /line 4.*checkMinutes/);
    assert.match(await property(guest, 'ConfigProblem'), /repai/);
    const reload = await guest.run('systemctl', 'reload', 'vgpu-agent');
    assert.notEqual(reload.code, 0, 'systemctl reload tells it too');
    await guest.write('/etc/vgpu-agent/agent.json', good);
    await guest.must('systemctl', 'reload', 'vgpu-agent');
    assert.equal(await property(guest, 'ConfigProblem'), 's ""');
  });

  test('killed with SIGKILL it starts again, and continues to repair', async () => {
    for (const which of ['vgpu-watch', 'node']) {
      const main = await guest.property('vgpu-agent', 'MainPID');
      const victim = which === 'vgpu-watch' ? main : (await guest.must('pgrep', '-P', main, 'node')).trim();
      await guest.must('kill', '-KILL', victim);
      await until(`${which}: another main process`, 60_000, async () => {
        const now = await guest.property('vgpu-agent', 'MainPID');
        return now !== main && now !== '0' ? now : undefined;
      });
      await settledOnGpu(guest);
      await repairs(
        guest,
        () => guest.must('ln', '-sfn', '/nonexistent', publicLink),
        async () => (await linkTarget(guest)) === '/opt/vgpu/current/libcuda.so.1',
      );
    }
  });

  test('status looks for itself while the service has not judged the consumer yet', async () => {
    // A frozen host makes the service's first judgement take seconds. On a busy machine the question may take longer: again.
    await guest.hosts.freeze();
    const [asRoot, asUser] = await until('an answer before the service has judged', 300_000, async () => {
      await guest.must('sh', '-c', 'systemctl reset-failed vgpu-agent; systemctl restart vgpu-agent');
      await until('the service to settle', 60_000, async () =>
        at(await documentOnBus(guest), 'service', 'state') === 'settled' ? true : undefined,
      );
      const root = guest.agent('status', '--json');
      const user = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'status');
      const judged = at(await documentOnBus(guest), 'verdict') !== null;
      const answers = [await root, user] as const;
      return judged ? undefined : answers;
    }).finally(() => guest.hosts.thaw());
    const document = assertDocument('status', asRoot.stdout);
    assert.equal(at(document, 'verdict', 'mode'), 'degraded', asRoot.stdout);
    assert.deepEqual(at(document, 'consumers', 0, 'verdict'), at(document, 'verdict'));
    assert.equal(at(document, 'service', 'state'), 'settled');
    assert.equal(asRoot.code, 5);
    assert.match(asUser.stdout, /has no verdict on this start yet: sudo vgpu-agent verify/);
    assert.equal(asUser.code, 4);
    await settledOnGpu(guest);
  });

  test('frozen, the watchdog ends it and it is back', async () => {
    const main = await guest.property('vgpu-agent', 'MainPID');
    await guest.must('kill', '-STOP', (await guest.must('pgrep', '-P', main, 'node')).trim());
    await until('the watchdog', 60_000, async () => {
      const now = await guest.property('vgpu-agent', 'MainPID');
      return now !== main && now !== '0' ? now : undefined;
    });
    assert.match(await journalctl(guest, '-u', 'vgpu-agent', '--no-pager', '-q'), /Watchdog timeout/);
    await settledOnGpu(guest);
  });

  test('it stops within two seconds and says so', async () => {
    await guest.must('systemctl', 'stop', 'vgpu-agent');
    const microseconds = async (name: string): Promise<number> =>
      Number(await guest.property('vgpu-agent', `${name}TimestampMonotonic`));
    const took = (await microseconds('InactiveEnter')) - (await microseconds('ActiveExit'));
    // The service's own limit is 2 s; a busy machine adds to it. systemd kills the service after 10 s.
    assert.ok(took < 9_000_000, `${took / 1e6} s`);
    assert.equal(await guest.property('vgpu-agent', 'Result'), 'success');
    assert.equal(
      at(JSON.parse((await guest.agent('status', '--json')).stdout), 'service'),
      undefined,
      'status looks itself',
    );
    await guest.must('systemctl', 'start', 'vgpu-agent');
    await settledOnGpu(guest);
  });

  test('it starts at boot before the consumer, which is on the GPU then', async () => {
    await guest.reboot();
    await settledOnGpu(guest);
    const started = async (unit: string): Promise<number> =>
      Number(await guest.property(unit, 'ActiveEnterTimestampMonotonic'));
    assert.ok((await started('vgpu-agent')) <= (await started('ollama')));
    assert.equal(await guest.property('ollama', 'NRestarts'), '0');
    assert.deepEqual(at(await status(guest), 'service', 'restarts'), 0, 'no restart was needed');
  });

  test('its cost: little more than a bare Node, and asleep but for the watchdog', async (t) => {
    const main = await guest.property('vgpu-agent', 'MainPID');
    const node = (await guest.must('pgrep', '-P', main)).trim();
    const switches = async (pid: string): Promise<number> => {
      const text = await guest.must('bash', '-c', `cat /proc/${pid}/task/*/status 2>/dev/null; true`);
      return [...text.matchAll(/^voluntary_ctxt_switches:\s+(\d+)/gm)].reduce(
        (sum, one) => sum + Number(one[1]),
        0,
      );
    };
    // Without the programs that the service runs for its checks, which end.
    const followers = `pgrep -x -P ${node} journalctl`;
    const all = (await guest.must('sh', '-c', `echo ${main} ${node} $(${followers})`)).trim().split(' ');
    assert.ok(all.length >= 3, 'journalctl follows the consumer');
    const pages = join(repository, 'dist/test/guest/support/pages.js');
    const bare = Number(
      await guest.must(
        'bash',
        '-c',
        `exec 3< <(exec node -e 'setInterval(() => {}, 1e6); console.log(1)'); read -r <&3; sleep 2; node ${pages} $!; kill $!`,
      ),
    );
    // Node itself grows from version to version: of 20, which CI has, the sum is known.
    const major = Number(/^v(\d+)/.exec(await guest.must('node', '--version'))?.[1]);
    const limit = major === 20 ? 60 : bare + 24;
    // The garbage of the start is collected at the service's next two ticks (agent/service/own-process.ts).
    let together = Number.POSITIVE_INFINITY;
    for (let second = 0; second < 32 && together >= limit; second += 2) {
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      together = Number(await guest.must('node', pages, ...all));
    }
    t.diagnostic(`${together} MB with vgpu-watch and journalctl, each page once; a bare Node ${bare} MB`);
    assert.ok(together < limit, `${together} MB, not under ${limit}`);
    // Threads that wait for a busy processor wake one another more often, so one calm window out of three is enough.
    const seconds = 20;
    // The watchdog; and every 5 s a look at the consumer and the host, whose answers wake node some 20 times.
    const watchdog = 3 * (seconds / 5 + 1);
    const most = [watchdog + 25 * (seconds / 5 + 1), watchdog] as const;
    const calm = (counts: readonly number[]): boolean => counts.every((one, at) => one <= (most[at] ?? 0));
    let woke: readonly number[] = [];
    for (let window = 0; window < 3 && !(woke.length > 0 && calm(woke)); window += 1) {
      const before = [await switches(node), await switches(main)];
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      const after = [await switches(node), await switches(main)];
      woke = after.map((one, at) => one - (before[at] ?? 0));
    }
    assert.ok(
      calm(woke),
      `node and vgpu-watch woke ${woke.join(' and ')} times in ${seconds} s, more than ${most.join(' and ')}`,
    );
  });
});

test('install --no-service takes only the service away, and leaves no failed unit when its stop is killed', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, 3);
  documentOf(await guest.agent('install', '--yes', '--json'));
  const before = await guest.listing(['/etc', '/usr', '/opt']);
  documentOf(await guest.agent('install', '--service', '--yes', '--json'));
  await settledOnGpu(guest);
  const start = await guest.invocationId('vgpu-agent');
  assert.equal((await guest.agent('install', '--service', '--yes')).code, 0);
  assert.equal(await guest.invocationId('vgpu-agent'), start, 'the second install restarts nothing');
  // The unit file is gone before the stop, so the default limit applies: systemd kills the service.
  await guest.write('/run/systemd/system.conf.d/stop.conf', '[Manager]\nDefaultTimeoutStopSec=1ms\n');
  documentOf(await guest.agent('install', '--no-service', '--yes', '--json'));
  assert.deepEqual(differences(before, await guest.listing(['/etc', '/usr', '/opt'])), []);
  assert.match(await journalctl(guest, '-q', '-u', 'vgpu-agent'), /stop-sigterm' timed out/);
  assert.equal(await guest.property('vgpu-agent', 'ActiveState'), 'inactive', 'not failed');
});

test('with the host down the boot is not held up, and the consumer is on the GPU when the host comes', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);
  await guest.hosts.stop();
  await guest.reboot();
  const ready = Number(await guest.property('vgpu-agent', 'ActiveEnterTimestampMonotonic'));
  const begun = Number(await guest.property('vgpu-agent', 'InactiveExitTimestampMonotonic'));
  // It waits 3 s for the host; the rest is this machine's own time.
  assert.ok(ready - begun < 30_000_000, `${(ready - begun) / 1e6} s`);
  await until('the verdict CPU', 60_000, async () =>
    (await property(guest, 'Verdict')) === 's "cpu"' ? true : undefined,
  );
  await guest.hosts.start();
  await untilEntry(guest, messageIds.consumerRestarted);
  await settledOnGpu(guest);
  assert.equal((await entries(guest, messageIds.consumerRestarted)).length, 1);
});
