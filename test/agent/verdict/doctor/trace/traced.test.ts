import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ContentCache } from '../../../../../agent/guest/files/content.js';
import { liveProcess, readTraceFile, whoseLibraries } from '../../../../../agent/verdict/doctor/trace.js';
import { buildElf, ourNote, tree } from '../../../guest/support.js';

describe('traced', () => {
  it('reads the output of the processes, and no more than the limit', (context) => {
    const file = path.join(tree(context, { events: 'one\ntwo\n' }), 'events');
    assert.deepEqual(readTraceFile(100, file), { text: 'one\ntwo\n', cut: false });
    assert.deepEqual(readTraceFile(4, file), { text: 'one\n', cut: true });
    writeFileSync(file, '');
    assert.deepEqual(readTraceFile(100, file), { text: '', cut: false });
  });

  it('follows no link, waits for no FIFO, and does without a file', (context) => {
    const directory = tree(context, { secret: 'root only', events: { link: 'secret' } });
    assert.equal(readTraceFile(100, path.join(directory, 'events')).text, '');
    assert.equal(readTraceFile(100, path.join(directory, 'none')).text, '');
    const fifo = path.join(directory, 'fifo');
    assert.equal(spawnSync('mkfifo', [fifo]).status, 0);
    assert.equal(readTraceFile(100, fifo).text, '');
  });

  it('does not know whether a process was traced that has ended and was not waited for', async (context) => {
    // A shell may wait for its child; the program that replaces it does not.
    const parent = spawn('sh', ['-c', 'sleep 60 & echo $!; exec tail -f /dev/null'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    context.after(() => parent.kill());
    const [printed] = await once(parent.stdout, 'data');
    const pid = Number(String(printed));
    const until = async (file: string, pattern: RegExp): Promise<void> => {
      while (!pattern.test(readFileSync(file, 'utf8')))
        await new Promise((resolve) => setTimeout(resolve, 10));
    };
    await until(`/proc/${parent.pid}/comm`, /^tail/);
    process.kill(pid, 'SIGKILL');
    await until(`/proc/${pid}/status`, /^State:\s+Z/m);
    assert.equal(liveProcess({ pid, executable: null, name: 'sleep' }).traced, null);
    assert.equal(liveProcess({ pid: process.pid, executable: null, name: 'node' }).traced, false);
  });

  it('recognizes the owner of a library by its content, and leaves out files that it may not read', async (context) => {
    const directory = tree(context, {
      'ours.so': buildElf({ soname: 'libcuda.so.1', note: ourNote }),
      'theirs.so': buildElf({ soname: 'libcuda.so.1' }),
      'to-ours': { link: 'ours.so' },
      'dangling.so': { link: 'nowhere' },
    });
    const names = ['ours.so', 'theirs.so', 'to-ours', 'dangling.so', 'none.so', '.'];
    const asked = [
      ...names.map((name) => path.join(directory, name)),
      'program',
      'libcuda.so.1',
      '/dev/zero',
    ];
    const found = await whoseLibraries(asked, new ContentCache());
    assert.deepEqual(
      [...found].map(([file, vendor]) => [path.basename(file), vendor]),
      [
        ['ours.so', 'vgpu'],
        ['theirs.so', 'foreign'],
        ['to-ours', 'vgpu'],
      ],
    );
  });

  it('reads no more libraries than a service has, however many a process names', async (context) => {
    const library = buildElf();
    const directory = tree(
      context,
      Object.fromEntries(Array.from({ length: 60 }, (_, at) => [`${at}.so`, library])),
    );
    const asked = Array.from({ length: 60 }, (_, at) => path.join(directory, `${at}.so`));
    assert.equal((await whoseLibraries(asked, new ContentCache())).size, 40);
  });
});
