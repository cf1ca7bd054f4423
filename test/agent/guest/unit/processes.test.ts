import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import {
  cgroupPids,
  mappedUnder,
  parseMaps,
  readIdentities,
  readProcesses,
} from '../../../../agent/guest/unit/processes.js';
import { ourNote, tree } from '../support.js';

/** A loadable library with our note, compiled. */
function library(directory: string, name: string): string {
  const source = path.join(directory, 'note.s');
  const file = path.join(directory, name);
  const built = spawnSync('gcc', ['-shared', '-nostdlib', '-o', file, source], { encoding: 'utf8' });
  assert.equal(built.status, 0, built.stderr);
  return file;
}

function workshop(context: TestContext): string {
  return tree(context, {
    'note.s': `.section .note.vgpu,"a",@note\n.long 5, 2f-1f, 1\n.asciz "VGPU"\n.balign 4\n1: .ascii ${JSON.stringify(ourNote)}\n2: .balign 4\n`,
  });
}

/** A process that has mapped its libraries. */
async function sleeper(
  context: TestContext,
  env: Record<string, string>,
): Promise<ChildProcess & { pid: number }> {
  const child = spawn('/bin/cat', { env, stdio: ['pipe', 'pipe', 'ignore'] });
  context.after(() => child.kill('SIGKILL'));
  child.stdin.write('ready');
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const { pid } = child;
  assert.ok(pid !== undefined);
  return Object.assign(child, { pid });
}

describe('processes', () => {
  it('sees our preloaded library, the loader’s variables and who the process is', async (context) => {
    const directory = workshop(context);
    const file = library(directory, 'libcuda.so.1');
    library(directory, 'libother.so');
    const environment = {
      LD_PRELOAD: `${file}:${directory}/libother.so`,
      LD_LIBRARY_PATH: directory,
      SECRET: 'x',
    };
    const child = await sleeper(context, environment);
    const [facts, ...rest] = await readProcesses([child.pid], new ContentCache());
    assert.equal(rest.length, 0);
    assert.ok(facts !== undefined);
    assert.equal(facts.pid, child.pid);
    assert.equal(facts.parent, process.pid);
    assert.equal(facts.name, 'cat');
    assert.match(facts.startTicks, /^\d+$/);
    assert.match(facts.executable ?? '', /\/cat$/);
    assert.deepEqual(facts.libraries, [{ path: file, deleted: false, vendor: 'vgpu' }]);
    const { SECRET: _, ...loaderOnly } = environment;
    assert.deepEqual(facts.loaderEnvironment, loaderOnly);
    assert.equal(facts.unreadable, undefined);
    assert.deepEqual([...(await mappedUnder(directory))].sort(), [file, `${directory}/libother.so`]);
    assert.deepEqual([...(await mappedUnder(`${directory}-not`))], []);
  });

  it('sees that a mapped library was deleted or replaced', async (context) => {
    const directory = workshop(context);
    const file = library(directory, 'libnvidia-ml.so.1');
    const child = await sleeper(context, { LD_PRELOAD: file });
    rmSync(file);
    library(directory, 'libnvidia-ml.so.1');
    const [facts] = await readProcesses([child.pid], new ContentCache());
    assert.equal(facts?.libraries.length, 1);
    const [seen] = facts.libraries;
    assert.equal(seen?.path, file);
    assert.equal(seen.deleted, true);
    // Only with CAP_SYS_ADMIN can a deleted file still be read; without it nothing is guessed.
    assert.ok(seen.vendor === 'vgpu' || seen.vendor === null);
    assert.equal((await mappedUnder(directory)).size, 0);
  });

  const stat = (parent: number): string => `7 (ollama) S ${parent} ${'0 '.repeat(17)}99 0\n`;
  const proc = (context: TestContext, executable: string, environ: string, parent: number): string => {
    const directory = tree(context, { '7/stat': stat(parent), '7/maps': '', '7/environ': environ });
    symlinkSync(executable, path.join(directory, '7/exe'));
    return directory;
  };

  it('a service that PID 1 has forked, and that has not executed its program, is not there yet', async (context) => {
    const read = async (executable: string, parent = 1): Promise<readonly (string | null)[]> => {
      const found = await readProcesses([7], new ContentCache(), proc(context, executable, 'A=b\0', parent));
      return found.map((one) => one.executable);
    };
    for (const own of [
      '/usr/lib/systemd/systemd',
      '/lib/systemd/systemd-executor',
      '/usr/lib/systemd/systemd (deleted)',
    ])
      assert.deepEqual(await read(own), [], own);
    assert.deepEqual(await read('/usr/local/bin/ollama'), ['/usr/local/bin/ollama']);
    assert.deepEqual(await read('/usr/lib/systemd/systemd-journald'), ['/usr/lib/systemd/systemd-journald']);
    // The init of a container is none of PID 1's children.
    assert.deepEqual(await read('/usr/lib/systemd/systemd', 70), ['/usr/lib/systemd/systemd']);
  });

  it('a program that is executed meanwhile is read again: its environment, not that of the one before', async (context) => {
    const directory = proc(context, '/usr/lib/systemd/systemd', 'LD_LIBRARY_PATH=/before\0', 1);
    const here = path.join(directory, '7');
    rmSync(path.join(here, 'maps'));
    // Opening the FIFO waits for the reader, who has read the old environment by then.
    const exec =
      'mkfifo maps; echo ready; exec 3>maps; sleep 0.2; rm maps; : >maps; ln -sfn /usr/bin/ollama exe; ' +
      "printf 'LD_LIBRARY_PATH=/after\\0' >new; mv new environ";
    const child = spawn('/bin/sh', ['-c', exec], { cwd: here, stdio: ['ignore', 'pipe', 'inherit'] });
    context.after(() => child.kill('SIGKILL'));
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const [facts] = await readProcesses([7], new ContentCache(), directory);
    assert.equal(facts?.executable, '/usr/bin/ollama');
    assert.deepEqual(facts.loaderEnvironment, { LD_LIBRARY_PATH: '/after' });
  });

  it('an environment that is empty for a moment is one that is being made', async (context) => {
    const directory = proc(context, '/usr/bin/ollama', '', 1);
    const read = readProcesses([7], new ContentCache(), directory);
    setTimeout(() => writeFileSync(path.join(directory, '7/environ'), 'LD_PRELOAD=/x\0'), 20);
    assert.deepEqual((await read)[0]?.loaderEnvironment, { LD_PRELOAD: '/x' });
    // One that stays empty is empty (env -i).
    writeFileSync(path.join(directory, '7/environ'), '');
    const [bare] = await readProcesses([7], new ContentCache(), directory);
    assert.deepEqual([bare?.loaderEnvironment, bare?.unreadable], [{}, undefined]);
  });

  it('passes over processes that are gone, and over nonsense', async (context) => {
    const child = await sleeper(context, {});
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
    assert.deepEqual(await readProcesses([child.pid, 0, -1, 2 ** 31 - 1], new ContentCache()), []);
  });

  it('survives processes that end while they are read', async () => {
    const contents = new ContentCache();
    const begun = Date.now();
    let seen = 0;
    let gone = 0;
    // On a busy machine they end before the first look: then they live longer, until some are seen.
    let share = 200;
    while (Date.now() < begun + 1000 || (seen === 0 && Date.now() < begun + 30_000)) {
      if (seen === 0) share /= 1.1;
      const children = Array.from({ length: 8 }, (_, index) =>
        spawn('sleep', [String(index / share)], { stdio: 'ignore' }),
      );
      const pids = children.map((child) => child.pid ?? 0);
      await new Promise((resolve) => setTimeout(resolve, 15));
      for (let round = 0; round < 5; round += 1) {
        const found = (await readProcesses(pids, contents)).length;
        seen += found;
        gone += pids.length - found;
      }
      await Promise.all(
        children.map((child) => child.exitCode ?? new Promise((resolve) => child.once('exit', resolve))),
      );
    }
    assert.ok(seen > 0 && gone > 0, `seen ${seen}, gone ${gone}`);
  });

  it('names the files that it may not read, and does not treat them as empty', async (context) => {
    if (process.geteuid?.() !== 0) return context.skip('needs root to become somebody else');
    const child = await sleeper(context, { LD_PRELOAD: '' });
    process.seteuid?.(65534);
    try {
      const [facts] = await readProcesses([child.pid], new ContentCache());
      assert.deepEqual(facts?.unreadable, ['maps', 'environ', 'exe']);
      assert.deepEqual([facts.name, facts.libraries, facts.executable], ['cat', [], null]);
    } finally {
      process.seteuid?.(0);
    }
  });

  it('reads names with blanks and parentheses, and the last of two assignments', async (context) => {
    const proc = tree(context, {
      '7/stat': '7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n',
      '7/maps': '',
      '7/environ': 'LD_PRELOAD=/a\0X=1\0LD_PRELOAD=/b=c\0',
      '8/stat': 'garbage',
      '9/stat': '',
    });
    assert.deepEqual(await readProcesses([7, 8, 9, 10], new ContentCache(), proc), [
      {
        pid: 7,
        parent: 1,
        name: 'a) b (c)',
        startTicks: '4242',
        executable: null,
        libraries: [],
        environmentCleared: true,
        loaderEnvironment: { LD_PRELOAD: '/b=c' },
      },
    ]);
  });

  it('reads maps: each file once, blanks and line breaks in names, deleted apart', () => {
    const maps = [
      '00400000-00401000 r-xp 00000000 fe:01 11                                /usr/bin/x',
      '7f0000000000-7f0000001000 r--p 00000000 fe:01 12                        /a b/libcuda.so.1',
      '7f0000001000-7f0000002000 r-xp 00001000 fe:01 12                        /a b/libcuda.so.1',
      '7f0000003000-7f0000004000 r-xp 00000000 fe:01 13    /new\\012line/libcuda.so.1 (deleted)',
      '7f0000005000-7f0000006000 rw-p 00000000 00:00 0 ',
      '7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]',
      'garbage',
    ].join('\n');
    assert.deepEqual(
      parseMaps(maps).map((one) => [one.range, one.path, one.deleted, one.inode]),
      [
        ['400000-401000', '/usr/bin/x', false, '11'],
        ['7f0000000000-7f0000001000', '/a b/libcuda.so.1', false, '12'],
        ['7f0000003000-7f0000004000', '/new\nline/libcuda.so.1', true, '13'],
      ],
    );
  });
});

describe('the cheap look at processes', () => {
  it('lists those of the unit and of the groups below it; null where the group is not that of the unit', (context) => {
    const root = tree(context, {
      'proc/7/cgroup': '0::/system.slice/x.service/inner\n',
      'cg/system.slice/x.service/cgroup.procs': '7\n0\n8\n',
      'cg/system.slice/x.service/inner/cgroup.procs': '9\n',
    });
    const pids = (pid: number, unit: string) =>
      cgroupPids(pid, unit, path.join(root, 'proc'), path.join(root, 'cg'));
    assert.deepEqual(pids(7, 'x.service'), [7, 8, 9]);
    assert.equal(pids(7, 'y.service'), null);
    assert.equal(pids(6, 'x.service'), null);
  });

  it('are unknown if the unit has too many groups, or one that cannot be read', (context) => {
    const many = Array.from({ length: 70 }, (_, i) => [`cg/many.service/g${i}/cgroup.procs`, `${i + 10}\n`]);
    const root = tree(context, {
      'proc/7/cgroup': '0::/many.service\n',
      'cg/many.service/cgroup.procs': '7\n',
      ...Object.fromEntries(many),
      'proc/8/cgroup': '0::/threaded.service\n',
      'cg/threaded.service/cgroup.procs': '8\n',
      'cg/threaded.service/inner/cgroup.type': 'threaded\n',
    });
    const pids = (pid: number, unit: string) =>
      cgroupPids(pid, unit, path.join(root, 'proc'), path.join(root, 'cg'));
    assert.equal(pids(7, 'many.service'), null);
    assert.equal(pids(8, 'threaded.service'), null);
  });

  it('gives the same numbers as the whole look, and nothing of a process that has ended', async () => {
    const [whole] = await readProcesses([process.pid], new ContentCache());
    const [known, ...others] = await readIdentities([process.pid, 2 ** 22]);
    assert.deepEqual(others, []);
    assert.ok(whole !== undefined && known !== undefined);
    for (const name of ['pid', 'pidNamespace', 'namespacePid', 'startTicks'] as const)
      assert.equal(known[name], whole[name], name);
  });

  it('sees that a wrapper cleared the environment: INVOCATION_ID, which systemd sets, is missing', async (context) => {
    const cleared = await sleeper(context, { PATH: '/usr/bin:/bin' });
    const kept = await sleeper(context, { PATH: '/usr/bin:/bin', INVOCATION_ID: 'a' });
    const facts = await readProcesses([cleared.pid, kept.pid], new ContentCache());
    assert.deepEqual(
      facts.map(({ environmentCleared }) => environmentCleared),
      [true, undefined],
    );
  });
});
