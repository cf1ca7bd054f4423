import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { acquireLock } from '../../../../agent/install/apply/lock.js';
import { exitCodeOf, VgpuError } from '../../../../agent/lib/errors.js';

const lockModule = path.join(
  path.dirname(fileURLToPath(import.meta.url)),
  '../../../../agent/install/apply/lock.js',
);

function lockFile(context: TestContext): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-lock-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  return path.join(directory, 'run', 'lock');
}

/** Another process that holds the lock until it is killed. */
async function holder(file: string): Promise<ChildProcess> {
  const source = `
    const { acquireLock } = await import(${JSON.stringify(lockModule)});
    await acquireLock({ command: 'install', waitMs: 0, file: ${JSON.stringify(file)} });
    process.stdout.write('held');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  assert.ok(child.stdout);
  await once(child.stdout, 'data');
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describe('acquireLock', () => {
  it('waits no longer when the clock is set back two hours meanwhile', {
    timeout: 20_000,
  }, async (context) => {
    const file = lockFile(context);
    const child = await holder(file);
    const begun = Date.now();
    let asked = 0;
    context.mock.method(Date, 'now', () => {
      asked += 1;
      return asked === 1 ? begun : begun - 7_200_000;
    });
    await assert.rejects(acquireLock({ command: 'install', waitMs: 200, file }), /is changing this machine/);
    await kill(child);
  });

  it('refuses while another process holds it, and says which', async (context) => {
    const file = lockFile(context);
    const child = await holder(file);
    await assert.rejects(acquireLock({ command: 'uninstall', waitMs: 0, file }), (error: VgpuError) => {
      assert.equal(exitCodeOf(error), 6);
      assert.match(error.message, new RegExp(`install \\(process ${child.pid}\\)`));
      return true;
    });
    await kill(child);
  });

  it('is free at once when its holder is killed', async (context) => {
    const file = lockFile(context);
    await kill(await holder(file));
    const lock = await acquireLock({ command: 'install', waitMs: 0, file });
    await lock.release();
  });

  it('waits for the given time', async (context) => {
    const file = lockFile(context);
    const child = await holder(file);
    const waiting = acquireLock({ command: 'install', waitMs: 60_000, file });
    let held = true;
    setTimeout(() => {
      held = false;
      child.kill('SIGKILL');
    }, 200);
    const lock = await waiting;
    assert.equal(held, false);
    await lock.release();
    const again = await holder(file);
    await assert.rejects(acquireLock({ command: 'install', waitMs: 100, file }), { kind: 'refused' });
    await kill(again);
  });

  it('refuses a second taker in the same process', async (context) => {
    const file = lockFile(context);
    const lock = await acquireLock({ command: 'install', waitMs: 0, file });
    await assert.rejects(acquireLock({ command: 'install', waitMs: 0, file }), VgpuError);
    await lock.release();
    await (await acquireLock({ command: 'install', waitMs: 0, file })).release();
  });

  it('leaves nothing behind when it is released for good, and a process that waited takes a new one', async (context) => {
    const file = lockFile(context);
    const lock = await acquireLock({ command: 'uninstall', waitMs: 0, file });
    const waiting = acquireLock({ command: 'install', waitMs: 60_000, file });
    setTimeout(() => void lock.release({ remove: true }), 100);
    const next = await waiting;
    assert.equal(existsSync(file), true);
    await assert.rejects(acquireLock({ command: 'install', waitMs: 0, file }), { kind: 'refused' });
    await next.release({ remove: true });
    assert.equal(existsSync(path.dirname(file)), false);
  });

  it('names the remedy when this user may not lock', { skip: process.getuid?.() !== 0 }, async (context) => {
    const file = lockFile(context);
    const source = `
      const { acquireLock } = await import(${JSON.stringify(lockModule)});
      process.setuid(65534);
      await acquireLock({ command: 'install', waitMs: 0, file: ${JSON.stringify(file)} }).catch((error) => {
        process.stdout.write(error.kind + ' ' + error.remedy);
      });`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', source]);
    const [said] = await once(child.stdout, 'data');
    assert.match(String(said), /^refused run as root/);
  });

  it('can be opened only by its owner, so no other user can hold it', async (context) => {
    const file = lockFile(context);
    const umask = process.umask(0);
    context.after(() => process.umask(umask));
    const lock = await acquireLock({ command: 'install', waitMs: 0, file });
    assert.equal(statSync(file).mode & 0o777, 0o600);
    await lock.release();
  });

  it('lies in a directory that other users may read, whatever the umask', async (context) => {
    const file = lockFile(context);
    const umask = process.umask(0o077);
    context.after(() => void process.umask(umask));
    const lock = await acquireLock({ command: 'install', waitMs: 0, file });
    context.after(() => lock.release());
    assert.equal(statSync(path.dirname(file)).mode & 0o777, 0o755);
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it('is no link', async (context) => {
    const file = lockFile(context);
    mkdirSync(path.dirname(file));
    symlinkSync('/nonexistent/target', file);
    await assert.rejects(
      acquireLock({ command: 'install', waitMs: 0, file }),
      /cannot open the lock .*ELOOP/,
    );
  });

  it('is no longer awaited after Ctrl-C, and the error says so', async (context) => {
    const file = lockFile(context);
    const child = await holder(file);
    const stop = new AbortController();
    const waiting = acquireLock({ command: 'install', waitMs: 60_000, file, signal: stop.signal });
    setTimeout(() => stop.abort(), 100);
    await assert.rejects(waiting, (error: VgpuError) => {
      assert.equal(exitCodeOf(error), 130);
      assert.match(error.message, /stopped while waiting/);
      return true;
    });
    await kill(child);
  });

  it('is free when Ctrl-C came before it was taken, and the error speaks of no wait', async (context) => {
    const file = lockFile(context);
    const signal = AbortSignal.abort();
    await assert.rejects(
      acquireLock({ command: 'install', waitMs: 60_000, file, signal }),
      /^VgpuError: stopped before it began; nothing was changed$|^stopped before it began; nothing was changed$/,
    );
    await (await acquireLock({ command: 'install', waitMs: 0, file })).release();
  });
});
