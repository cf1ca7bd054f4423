/** When the consumer's log makes the service judge again. */
import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { watchConsumerLog } from '../../../agent/service/served.js';
import { FakeJournal } from '../verdict/stage.js';
import { ollama } from '../verdict/support.js';

const start = 'a'.repeat(32);
const onCpu = 'load_tensors:          CPU model buffer size =     5.28 MiB';
const onGpu = 'load_tensors:        CUDA0 model buffer size =     5.15 MiB';
const begin = 'load_tensors: loading model tensors, this can take a while...';

/** No detached container. */
async function* none(): AsyncIterable<never> {}

/** How often it doubts when these lines come in turn, each after the pause of the one before. */
async function doubts(...lines: readonly string[]): Promise<number> {
  mock.timers.enable({ apis: ['setTimeout'] });
  const journal = new FakeJournal();
  const stop = new AbortController();
  let count = 0;
  const watching = watchConsumerLog(
    ollama,
    { journal, containerLogs: none },
    () => (count += 1),
    stop.signal,
  );
  try {
    for (const line of lines) {
      await turns();
      journal.add(line, start);
      await turns();
      mock.timers.tick(10_000);
    }
    stop.abort();
    await watching;
    return count;
  } finally {
    mock.timers.reset();
  }
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

test('a model that goes to the CPU long after the start is a reason to judge again', async () => {
  assert.equal(await doubts(begin, onCpu), 1);
  assert.equal(
    await doubts('0.00.158.482 E ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device'),
    1,
  );
});

test('a model that comes back to the GPU is a reason to judge again', async () => {
  assert.equal(await doubts(begin, onGpu, begin, onCpu, begin, onGpu), 3);
});

test('a load that fails, and the next one that does not, are reasons to judge again', async () => {
  const failed =
    'level=ERROR msg="error loading llama server" error="llama runner process has terminated: exit status 2"';
  assert.equal(await doubts(failed, failed, begin, onGpu), 2);
});

test('a repeated line, and lines about other things, are no reason to judge again', async () => {
  assert.equal(await doubts('[GIN] 2026/11/22 - 12:46:34 | 200 |', 'x', begin), 0);
  assert.equal(await doubts(begin, onCpu, onCpu, begin, onCpu), 1);
});

test("systemd's messages about the unit, and lines of no start, do not belong to the consumer's log", async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const journal = new FakeJournal();
    const stop = new AbortController();
    let count = 0;
    const watching = watchConsumerLog(
      ollama,
      { journal, containerLogs: none },
      () => (count += 1),
      stop.signal,
    );
    await turns();
    for (const [text, invocation, pid] of [
      [`${begin}\n${onCpu}`, start, 1],
      [`${begin}\n${onCpu}`, null, 100],
    ] as const) {
      journal.add(text, invocation, pid);
      await turns();
      mock.timers.tick(10_000);
    }
    assert.equal(count, 0);
    journal.add(`${begin}\n${onCpu}`, start);
    await turns();
    mock.timers.tick(9_999);
    assert.equal(count, 0, 'a consumer that complains often is judged now and then');
    mock.timers.tick(1);
    assert.equal(count, 1);
    // Another start has said nothing yet: the same words are news again.
    journal.add(`${begin}\n${onCpu}`, 'b'.repeat(32));
    await turns();
    mock.timers.tick(10_000);
    assert.equal(count, 2);
    // Told within the pause: one doubt for both.
    journal.add(`${begin}\n${onGpu}`, 'b'.repeat(32));
    await turns();
    journal.add(`${begin}\n${onCpu}`, 'b'.repeat(32));
    await turns();
    mock.timers.tick(20_000);
    assert.equal(count, 3);
    journal.add(`${begin}\n${onGpu}`, 'b'.repeat(32));
    await turns();
    stop.abort();
    mock.timers.tick(20_000);
    assert.equal(count, 3, 'nothing is doubted after the end');
    await watching;
  } finally {
    mock.timers.reset();
  }
});

test('the output of detached containers is followed too, each container separately', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const stop = new AbortController();
    let count = 0;
    const said: string[] = [];
    let wake = (): void => {};
    const say = async (...lines: readonly string[]): Promise<number> => {
      said.push(...lines);
      wake();
      for (let line = 0; line < 4; line += 1) await turns();
      mock.timers.tick(10_000);
      return count;
    };
    const bytes = async function* (): AsyncIterable<Buffer> {
      for (;;) {
        const line = said.shift();
        if (line === 'ends' || stop.signal.aborted) return;
        if (line !== undefined) yield Buffer.from(`${line}\n`);
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    };
    const containerLogs = async function* () {
      for (const name of ['one', 'two']) yield { source: `docker logs ${name}`, bytes: bytes() };
    };
    const effects = { journal: new FakeJournal(), containerLogs };
    const watching = watchConsumerLog(ollama, effects, () => (count += 1), stop.signal);
    assert.equal(await say(begin, onGpu), 1);
    assert.equal(await say('[GIN] 2026/11/22 - 12:46:34 | 200 |'), 1);
    assert.equal(await say(begin, onCpu), 2);
    assert.equal(await say('ends', begin, onCpu), 3, 'the next container: the same words are news again');
    stop.abort();
    wake();
    await watching;
  } finally {
    mock.timers.reset();
  }
});
