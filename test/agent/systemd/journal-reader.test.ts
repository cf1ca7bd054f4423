/** The reader of the journal against a journalctl of the test's own: long, endless, deaf, and short of resources. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { journalReader } from '../../../agent/systemd/journal-reader.js';
import { fixtureText } from '../verdict/support.js';

const dist = path.join(packageRoot(), 'dist');
const long = process.env['VGPU_TEST_LONG'] === '1';
const start = 'a'.repeat(32);

/** A program that answers as journalctl does; `script` is for sh, with `$*` its arguments. */
function journalctl(t: TestContext, script: string): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-journalctl-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const file = path.join(directory, 'journalctl');
  writeFileSync(file, `#!/bin/sh\n${script}\n`);
  chmodSync(file, 0o755);
  return file;
}

function line(message: string, cursor: string): string {
  return JSON.stringify({
    __CURSOR: cursor,
    __REALTIME_TIMESTAMP: '1',
    MESSAGE: message,
    _PID: '100',
    _SYSTEMD_INVOCATION_ID: start,
  });
}

/** The reader in a process with the heap of the service; it prints the state of the log and its most memory in MiB. */
async function inService(
  program: string,
  environment: Readonly<Record<string, string>> = {},
): Promise<string> {
  const script = `
    import { journalReader } from '${dist}/agent/systemd/journal-reader.js';
    import { watchLog } from '${dist}/agent/verdict/watch-log.js';
    import { loadProfile } from '${dist}/agent/profile/load.js';
    const stop = new AbortController();
    const none = async function* () {};
    const effects = {
      journal: journalReader({ journalctl: process.argv[1] }),
      followFile: none, containerLogs: none, clock: { now: () => performance.now() },
    };
    const options = { profile: loadProfile('ollama'), cursor: null, outputFile: null };
    const log = watchLog(options, effects, '${start}', stop.signal);
    const atOnce = log.state();
    while (!log.caughtUp()) await new Promise((resolve) => setTimeout(resolve, 10));
    console.log(atOnce, log.state(), log.error(), log.findings().mode, log.findings().entries,
      Math.round(process.resourceUsage().maxRSS / 1024));
    stop.abort();
    await log.done;
  `;
  const child = spawn(
    process.execPath,
    ['--max-old-space-size=64', '--input-type=module', '--eval', script, program],
    { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } },
  );
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += String(chunk);
  });
  let complaint = '';
  child.stderr.on('data', (chunk) => {
    complaint += String(chunk);
  });
  const [code] = await once(child, 'close');
  assert.equal(code, 0, complaint);
  return output.trim();
}

const count = long ? 2_200_000 : 200_000;

test(`a start with ${count} lines is judged in the heap of the service`, { timeout: 600_000 }, async (t) => {
  const gpu = fixtureText('0.32.9_gpu-mode_debug0')
    .trimEnd()
    .split('\n')
    .map((message, at) => line(message, `g${at}`));
  // 200,000 of these are 90 MB, 2,200,000 are 1 GB.
  const [before = '', after = ''] = line(
    `time=2026 level=INFO source=x.go:1 msg=${'request.'.repeat(36)}`,
    'cCOUNT',
  ).split('COUNT');
  const program = journalctl(
    t,
    `case "$*" in
*--follow*) exec sleep 1000 ;;
*--lines=1\\ * | *--lines=1) echo '${line('the last one', 'c1')}' ;;
*) cat <<'END'
${gpu.join('\n')}
END
awk -v before='${before}' -v after='${after}' 'BEGIN { for (n = 0; n < ${count}; n++) print before n after }' ;;
esac`,
  );
  const begun = performance.now();
  const said = await inService(program);
  t.diagnostic(`${said} MiB, ${Math.round(performance.now() - begun)} ms`);
  const [atOnce, state, error, mode, entries, memory] = said.split(' ');
  assert.deepEqual([atOnce, error, mode], ['undecided', 'null', 'gpu']);
  assert.notEqual(state, 'undecided');
  assert.equal(Number(entries), count + gpu.length);
  assert.ok(Number(memory) < 190, `${memory} MiB`);
});

test('an endless journal whose journalctl ignores SIGTERM ends with the signal', {
  timeout: 120_000,
}, async (t) => {
  const program = journalctl(
    t,
    `trap '' TERM PIPE
while :; do echo '${line('again', 'c1')}'; done 2>/dev/null`,
  );
  const stop = new AbortController();
  let read = 0;
  let stopped = 0;
  for await (const entry of journalReader({ journalctl: program }).read({
    unit: 'x.service',
    invocationId: start,
    signal: stop.signal,
  })) {
    assert.equal(entry.message, 'again');
    read += 1;
    if (read !== 1_000) continue;
    stopped = performance.now();
    stop.abort();
  }
  assert.ok(read >= 1_000);
  assert.ok(performance.now() - stopped < 30_000);
});

test('a journal that does not answer is an error after a time of silence, or when the signal aborts', async (t) => {
  const program = journalctl(t, 'exec sleep 1000');
  const { signal } = new AbortController();
  await assert.rejects(
    journalReader({ journalctl: program }).tail(AbortSignal.timeout(50)),
    /cannot read the journal .*: stopped$/,
  );
  const impatient = journalReader({ journalctl: program, silentMs: 50 });
  const late = /cannot read the journal .*: no answer within 0\.05 s$/;
  await assert.rejects(impatient.tail(signal), late);
  await assert.rejects(async () => {
    for await (const _ of impatient.read({ unit: 'x.service', invocationId: start, signal }));
  }, late);
});

test('the time that a reader takes itself is no silence of the journal', async (t) => {
  const [first, second] = [line('one', 'c1'), line('two', 'c2')];
  const program = journalctl(t, `echo '${first}'; echo '${second}'; touch "$0.said"; exec sleep 1000`);
  const stop = new AbortController();
  const reader = journalReader({ journalctl: program, silentMs: 50 });
  const entries = reader.read({ unit: 'x.service', invocationId: start, signal: stop.signal });
  const next = entries[Symbol.asyncIterator]();
  const asked = next.next();
  await new Promise(setImmediate);
  // This process is kept from running, as on a busy machine, until after the time.
  const pause = new Int32Array(new SharedArrayBuffer(4));
  const begun = performance.now();
  while (!existsSync(`${program}.said`) || performance.now() - begun < 100) Atomics.wait(pause, 0, 0, 10);
  assert.equal((await asked).value?.message, 'one');
  // The caller is slow to take the next entry.
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal((await next.next()).value?.message, 'two');
  stop.abort();
  assert.equal((await next.next()).done, true);
});

test('a line longer than 1 MiB is left out, and so is its rest; the next is read', async (t) => {
  const program = journalctl(
    t,
    `echo '${line('one', 'c1')}'
printf '{"__CURSOR":"c2","MESSAGE":"'; head -c 3000000 /dev/zero | tr '\\0' x; printf '"}\\n'
echo '${line('three', 'c3')}'`,
  );
  const messages: string[] = [];
  const { signal } = new AbortController();
  for await (const entry of journalReader({ journalctl: program }).read({
    unit: 'x.service',
    invocationId: start,
    signal,
  }))
    messages.push(entry.message);
  assert.deepEqual(messages, ['one', 'three']);
});

test('following begins again when journalctl could not be started for want of descriptors', async (t) => {
  const program = journalctl(t, `echo '${line('heard', 'c1')}'; exec sleep 1000`);
  const script = `
    import { closeSync, openSync } from 'node:fs';
    import { journalReader } from '${dist}/agent/systemd/journal-reader.js';
    const stop = new AbortController();
    const taken = [];
    try { for (;;) taken.push(openSync('/dev/null')); } catch {}
    setTimeout(() => taken.forEach(closeSync), 200);
    const place = { unit: 'x.service', cursor: null, signal: stop.signal };
    for await (const entry of journalReader({ journalctl: process.argv[1] }).follow(place)) {
      console.log(entry.message);
      stop.abort();
    }
  `;
  const child = spawn(
    'prlimit',
    ['--nofile=64', process.execPath, '--input-type=module', '--eval', script, program],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += String(chunk);
  });
  const [code] = await once(child, 'close');
  assert.deepEqual([code, output.trim()], [0, 'heard']);
});
