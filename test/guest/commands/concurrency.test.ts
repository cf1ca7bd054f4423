/** Two commands at once: one works, the other waits for it or is refused and says who is at work. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { after, before as beforeAll, describe, test } from 'node:test';
import { mixed } from '../states/mixed.js';
import { multiarch } from '../states/state.js';
import { atCheckpoint, checkpointsOf } from '../support/checkpoints.js';
import { consumerDesigns, whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  assertConsumerStarts,
  assertRunsWithoutShim,
  at,
  consumerProcesses,
  differences,
  documentOf,
  freshCache,
  installToGpu,
  prepareConsumer,
  uninstall,
} from '../support/installed.js';
import type { Listing } from '../support/listing.js';
import { ended, type Ran, until } from '../support/process.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || mixed.skip;
const quiet = ['--yes', '--no-restart'] as const;

/** A command that stops at one of its steps until it may continue. */
class Held {
  readonly #guest: Guest;
  readonly #file: string;
  readonly #end: Promise<number>;
  #stdout = '';
  #stderr = '';

  private constructor(guest: Guest, child: ChildProcess, file: string) {
    this.#guest = guest;
    this.#file = file;
    this.#end = ended(child);
    child.stdout?.on('data', (chunk: Buffer) => {
      this.#stdout += chunk.toString();
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      this.#stderr += chunk.toString();
    });
  }

  /** Resolves when the command stands at its n-th step. */
  static async at(guest: Guest, n: number, ...args: readonly string[]): Promise<Held> {
    const file = '/tmp/go-on';
    await guest.must('rm', '-f', file, `${file}.reached`);
    const child = guest.spawn(
      ['vgpu-agent', ...args],
      { stdio: ['ignore', 'pipe', 'pipe'] },
      atCheckpoint(n, { kind: 'pause', until: file }),
    );
    const held = new Held(guest, child, file);
    await until(`${args.join(' ')} reaches step ${n}`, 60_000, async () =>
      (await guest.exists(`${file}.reached`)) ? true : undefined,
    );
    return held;
  }

  /** Lets it continue, and gives its result. */
  async goOn(): Promise<Ran> {
    await this.#guest.must('touch', this.#file);
    const code = await this.#end;
    return { code, stdout: this.#stdout, stderr: this.#stderr };
  }
}

/** The step at which half of the links lead to the new place. */
async function middle(guest: Guest, command: 'install' | 'uninstall'): Promise<number> {
  const checkpoints = await checkpointsOf(guest, command, ...quiet);
  const n = checkpoints.findIndex((name) => name.endsWith(` ${multiarch}/libcuda.so.1`)) + 1;
  assert.ok(n > 0, checkpoints.join('\n'));
  return n;
}

/** The tests share one guest. Each test restores its initial state. */
describe('two commands at once', { skip, timeout: 600_000 }, () => {
  let guest: Guest;
  let before: Listing;
  let steps: Readonly<Record<'install' | 'uninstall', number>>;
  beforeAll(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await prepareConsumer(guest, consumerDesigns().at(-1) ?? 3);
    await mixed.prepare(guest);
    await freshCache(guest);
    before = await guest.listing();
    steps = { install: await middle(guest, 'install'), uninstall: await middle(guest, 'uninstall') };
  });
  after(() => guest.stop());

  test('one of two installs installs, the other finds nothing to do; the consumer restarts once', async () => {
    const former = await guest.invocationId('ollama');
    const both = await Promise.all([
      guest.agent('install', '--yes', '--json'),
      guest.agent('install', '--yes', '--json'),
    ]);
    const documents = both.map((ran) => documentOf(ran));
    for (const document of documents) assert.equal(at(document, 'verdict', 'mode'), 'gpu');
    const changed = documents.map((document) => Number(at(document, 'changed'))).sort((a, b) => a - b);
    assert.equal(changed[0], 0, 'one of them found nothing to do');
    assert.ok(Number(changed[1]) > 10, 'the other did it all');

    const starts = new Set(
      (await guest.journal('ollama.service')).map((entry) => entry.invocation).filter((id) => id !== ''),
    );
    starts.delete(undefined);
    const now = await guest.invocationId('ollama');
    assert.ok(starts.has(now));
    assert.notEqual(now, former);
    assert.equal(starts.size, 2, 'the start before the install, and the one by it');
    await uninstall(guest);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });

  test('many commands at once each succeed or are refused; a later install and uninstall restore every file', async () => {
    const commands = ['install', 'uninstall', 'install', 'uninstall', 'install'] as const;
    const all = await Promise.all(commands.map((command) => guest.agent(command, ...quiet)));
    for (const [index, ran] of all.entries()) {
      const said = `${commands[index]}\n${ran.stdout}${ran.stderr}`;
      assert.ok(ran.code === 0 || ran.code === 6, `exit status ${ran.code}\n${said}`);
      if (ran.code === 6) assert.match(ran.stderr, /is changing this machine/, said);
    }
    await assertConsumerStarts(guest, 'after five commands at once');
    await installToGpu(guest);
    await uninstall(guest);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });

  test('an install during an uninstall waits, and then installs', async () => {
    await installToGpu(guest);
    const uninstalling = await Held.at(guest, steps.uninstall, 'uninstall', '--yes');
    const installing = guest.agent('install', '--yes', '--json');
    // Long enough for it to reach the lock: an install that did not wait would be done by then.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    assert.match(await guest.read('/run/vgpu-agent/lock'), /^\d+ uninstall\n$/);
    assert.equal((await uninstalling.goOn()).code, 0);
    const document = documentOf(await installing);
    assert.equal(at(document, 'verdict', 'mode'), 'gpu');
    assert.ok(Number(at(document, 'changed')) > 10);
    const libraries = (await consumerProcesses(guest)).flatMap((one) => one.libraries);
    assert.ok(libraries.some((file) => file.startsWith('/opt/vgpu/versions/')));
    await uninstall(guest);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });

  test('an uninstall during an install waits, and then uninstalls', async () => {
    const installing = await Held.at(guest, steps.install, 'install', '--yes', '--json');
    const uninstalling = guest.agent('uninstall', '--yes');
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const installed = await installing.goOn();
    assert.equal((await uninstalling).code, 0);
    // The service is removed while a command waits for its verdict. Whatever the command says, it ends, and it is
    // not an internal error.
    assert.ok(
      [0, 3, 4, 5].includes(installed.code),
      `${installed.code}\n${installed.stdout}${installed.stderr}`,
    );
    assert.deepEqual(differences(before, await guest.listing()), []);
    await assertRunsWithoutShim(guest);
  });

  test('while a stopped install holds the lock, another is refused after ten seconds, names the holder, and changes nothing', async () => {
    const standing = await Held.at(guest, steps.install, 'install', ...quiet);
    const half = await guest.listing();
    const holder = (await guest.read('/run/vgpu-agent/lock')).split(' ')[0] ?? '';
    const [install, remove] = await Promise.all([
      guest.agent('install', '--yes', '--json'),
      guest.agent('uninstall', '--yes', '--json'),
    ]);
    for (const ran of [install, remove]) {
      const document = documentOf(ran, 6);
      const message = String(at(document, 'error', 'message'));
      assert.equal(message, `vgpu-agent install (process ${holder}) is changing this machine`);
      assert.equal(at(document, 'error', 'kind'), 'refused');
    }
    assert.deepEqual(half.diff(await guest.listing(), { mtimes: 'all' }), []);

    // Questions need no lock.
    for (const question of [['plan'], ['status'], ['install', '--dry-run']]) {
      const ran = await guest.agent(...question, '--json');
      assert.ok(
        ran.code === 0 || ran.code === 3 || ran.code === 4,
        `${question}\n${ran.stdout}${ran.stderr}`,
      );
    }
    assert.deepEqual(half.diff(await guest.listing(), { mtimes: 'all' }), []);

    assert.equal((await standing.goOn()).code, 0);
    await installToGpu(guest);
    await uninstall(guest);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });

  test('the lock of a command that was killed is free at once', async () => {
    const standing = await Held.at(guest, steps.install, 'install', ...quiet);
    const holder = (await guest.read('/run/vgpu-agent/lock')).split(' ')[0] ?? '';
    const waiting = guest.agent('install', '--yes', '--json');
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await guest.must('kill', '-KILL', holder);
    // If the lock were still held, it would be refused after ten seconds.
    await until('the other install to have the lock', 60_000, async () => {
      const now = await guest.read('/run/vgpu-agent/lock').catch(() => '');
      const [, other] = /^(\d+) install\n$/.exec(now) ?? [];
      return other !== undefined && other !== holder ? true : undefined;
    });
    assert.equal(at(documentOf(await waiting), 'verdict', 'mode'), 'gpu');
    assert.equal((await standing.goOn()).code, 137);
    await uninstall(guest);
    assert.deepEqual(differences(before, await guest.listing()), []);
  });
});
