/** Follows a consumer's log while it comes: which lines are of which start, what is kept of them, and what is read twice. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JournalReader } from '../../../agent/systemd/types.js';
import type { ConfirmEffects, ConfirmOptions } from '../../../agent/verdict/observation.js';
import { watchLog } from '../../../agent/verdict/watch-log.js';
import { FakeClock, FakeJournal, firstStart, secondStart } from './stage.js';
import { fixtureText, ollama } from './support.js';

const gpuText = fixtureText('0.32.9_gpu-mode_debug0');
const gpuLog = gpuText.trimEnd().split('\n');
const deviceLine = gpuLog.find((line) => line.includes('library=CUDA')) ?? '';
const startLine = gpuLog.find((line) => line.includes('msg="server config"')) ?? '';

class Scene {
  readonly clock = new FakeClock();
  readonly journal = new FakeJournal();
  readonly closing = new AbortController();
  /** The questions to the journal and to the engine, in order. */
  readonly asked: string[] = [];
  followFile: ConfirmEffects['followFile'] = async function* () {};
  containerLogs: ConfirmEffects['containerLogs'] = async function* () {};
  readonly reader: JournalReader = {
    tail: () => this.journal.tail(),
    read: (question) => {
      this.asked.push('read');
      return this.journal.read(question);
    },
    follow: (question) => {
      this.asked.push(`follow ${question.cursor}`);
      return this.journal.follow(question);
    },
  };

  watch(changes: Partial<ConfirmOptions> = {}, invocationId: string | null = firstStart) {
    const options = { profile: ollama, cursor: null, outputFile: null, ...changes };
    const effects: Pick<ConfirmEffects, 'journal' | 'followFile' | 'containerLogs' | 'clock'> = {
      journal: this.reader,
      clock: this.clock,
      followFile: (...question) => this.followFile(...question),
      containerLogs: (signal) => {
        this.asked.push('containers');
        return this.containerLogs(signal);
      },
    };
    return watchLog(options, effects, invocationId, this.closing.signal);
  }

  say(lines: readonly string[], invocationId: string | null = firstStart, pid = 100): void {
    for (const line of lines) this.journal.add(line, invocationId, pid);
  }

  pass(milliseconds = 10): Promise<void> {
    return this.clock.run(this.clock.sleep(milliseconds, this.closing.signal));
  }

  async close(watch: ReturnType<typeof watchLog>): Promise<void> {
    this.closing.abort();
    await this.clock.run(watch.done);
  }
}

const bytesOf = async function* (...texts: readonly string[]): AsyncIterable<Buffer> {
  for (const text of texts) yield Buffer.from(text);
};
/** A journal without entries, which ends as `then` does. */
const ending = async function* <T>(then: () => unknown): AsyncGenerator<T> {
  const none: readonly T[] = [];
  yield* none;
  await then();
};
const numbered = (count: number) => Array.from({ length: count }, (_, index) => `line ${index + 1}`);

test('the last words are the newest four lines, without blank ones, and where they are from', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  scene.say(['one', '  two  ', '', '   ', 'three\nfour']);
  await scene.pass();
  const said = (): readonly string[] => watch.lastWords().map(({ text }) => text);
  assert.deepEqual(said(), ['one', 'two', 'three', 'four']);
  scene.say(['five']);
  await scene.pass();
  assert.deepEqual(said(), ['two', 'three', 'four', 'five']);
  assert.deepEqual(watch.lastWords().at(-1), { text: 'five', source: 'journal cursor c6' });
  await scene.close(watch);
});

test("only systemd's messages about an end are kept, and none of an unknown start", async () => {
  const scene = new Scene();
  const watch = scene.watch();
  const ends = [
    'ollama.service: Main process exited, code=exited, status=1/FAILURE',
    'ollama.service: Failed with result exit-code.',
    'Failed to start ollama.service - Ollama.',
  ];
  scene.say(
    ['Started ollama.service - Ollama.', ...ends, 'ollama.service: Consumed 2s CPU time.'],
    firstStart,
    1,
  );
  scene.say(['whose is it?'], null);
  await scene.pass();
  assert.deepEqual(
    watch.lastWords().map(({ text }) => text),
    ends,
  );
  await scene.close(watch);
});

test('the announcement has the time of its first line, and a line that begins a start takes it away', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  scene.say([startLine]);
  await scene.pass(100);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['undecided', null]);
  scene.say([deviceLine]);
  await scene.pass(100);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['announced', 100]);
  scene.say(['something else']);
  await scene.pass(100);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['announced', 100]);
  scene.say([startLine]);
  await scene.pass(100);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['undecided', null]);
  await scene.close(watch);
});

test('earlier entries are read first and followed from their end: no entry counts twice, none is lost', async () => {
  const scene = new Scene();
  scene.say(['one', 'two', 'three']);
  scene.say(['of another'], secondStart);
  // Between the question for the end of the journal and the reading of it.
  scene.journal.reading = async () => scene.say(['four']);
  const watch = scene.watch();
  await scene.pass();
  assert.equal(watch.findings().entries, 4);
  assert.deepEqual(scene.asked, ['containers', 'read', 'follow c5']);
  scene.say(['five']);
  await scene.pass();
  assert.equal(watch.findings().entries, 5);
  await scene.close(watch);
});

test('while the log so far is read every question gets the same answer, which costs nothing', async () => {
  const scene = new Scene();
  scene.say([deviceLine]);
  scene.journal.reading = () => scene.clock.sleep(100, scene.closing.signal);
  const watch = scene.watch();
  await scene.pass();
  const none = watch.findings();
  assert.deepEqual([none.entries, none.mode], [0, 'undetermined']);
  assert.equal(watch.findings(), none);
  await scene.pass(200);
  assert.equal(watch.findings().mode, 'gpu');
  await scene.close(watch);
});

test('after a restart only what comes after the place before it is read', async () => {
  const scene = new Scene();
  scene.say(['old']);
  const watch = scene.watch({ cursor: 'c1' });
  scene.say(['new']);
  await scene.pass();
  assert.deepEqual(scene.asked, ['follow c1', 'containers']);
  assert.equal(watch.findings().entries, 1);
  await scene.close(watch);
});

test('a start that is not known yet has nothing to read: the end of the journal is followed', async () => {
  const scene = new Scene();
  scene.say(['old']);
  const watch = scene.watch({}, null);
  await scene.pass();
  assert.deepEqual(scene.asked, ['containers', 'follow c1']);
  await scene.close(watch);
  const silent = new Scene();
  const other = silent.watch();
  await silent.pass();
  assert.deepEqual(silent.asked, ['containers', 'read', 'follow null'], 'an empty journal');
  await silent.close(other);
});

test('to catch up is to follow from the last entry that came, unless entries are coming', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  await scene.pass();
  scene.say(['one']);
  await scene.pass(50);
  scene.journal.quiet = true;
  scene.say(['two', 'three']);
  watch.catchUp();
  await scene.pass(50);
  assert.equal(watch.findings().entries, 1);
  watch.catchUp();
  await scene.pass();
  assert.equal(watch.findings().entries, 3);
  assert.deepEqual(scene.asked.slice(2), ['follow null', 'follow c1']);
  await scene.close(watch);
});

test('a journal whose reader ends is not followed again', async () => {
  const scene = new Scene();
  scene.reader.follow = () => ending(() => scene.asked.push('follow'));
  const watch = scene.watch();
  await scene.pass();
  assert.deepEqual(scene.asked, ['containers', 'read', 'follow']);
  assert.equal(watch.error(), null);
  await scene.close(watch);
});

test('lines of a start that systemd has not told of count from its beginning, and only once', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  scene.say(['of the first']);
  scene.say(['one', 'two'], secondStart);
  await scene.pass();
  assert.equal(watch.findings().entries, 1);
  watch.begin(secondStart);
  assert.equal(watch.findings().entries, 2);
  watch.begin(firstStart);
  assert.equal(watch.findings().entries, 0, 'what was said before a new start is gone');
  watch.begin(secondStart);
  assert.equal(watch.findings().entries, 0);
  await scene.close(watch);
});

test('the start that it is in is no new one', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  scene.say([startLine, deviceLine]);
  await scene.pass();
  const announced = watch.announcedAt();
  watch.begin(firstStart);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['announced', announced]);
  assert.equal(watch.findings().entries, 2);
  watch.begin(secondStart);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['undecided', null]);
  await scene.close(watch);
});

test('2000 lines of four unknown starts are kept, the newest four', async () => {
  const scene = new Scene();
  const watch = scene.watch();
  const starts = ['1', '2', '3', '4', '5'].map((id) => id.repeat(32));
  for (const [index, id] of starts.entries()) scene.say(numbered(index === 4 ? 2_001 : index + 1), id);
  await scene.pass();
  const kept = starts.map((id) => {
    watch.begin(id);
    return watch.findings().entries;
  });
  assert.deepEqual(kept, [0, 2, 3, 4, 2_000]);
  await scene.close(watch);
});

test('lines of a log file have their position, and continue after a restart', async () => {
  const scene = new Scene();
  scene.followFile = () => bytesOf(`${startLine}\n`, `${deviceLine}\n`);
  const watch = scene.watch({ outputFile: { path: '/var/log/x', offset: 0 } });
  await scene.pass();
  assert.equal(watch.state(), 'announced');
  assert.equal(watch.lastWords().at(-1)?.source, '/var/log/x, line 2 of this start');
  watch.begin(secondStart);
  assert.equal(watch.findings().entries, 2, 'its own start lines tell its starts apart');
  await scene.close(watch);
});

for (const [what, failing] of Object.entries<(scene: Scene, fail: () => void) => Partial<ConfirmOptions>>({
  'the journal': (scene, fail) => {
    scene.reader.follow = async function* (question) {
      yield* scene.journal.follow(question);
      fail();
    };
    return {};
  },
  'a file': (scene, fail) => {
    scene.followFile = (_path, _offset, signal) => ending(() => scene.clock.sleep(50, signal).then(fail));
    return { outputFile: { path: '/var/log/x', offset: 0 } };
  },
  "a container's log": (scene, fail) => {
    scene.containerLogs = (signal) => ending(() => scene.clock.sleep(50, signal).then(fail));
    return {};
  },
})) {
  test(`${what} that fails after the end of the watch is no error`, async () => {
    const scene = new Scene();
    const watch = scene.watch(
      failing(scene, () => {
        throw new Error('too late');
      }),
    );
    await scene.pass(10);
    await scene.close(watch);
    assert.equal(watch.error(), null);
  });
}

test('a file or container that cannot be read is reported', async () => {
  const fail = (): void => {
    throw new Error('EACCES');
  };
  const file = new Scene();
  file.followFile = () => ending(fail);
  const ofFile = file.watch({ outputFile: { path: '/var/log/x', offset: 0 } });
  const container = new Scene();
  container.containerLogs = () => ending(fail);
  const ofContainer = container.watch();
  const journal = new Scene();
  journal.reader.follow = () => {
    throw 'no bus';
  };
  const ofJournal = journal.watch();
  for (const [scene, watch, why] of [
    [file, ofFile, 'EACCES'],
    [container, ofContainer, 'EACCES'],
    [journal, ofJournal, 'no bus'],
  ] as const) {
    await scene.pass();
    assert.equal(watch.error(), why);
    assert.equal(watch.caughtUp(), true);
    await scene.close(watch);
  }
});

test('a container that replaced another has to announce its device again', async () => {
  const scene = new Scene();
  scene.containerLogs = async function* (signal) {
    yield { source: 'docker logs a', bytes: bytesOf(`${startLine}\n${deviceLine}\n`) };
    await scene.clock.sleep(100, signal);
    yield { source: 'docker logs b', bytes: bytesOf('', 'hello\n') };
    await scene.clock.sleep(100, signal);
  };
  const watch = scene.watch();
  await scene.pass(10);
  assert.deepEqual([watch.state(), watch.announcedAt(), watch.findings().entries], ['announced', 0, 2]);
  await scene.pass(100);
  assert.deepEqual([watch.state(), watch.announcedAt(), watch.findings().entries], ['undecided', null, 1]);
  assert.deepEqual(watch.lastWords().at(-1), {
    text: 'hello',
    source: 'docker logs b, line 1 of this start',
  });
  await scene.pass(200);
  assert.equal(scene.asked.filter((what) => what === 'containers').length, 1, 'it ended by itself');
  await scene.close(watch);
});

test("a replaced container's state is forgotten before the next one has said a word", async () => {
  const scene = new Scene();
  scene.containerLogs = async function* (signal) {
    yield { source: 'docker logs a', bytes: bytesOf(`${startLine}\n${deviceLine}\n`) };
    yield { source: 'docker logs b', bytes: bytesOf() };
    await scene.clock.sleep(1_000, signal);
  };
  const watch = scene.watch();
  await scene.pass(10);
  assert.deepEqual([watch.state(), watch.announcedAt()], ['undecided', null]);
  await scene.close(watch);
});

test('at a new start the container is read again, and nothing more is taken from the reading before', async () => {
  const scene = new Scene();
  scene.containerLogs = async function* (signal) {
    const late = async function* (): AsyncIterable<Buffer> {
      yield Buffer.from('one\n');
      await scene.clock.sleep(1_000, signal);
      yield Buffer.from('late\n');
    };
    yield { source: 'docker logs a', bytes: late() };
    await scene.clock.sleep(1_000, signal);
  };
  const watch = scene.watch();
  await scene.pass(10);
  watch.begin(secondStart);
  await scene.pass(10);
  assert.equal(watch.findings().entries, 1);
  assert.deepEqual(
    watch.lastWords().map(({ text }) => text),
    ['one', 'one'],
  );
  assert.equal(scene.asked.filter((what) => what === 'containers').length, 2);
  await scene.close(watch);
});
