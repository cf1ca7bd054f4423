/** Looks at a consumer's processes again and again: how often, what is kept of them, and which of them count. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProcessFacts } from '../../../agent/contracts/facts.js';
import type { Profile } from '../../../agent/profile/types.js';
import type { ProcessWatch } from '../../../agent/verdict/observation.js';
import { watchProcesses } from '../../../agent/verdict/watch-processes.js';
import { FakeClock } from './stage.js';
import { libraries, ollama, processFacts } from './support.js';

const main = processFacts();
const child = processFacts({ pid: 140, parent: 100, name: 'llama-server', startTicks: '5050' });
/** The processes that a container's engine runs for the unit: no part of the consumer. */
const engine = processFacts({ pid: 50, name: 'podman', startTicks: '4000', libraries: [] });
const nameless: Profile = { ...ollama, processes: { main: [], children: [] } };

class Scene {
  readonly clock = new FakeClock();
  readonly closing = new AbortController();
  readonly looks: number[] = [];
  now: readonly ProcessFacts[] = [];
  /** Between the list of the processes and their facts. */
  between: () => Promise<void> = async () => {};

  watch(): ProcessWatch {
    const effects = {
      clock: this.clock,
      pids: async () => {
        this.looks.push(this.clock.now());
        return this.now.map(({ pid }) => pid);
      },
      processes: async (pids: readonly number[]) => {
        const found = this.now.filter(({ pid }) => pids.includes(pid));
        await this.between();
        return found;
      },
    };
    return watchProcesses(effects, this.closing.signal);
  }

  pass(milliseconds: number): Promise<void> {
    return this.clock.run(this.clock.sleep(milliseconds, this.closing.signal));
  }
}

/** Which of these count, as `role pid`, where systemd names `mainPid`; those in `ended` have ended since they were seen. */
async function counted(
  processes: readonly ProcessFacts[],
  mainPid: number,
  profile: Profile = ollama,
  ended: readonly ProcessFacts[] = [],
): Promise<readonly string[]> {
  const scene = new Scene();
  scene.now = processes;
  const watch = scene.watch();
  await scene.pass(10);
  if (ended.length > 0) {
    scene.now = processes.filter((facts) => !ended.includes(facts));
    await scene.pass(30);
  }
  watch.stop();
  await watch.done;
  return watch.seen(profile, mainPid).map(({ role, facts }) => `${role} ${facts.pid}`);
}

test('it looks every 25 ms, and every 100 ms after more than a minute', async () => {
  const scene = new Scene();
  await scene.pass(1_000);
  const watch = scene.watch();
  await scene.pass(110);
  assert.deepEqual(scene.looks, [1_000, 1_025, 1_050, 1_075, 1_100]);
  await scene.pass(60_240);
  assert.deepEqual(scene.looks.slice(-5), [61_000, 61_025, 61_125, 61_225, 61_325]);
  watch.stop();
  await watch.done;
});

test('the libraries of a process are kept after its end, and the newest ones while it runs', async () => {
  const scene = new Scene();
  scene.now = [{ ...main, libraries: [] }];
  const watch = scene.watch();
  const loaded = () =>
    watch.seen(ollama, 100).map(({ facts }) => facts.libraries.map(({ vendor }) => vendor));
  const pass = async (changes: Partial<ProcessFacts>) => {
    scene.now = [{ ...main, ...changes }];
    await scene.pass(30);
    return loaded();
  };
  assert.deepEqual(await pass({ libraries: [] }), [[]]);
  assert.deepEqual(await pass({ libraries: libraries('vgpu') }), [['vgpu']]);
  assert.deepEqual(await pass({ libraries: libraries('vgpu', 'nvidia') }), [['vgpu', 'nvidia']]);
  assert.deepEqual(await pass({ libraries: [] }), [['vgpu', 'nvidia']]);
  watch.stop();
  await watch.done;
});

test('a process that never had libcuda is reported as last seen', async () => {
  const scene = new Scene();
  scene.now = [{ ...main, libraries: [] }];
  const watch = scene.watch();
  await scene.pass(30);
  scene.now = [{ ...main, libraries: [], name: 'ollama', executable: '/opt/new/ollama' }];
  await scene.pass(30);
  assert.deepEqual(
    watch.seen(ollama, 100).map(({ facts }) => facts.executable),
    ['/opt/new/ollama'],
  );
  watch.stop();
  await watch.done;
});

test('256 processes are kept; those are looked at again, others are left out', async () => {
  const scene = new Scene();
  const many = (count: number, executable: string) =>
    Array.from({ length: count }, (_, index) => processFacts({ pid: 1_000 + index, executable }));
  scene.now = many(300, '/old');
  const watch = scene.watch();
  await scene.pass(10);
  assert.equal(watch.seen(nameless, 0).length, 256);
  scene.now = many(300, '/new');
  await scene.pass(30);
  const seen = watch.seen(nameless, 0);
  assert.equal(seen.length, 256);
  assert.ok(seen.every(({ facts }) => facts.executable === '/new'));
  watch.stop();
  await watch.done;
});

test('a new start forgets its predecessor, and a look that began before it counts for nothing', async () => {
  const scene = new Scene();
  scene.now = [main];
  const watch = scene.watch();
  await scene.pass(10);
  assert.equal(watch.seen(nameless, 0).length, 1);
  scene.between = () => scene.clock.sleep(50, scene.closing.signal);
  await scene.pass(20);
  watch.forget();
  assert.equal(watch.seen(nameless, 0).length, 0);
  scene.now = [];
  await scene.pass(100);
  assert.equal(watch.seen(nameless, 0).length, 0);
  watch.stop();
  await scene.clock.run(watch.done);
});

test("the main process is systemd's, and of its children those that the profile names count", async () => {
  const other = processFacts({ pid: 150, parent: 100, name: 'sh', startTicks: '5060' });
  assert.deepEqual(await counted([main, child, other], 100), ['main 100', 'child 140']);
  const runner = processFacts({ pid: 160, parent: 100, startTicks: '5070' });
  assert.deepEqual(await counted([main, runner], 100), ['main 100', 'child 160'], 'of the same name');
});

test('behind a wrapper the first of its name is the main process', async () => {
  const wrapper = processFacts({ pid: 90, name: 'sh', startTicks: '4990' });
  const behind = { ...main, parent: 90 };
  const runner = processFacts({ pid: 160, parent: 100, startTicks: '5070' });
  assert.deepEqual(await counted([wrapper, behind, runner, child], 90), [
    'main 100',
    'child 160',
    'child 140',
  ]);
  assert.deepEqual(await counted([behind, runner], 0), ['main 100', 'child 160'], 'which is gone');
});

test('processes that are older than the main one are of a former start', async () => {
  const old = processFacts({ pid: 80, parent: 70, name: 'llama-server', startTicks: '4999' });
  const same = processFacts({ pid: 81, parent: 100, name: 'llama-server', startTicks: '5000' });
  assert.deepEqual(await counted([old, same, main], 100), ['child 81', 'main 100']);
});

test('when the profile names none, all count', async () => {
  const other = processFacts({ pid: 150, parent: 100, name: 'sh', startTicks: '5060' });
  assert.deepEqual(await counted([main, other], 100, nameless), ['main 100', 'child 150']);
  const former = processFacts({ pid: 80, startTicks: '10' });
  assert.deepEqual(await counted([main, former], 100, nameless), ['main 100']);
  assert.deepEqual(await counted([main, other], 7, nameless), ['child 100', 'child 150']);
  assert.deepEqual(await counted([], 7, nameless), []);
});

test('in a container its first process is the main one, of the newest container', async () => {
  const first = (pid: number, startTicks: string) =>
    processFacts({ pid, parent: 50, namespacePid: 1, startTicks, name: 'python3' });
  const [former, newer] = [first(200, '5000'), first(300, '6000')];
  const inside = processFacts({ pid: 310, parent: 300, namespacePid: 7, startTicks: '6100' });
  // A process with a PID namespace of its own within the container, as a sandbox of the program makes it.
  const nested = processFacts({ pid: 320, parent: 300, namespacePid: 1, startTicks: '6200' });
  for (const order of [
    [former, newer, inside, nested],
    [nested, inside, newer, former],
  ]) {
    const seen = await counted(order, 50, nameless, [former]);
    assert.deepEqual([...seen].sort(), ['child 310', 'child 320', 'main 300']);
  }
  assert.deepEqual(await counted([engine, former, inside], 50, nameless), [
    'main 50',
    'child 200',
    'child 310',
  ]);
});

test('of containers side by side the one with a process of the profile counts, whichever started first', async () => {
  const idle = (startTicks: string) =>
    processFacts({ pid: 200, parent: 50, namespacePid: 1, startTicks, name: 'sleep' });
  const init = (pid: number, startTicks: string) =>
    processFacts({ pid, parent: 60, namespacePid: 1, startTicks, name: 'docker-init' });
  const serving = processFacts({ pid: 310, parent: 300, namespacePid: 7, startTicks: '6001' });
  for (const other of [idle('5000'), idle('7000')]) {
    assert.deepEqual(await counted([other, init(300, '6000'), serving], 50), ['main 310']);
    assert.deepEqual(await counted([init(300, '6000'), serving, other], 50), ['main 310']);
  }
  const replaced = processFacts({ pid: 410, parent: 400, namespacePid: 7, startTicks: '5501' });
  const before = init(400, '5500');
  assert.deepEqual(
    await counted([idle('5000'), before, replaced, init(300, '6000'), serving], 50, ollama, [
      before,
      replaced,
    ]),
    ['main 310'],
    'not the one that was replaced',
  );
  const all = await counted([idle('7000'), init(300, '6000'), serving], 50, nameless);
  assert.deepEqual(
    [...all].sort(),
    ['child 200', 'child 310', 'main 300'],
    'all, when the profile names none',
  );
});
