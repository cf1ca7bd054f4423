/** Asks a consumer whether it is ready: where, how often, and which answers count. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UnitFacts } from '../../../agent/contracts/unit.js';
import type { Profile } from '../../../agent/profile/types.js';
import type { Clock, HttpAnswer } from '../../../agent/verdict/observation.js';
import { watchReadiness } from '../../../agent/verdict/watch-readiness.js';
import { FakeClock, ready, refused } from './stage.js';
import { ollama, openSandbox, unit } from './support.js';

const home = 'http://127.0.0.1:11434/api/version';

class Scene {
  readonly clock = new FakeClock();
  readonly asked: { readonly url: string; readonly at: number }[] = [];
  readonly #closing = new AbortController();
  unit: UnitFacts = unit();
  address: string | null = null;
  announced = false;
  answer: (url: string) => HttpAnswer = () => refused;
  /** How long the consumer takes to answer. */
  takesMs = 0;

  watch(profile: Profile = ollama) {
    const effects = {
      clock: this.clock,
      get: async (url: string, _limit: number, signal: AbortSignal) => {
        this.asked.push({ url, at: this.clock.now() });
        const answer = this.answer(url);
        if (this.takesMs > 0) await this.clock.sleep(this.takesMs, signal);
        return answer;
      },
    };
    const now = { unit: () => this.unit, address: () => this.address, announced: () => this.announced };
    return watchReadiness(profile, effects, now, this.#closing.signal);
  }

  pass(milliseconds: number): Promise<void> {
    return this.clock.run(this.clock.sleep(milliseconds, this.#closing.signal));
  }

  stop(): void {
    this.#closing.abort();
  }
}

test('a profile that has nothing to ask asks nothing, whatever the unit says', async () => {
  const scene = new Scene();
  const watch = scene.watch({ ...ollama, readiness: { kind: 'none' } });
  await scene.pass(1_000);
  assert.deepEqual(watch.seen(), { kind: 'unasked', why: 'the profile requires none' });
  assert.equal(watch.answeredAt(), null);
  assert.deepEqual(scene.asked, []);
  scene.stop();
  await watch.done;
});

test('a unit with its own network namespace is not queried, and the reason is reported', async () => {
  const scene = new Scene();
  scene.unit = unit({ sandbox: { ...openSandbox, privateNetwork: true } });
  const watch = scene.watch();
  await scene.pass(1_000);
  assert.deepEqual(watch.seen(), { kind: 'unasked', why: 'the unit has its own network namespace' });
  assert.deepEqual(scene.asked, []);
  scene.stop();
  await watch.done;
});

test('until the first answer it is silent, and then as its last answer says', async () => {
  const scene = new Scene();
  scene.takesMs = 50;
  scene.answer = () => ({ kind: 'failed', message: 'ECONNRESET' });
  const watch = scene.watch();
  await scene.pass(10);
  assert.deepEqual(watch.seen(), { kind: 'silent', url: home, lastError: 'no answer yet' });
  await scene.pass(60);
  assert.deepEqual(watch.seen(), { kind: 'silent', url: home, lastError: 'ECONNRESET' });
  // The next question has no answer yet, so the last answer counts.
  await scene.pass(200);
  assert.deepEqual(watch.seen(), { kind: 'silent', url: home, lastError: 'ECONNRESET' });
  scene.stop();
  await watch.done;
});

test('a status from 200 to 299 is an answer, others are silence', async () => {
  for (const [status, counts] of [
    [199, false],
    [200, true],
    [299, true],
    [300, false],
    [503, false],
  ] as const) {
    const scene = new Scene();
    scene.answer = () => ({ kind: 'answered', status, body: '' });
    const watch = scene.watch();
    await scene.pass(10);
    const silent = { kind: 'silent', url: home, lastError: `HTTP status ${status}` };
    assert.deepEqual(watch.seen(), counts ? { kind: 'answered', url: home, afterMs: 0 } : silent);
    assert.equal(watch.answeredAt(), counts ? 0 : null);
    scene.stop();
    await watch.done;
  }
});

test('how long it took is counted from the beginning of the watch', async () => {
  const scene = new Scene();
  await scene.pass(5_000);
  const watch = scene.watch();
  scene.clock.at(5_300, () => {
    scene.answer = () => ready;
  });
  await scene.pass(1_000);
  assert.deepEqual(watch.seen(), { kind: 'answered', url: home, afterMs: 400 });
  assert.equal(watch.answeredAt(), 5_400);
  scene.stop();
  await watch.done;
});

test('the consumer is asked every 200 ms, every 25 ms once its log has named the device, and not after its answer', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  const times = () => scene.asked.splice(0).map(({ at }) => at);
  await scene.pass(500);
  assert.deepEqual(times(), [0, 200, 400]);
  scene.announced = true;
  await scene.pass(160);
  assert.deepEqual(times(), [600, 625, 650]);
  scene.answer = () => ready;
  await scene.pass(50);
  assert.deepEqual(times(), [675]);
  const turns = scene.clock.now();
  await scene.pass(1_000);
  assert.deepEqual(times(), [], `asked again after ${turns}`);
  scene.stop();
  await watch.done;
});

test('after its answer the watch wakes every 200 ms, although its log has named the device', async () => {
  const scene = new Scene();
  scene.answer = () => ready;
  scene.announced = true;
  const { clock } = scene;
  const sleeps: number[] = [];
  const counting: Clock = {
    now: () => clock.now(),
    sleep(milliseconds, signal) {
      sleeps.push(milliseconds);
      return clock.sleep(milliseconds, signal);
    },
  };
  const closing = new AbortController();
  const now = { unit: () => scene.unit, address: () => null, announced: () => true };
  const effects = { clock: counting, get: async () => ready };
  const watch = watchReadiness(ollama, effects, now, closing.signal);
  await clock.run(clock.sleep(500, closing.signal));
  assert.deepEqual(sleeps, [200, 200, 200]);
  closing.abort();
  await watch.done;
});

test('a new address in the log that was not queried yet discards the answer of the former address', async () => {
  const scene = new Scene();
  scene.answer = () => ready;
  const watch = scene.watch();
  await scene.pass(10);
  assert.equal(watch.answeredAt(), 0);
  scene.address = '127.0.0.1:7777';
  const away = { kind: 'silent', url: home, lastError: 'the log names another address' };
  assert.deepEqual(watch.seen(), away);
  assert.equal(watch.answeredAt(), null);
  await scene.pass(300);
  assert.deepEqual(watch.seen(), {
    kind: 'answered',
    url: 'http://127.0.0.1:7777/api/version',
    afterMs: 200,
  });
  scene.stop();
  await watch.done;
});

test('when an address stands for several, each is tried in turn', async () => {
  const scene = new Scene();
  scene.address = '[::]:11434';
  const watch = scene.watch();
  await scene.pass(700);
  const urls = scene.asked.map(({ url }) => url);
  assert.equal(new Set(urls).size, 2, urls.join(' '));
  assert.deepEqual(urls, [urls[0], urls[1], urls[0], urls[1]]);
  scene.stop();
  await watch.done;
});

test('a profile without a variable asks at its own address', async () => {
  assert.ok(ollama.readiness.kind === 'http');
  const scene = new Scene();
  scene.unit = unit({ environment: { null: '127.0.0.1:1', OLLAMA_HOST: '127.0.0.1:2' } });
  const watch = scene.watch({ ...ollama, readiness: { ...ollama.readiness, addressVariable: null } });
  await scene.pass(10);
  assert.deepEqual(
    scene.asked.map(({ url }) => url),
    [home],
  );
  scene.stop();
  await watch.done;
});

test('a new start has to answer again; one that was silent stays so, with its reason', async () => {
  const scene = new Scene();
  scene.answer = () => ready;
  const watch = scene.watch();
  await scene.pass(10);
  watch.forget();
  assert.deepEqual(watch.seen(), {
    kind: 'silent',
    url: home,
    lastError: 'no answer since the service started again',
  });
  assert.equal(watch.answeredAt(), null);
  scene.answer = () => refused;
  await scene.pass(300);
  watch.forget();
  assert.deepEqual(watch.seen(), { kind: 'silent', url: home, lastError: 'ECONNREFUSED' });
  scene.answer = () => ready;
  await scene.pass(300);
  assert.deepEqual(watch.seen(), { kind: 'answered', url: home, afterMs: 400 });
  scene.stop();
  await watch.done;
});

test('an answer that comes after the end of the watch counts for nothing', async () => {
  const scene = new Scene();
  scene.takesMs = 50;
  scene.answer = () => ready;
  const watch = scene.watch();
  await scene.pass(10);
  scene.stop();
  await watch.done;
  assert.deepEqual(watch.seen(), { kind: 'silent', url: home, lastError: 'no answer yet' });
});
