import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { type LoaderWords, readLoaderWords } from '../../../../agent/guest/look/ask-loader.js';
import { packageRoot } from '../../../../agent/lib/paths.js';
import { buildElf, tree } from '../support.js';
import { Workshop } from './workshop.js';

// The output of the loaders of four Debian releases is parsed, and any other text is refused.

const skip =
  (process.arch !== 'x64' && 'the libraries are linked for x86-64') ||
  (process.geteuid?.() !== 0 && 'another root needs root');

const roots = path.join(packageRoot(), '.cache/test-roots');

/** Everything that a loader says in one go: a wrong class, DT_RUNPATH, a missing preload, a name that is nowhere. */
const script = `
set -e
mount -t tmpfs tmpfs "$ROOT/mnt"
cp -r "$SHOP/." "$ROOT/mnt/"
exec chroot "$ROOT" /usr/bin/env -i LD_TRACE_LOADED_OBJECTS=1 LD_DEBUG=libs \\
  /lib64/ld-linux-x86-64.so.2 --library-path /mnt/i386:/mnt/env \\
  --preload '/mnt/plugin.so libnvidia-ml.so.1' /mnt/main`;

describe('the words of the loader', { skip }, () => {
  for (const [release, glibc] of [
    ['bullseye', '2.31'],
    ['bookworm', '2.36'],
    ['trixie', '2.41'],
    ['sid', 'the newest'],
  ]) {
    const root = path.join(roots, release ?? '');
    const missing = existsSync(`${root}.made`) ? false : `scripts/test-roots ${release} was not run`;
    it(`of glibc ${glibc} (${release}) are understood`, { skip: missing }, (context) => {
      const shop = new Workshop(tree(context));
      mkdirSync(shop.at('i386'));
      writeFileSync(shop.at('i386/libcuda.so.1'), buildElf({ bits: 32, soname: 'libcuda.so.1' }));
      shop.library('env/libenv.so.1', { soname: 'libenv.so.1' });
      shop.library('run/libcuda.so.1', { soname: 'libcuda.so.1' });
      shop.library('plugin.so', {
        needed: ['libcuda.so.1', 'libenv.so.1', 'libnone.so.1'],
        runpath: '$ORIGIN/run',
      });
      // It needs symbol versions of this machine's glibc: an older one complains of that, and goes on.
      shop.program('main');
      const ran = spawnSync('unshare', ['--mount', 'sh', '-c', script], {
        encoding: 'utf8',
        env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', ROOT: root, SHOP: shop.directory },
      });
      const words = readLoaderWords(ran.stdout, ran.stderr);
      assert.ok(!('problem' in words), JSON.stringify(words));
      const { objects } = words;
      const pathOf = (name: string) => objects?.find((one) => one.name === name)?.path;
      assert.equal(pathOf('/mnt/plugin.so'), '/mnt/plugin.so');
      assert.equal(pathOf('libcuda.so.1'), '/mnt/run/libcuda.so.1');
      assert.equal(pathOf('libenv.so.1'), '/mnt/env/libenv.so.1');
      assert.equal(pathOf('libnone.so.1'), null);
      assert.equal(pathOf('libnvidia-ml.so.1'), undefined);

      const cuda = searchOf(words, 'libcuda.so.1');
      assert.deepEqual(cuda.attempts.at(0), { path: '/mnt/i386/libcuda.so.1', by: 'LD_LIBRARY_PATH' });
      const last = { path: '/mnt/run/libcuda.so.1', by: 'DT_RUNPATH of /mnt/plugin.so' };
      assert.deepEqual(cuda.attempts.at(-1), last);
      assert.ok(cuda.finished);
      assert.equal(searchOf(words, 'libc.so.6').attempts.at(-1)?.by, 'ld.so.cache');
      const nowhere = searchOf(words, 'libnvidia-ml.so.1');
      assert.equal(nowhere.attempts.at(-1)?.by, 'a default directory');
      assert.ok(nowhere.finished);
      assert.match(words.complaint ?? '', release === 'bullseye' ? /GLIBC_2\.34/ : /libnvidia-ml\.so\.1/);
    });
  }
});

function searchOf(words: LoaderWords, name: string): LoaderWords['searches'][number] {
  const found = words.searches.find((one) => one.name === name);
  assert.ok(found !== undefined, name);
  return found;
}

describe('facts that the loader does not print', () => {
  const begun = '      7:\tfind library=libcuda.so.1 [0]; searching\n';

  it('makes the whole answer worthless', () => {
    for (const line of [
      '      7:\t  trying file=/a/libcuda.so.1',
      '      7:\t search path=/a',
      '      7:\t searching in /a',
    ]) {
      assert.deepEqual(readLoaderWords('', `${begun}${line}\n`), { problem: line });
    }
    const orphan = '      7:\t search cache=/etc/ld.so.cache';
    assert.deepEqual(readLoaderWords('', orphan), { problem: orphan });
  });

  it('is kept when it is no line of the search', () => {
    const words = readLoaderWords(
      '',
      'main: error while loading shared libraries: main: Permission denied\n',
    );
    assert.deepEqual(words, {
      searches: [],
      objects: null,
      complaint: 'main: error while loading shared libraries: main: Permission denied',
      missing: [],
    });
  });

  it('a search that stops at a file is not finished', () => {
    const stopped = `${begun}      7:\t search cache=/etc/ld.so.cache\n      7:\t  trying file=/a/libcuda.so.1\n`;
    const words = readLoaderWords('', stopped);
    assert.ok(!('problem' in words));
    assert.equal(words.searches[0]?.finished, false);
    const over = readLoaderWords('', `${stopped}      7:\t\n`);
    assert.ok(!('problem' in over) && over.searches[0]?.finished);
  });
});
