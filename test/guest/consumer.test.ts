// The Ollama stand-in, held against the logs of the real servers it stands for: the same situation must
// give the same lines, word for word and field for field, but for times, ports, sizes and names.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type ConsumerDesign, long, whyNoStandIn } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';

const skip = whyNoGuest() || whyNoStandIn();
const PUBLIC = '/usr/lib/x86_64-linux-gnu/libcuda.so.1';
const REAL_550 = '/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01';
const PRELOADED = '/opt/elsewhere/libcuda.so.1';

interface Situation {
  /** The log of the real server, without _debug0.log. */
  readonly log: string;
  readonly design: ConsumerDesign;
  /** Which invented libcuda.so.1 is there: none, one with a device, or one without cuCtxCreate_v3. */
  readonly driver?: 'fake' | 'old';
  /** Where it is; the public place unless given. */
  readonly at?: string;
  /** Whether an invented NVML is there. */
  readonly nvml?: boolean;
  readonly env?: Readonly<Record<string, string>>;
  /** The library directories that are there; all that the design has unless given. */
  readonly directories?: readonly string[];
}

const V13 = ['cuda_v13'];
const V12 = ['cuda_v12'];
const SITUATIONS: readonly Situation[] = [
  { log: '0.11.11_no-libcuda', design: 1 },
  { log: '0.11.11_gpu-mode', design: 1, driver: 'fake' },
  { log: '0.11.11_libcuda550-nogpu', design: 1, driver: 'fake', at: REAL_550, env: { FAKE_INIT: '100' } },
  { log: '0.11.11_cuinit3', design: 1, driver: 'fake', env: { FAKE_INIT: '3' } },
  { log: '0.11.11_cuinit999', design: 1, driver: 'fake', env: { FAKE_INIT: '999' } },
  { log: '0.11.11_attr-err', design: 1, driver: 'fake', env: { FAKE_ATTRIBUTE: '1', FAKE_CC: '0' } },
  { log: '0.11.11_missing-symbol', design: 1, driver: 'old' },
  { log: '0.13.5_cpu-only', design: 2, directories: [] },
  { log: '0.13.5_REALcuda_v12_libcuda550-nogpu', design: 2, driver: 'fake', env: { FAKE_INIT: '100' } },
  { log: '0.13.5_gpu-mode', design: 2, driver: 'fake', nvml: true },
  {
    log: '0.13.5_preload-only',
    design: 2,
    driver: 'fake',
    at: PRELOADED,
    nvml: true,
    env: { LD_PRELOAD: PRELOADED },
  },
  { log: '0.13.5_count-err999', design: 2, driver: 'fake', env: { FAKE_COUNT: '999' } },
  { log: '0.13.5_abort', design: 2, driver: 'fake', env: { FAKE_ABORT: '1' } },
  { log: '0.32.9_cpu-only_nobackends', design: 3, directories: [] },
  { log: '0.32.9_cuda_v13_no-libcuda', design: 3, directories: V13 },
  {
    log: '0.32.9_cuda_v13_libcuda550-nogpu',
    design: 3,
    driver: 'fake',
    directories: V13,
    env: { FAKE_INIT: '100' },
  },
  { log: '0.32.9_gpu-mode', design: 3, driver: 'fake', nvml: true, directories: V13 },
  {
    log: '0.32.9_preload-only',
    design: 3,
    driver: 'fake',
    at: PRELOADED,
    directories: V13,
    env: { LD_PRELOAD: PRELOADED },
  },
  { log: '0.32.9_count-err999', design: 3, driver: 'fake', directories: V13, env: { FAKE_COUNT: '999' } },
  { log: '0.32.9_cc95-not-in-archs', design: 3, driver: 'fake', directories: V13, env: { FAKE_CC: '95' } },
  {
    log: '0.32.9_llmlib-cpu',
    design: 3,
    driver: 'fake',
    directories: V13,
    env: { OLLAMA_LLM_LIBRARY: 'cpu' },
  },
  {
    log: '0.32.9_v12dir-driver535',
    design: 3,
    driver: 'fake',
    nvml: true,
    directories: V12,
    env: { FAKE_DRIVER: '535.1' },
  },
  { log: '0.32.9_v12dir-driver580', design: 3, driver: 'fake', nvml: true, directories: V12 },
  {
    log: '0.32.9_v12dir-nvml-fails',
    design: 3,
    driver: 'fake',
    nvml: true,
    directories: V12,
    env: { FAKE_NVML: '999' },
  },
  {
    log: '0.32.9_slow-init-35s',
    design: 3,
    driver: 'fake',
    directories: V13,
    env: { FAKE_SLEEP: '35', STANDIN_DISCOVERY_TIMEOUT: '1' },
  },
];

/** A log from "Listening" on, sorted (Ollama's own threads race), without what may differ. */
function essence(lines: readonly string[], situation: Situation): string[] {
  const start = lines.findIndex((line) => line.includes('msg="Listening on'));
  assert.notEqual(start, -1, `no Listening line in:\n${lines.join('\n')}`);
  return (
    lines
      .slice(start)
      .filter((line) => line.startsWith('time='))
      .filter((line) => !/source=(model_|sched)/.test(line))
      // the machine of the real logs had NVIDIA's 550 library beside the one that was tried
      .filter((line) => situation.at === REAL_550 || !line.includes('/nvidia/current/'))
      .map((line) =>
        line
          .replace(/^time=\S+ /, '')
          .replace(/ source=(\S+?):\d+/, ' source=$1')
          .replace(/Listening on [\d.]+:\d+/, 'Listening on ADDRESS')
          .replace(/--port \d+/, '--port N')
          .replace(/"(NVIDIA H100 80GB HBM3|Invented H100 \(simulated\))"/g, 'NAME')
          .replaceAll('/opt/vgpu-test/lib/libcuda.so.1', PUBLIC)
          .replace(/archs="\[[\d ]+\]"/, 'archs=ARCHS')
          .replace(/(library=cpu .*total)="[\d.]+ GiB" available="[\d.]+ GiB"/, '$1=MEMORY'),
      )
      .sort()
  );
}

describe('the stand-in', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
  });
  after(() => guest.stop());

  async function put(situation: Situation): Promise<void> {
    await guest.must('rm', '-rf', PUBLIC, REAL_550, PRELOADED, '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1');
    const fake = join(repository, 'build/consumer/fake');
    if (situation.driver !== undefined) {
      const library = join(fake, `libcuda-${situation.driver}.so`);
      await guest.must('install', '-D', library, situation.at ?? PUBLIC);
    }
    if (situation.nvml) {
      await guest.must(
        'install',
        join(fake, 'libnvidia-ml-fake.so'),
        '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1',
      );
    }
    await guest.must('ldconfig');
  }

  /** Starts the consumer, waits until it answers, gives this start's log. */
  async function logOfStart(): Promise<string[]> {
    await guest.must('systemctl', 'restart', 'ollama');
    await until('the stand-in answers', 60_000, async () => {
      const asked = await guest.run('curl', '-sf', 'http://127.0.0.1:11434/api/version');
      return asked.code === 0 ? true : undefined;
    });
    const invocation = await guest.invocationId('ollama');
    return (await guest.journal('ollama', invocation)).map((entry) => entry.message);
  }

  // Its log is the fixture's own, so a third of the fixtures is enough.
  for (const situation of SITUATIONS.filter((_, index) => long || index % 3 === 0)) {
    test(`logs what real Ollama logged: ${situation.log}`, async () => {
      await put(situation);
      await guest.installConsumer(situation.design, { start: false, env: situation.env ?? {} });
      if (situation.directories !== undefined) {
        for (const directory of ['cuda_v12', 'cuda_v13']) {
          if (!situation.directories.includes(directory)) {
            await guest.must('rm', '-rf', `/usr/local/lib/ollama/${directory}`);
          }
        }
      }
      const real = join(repository, 'test/fixtures/ollama-logs', `ollama-${situation.log}_debug0.log`);
      const expected = essence(readFileSync(real, 'utf8').split('\n'), situation);
      assert.deepEqual(essence(await logOfStart(), situation), expected);
    });
  }

  test('says that it is a stand-in, everywhere it can', async () => {
    for (const design of [1, 2, 3] as const) {
      await guest.installConsumer(design, { start: false });
      const [first] = (await logOfStart()).filter((line) => line.startsWith('time='));
      assert.match(first ?? '', /stand-in for Ollama, not Ollama/);
      assert.match(await guest.must('ollama', '--version'), /stand-in.*not Ollama/);
      assert.match(await guest.must('curl', '-s', 'http://127.0.0.1:11434/api/version'), /"stand_in":true/);
      assert.equal(await guest.must('curl', '-s', 'http://127.0.0.1:11434/api/ps'), '{"models":[]}');
    }
  });

  test('answers /api/version only once it knows its devices', async () => {
    await put({ log: '', design: 3 });
    await guest.installConsumer(3, { env: { STANDIN_DELAY_MS: '6000' } });
    const refused = 7;
    const hasty = await until('the stand-in listens', 60_000, async () => {
      const ran = await guest.run('curl', '-s', '--max-time', '0.5', 'http://127.0.0.1:11434/api/version');
      return ran.code === refused ? undefined : ran;
    });
    assert.equal(hasty.code, 28, 'curl: time-out');
    const patient = await guest.run('curl', '-s', '--max-time', '60', 'http://127.0.0.1:11434/api/version');
    assert.match(patient.stdout, /"version":"0.32.9"/);
  });

  for (const [design, holder] of [
    [1, '/usr/local/bin/ollama serve'],
    [2, '/usr/local/bin/ollama runner --model stand-in-without-a-model'],
    [3, '/usr/local/lib/ollama/llama-server --model stand-in-without-a-model'],
  ] as const) {
    test(`a kept runner of design ${design} has libcuda mapped, and no other process has`, async () => {
      await put({ log: '', design, driver: 'fake' });
      await guest.installConsumer(design, { start: false, env: { STANDIN_KEEP_RUNNER: '1' } });
      await logOfStart();
      const script = `for pid in $(cat /sys/fs/cgroup/system.slice/ollama.service/cgroup.procs); do
        if grep -q libcuda.so.1 /proc/$pid/maps; then tr '\\0' ' ' </proc/$pid/cmdline; echo; fi; done`;
      const holders = await until('the runner loads', 60_000, async () => {
        const said = (await guest.must('bash', '-c', script)).trim();
        return said === '' ? undefined : said.split('\n');
      });
      assert.equal(holders.length, 1, holders.join('\n'));
      assert.ok(holders[0]?.startsWith(holder), holders[0]);
    });
  }

  test('knobs: crash loop, noise, lines of a file, fields of the future', async () => {
    await put({ log: '', design: 3, driver: 'fake' });
    await guest.write('/var/tmp/lines', Buffer.from('old line \xff\xfe\n', 'latin1'));
    await guest.installConsumer(3, {
      start: false,
      env: { STANDIN_NOISE: '500', STANDIN_LINES_BEFORE: '/var/tmp/lines', STANDIN_FIELDS: 'extra' },
    });
    const lines = await logOfStart();
    assert.equal(lines.filter((line) => line.includes('noise')).length, 500);
    assert.ok(
      lines.some((line) => line === 'old line \xff\xfe'),
      'bytes that are not UTF-8 pass',
    );
    assert.ok(lines.some((line) => line.endsWith(String.raw`"future key"="a=b \"c\""`)));

    await guest.installConsumer(3, { env: { STANDIN_CRASH: 'discovered' } });
    await until('it crash-loops', 60_000, async () =>
      Number(await guest.property('ollama', 'NRestarts')) >= 2 ? true : undefined,
    );
  });
});
