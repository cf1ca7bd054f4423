import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  ftruncateSync,
  openSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import {
  ContentCache,
  maxContentBytes,
  ownedFile,
  pathState,
} from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { buildElf, ourNote, realLibrary, tree, withoutRealLibraries } from '../support.js';

const mark = 'NVIDIA: API mismatch: this NVIDIA driver component has version';

describe('content', () => {
  for (const driver of ['535', '550'] as const) {
    for (const name of ['libcuda', 'libnvidia-ml'] as const) {
      const file = realLibrary(name, driver);
      const skip = file === null && withoutRealLibraries;
      it(`knows NVIDIA's ${name} ${driver} under any name`, { skip }, async (context) => {
        const renamed = path.join(
          tree(context, { 'libharmless.so': readFileSync(file ?? '') }),
          'libharmless.so',
        );
        const content = await new ContentCache().of(renamed, renamed);
        assert.equal(content?.vendor, 'nvidia');
        const expected = createHash('sha256').update(readFileSync(renamed)).digest('hex');
        assert.equal(content.sha256, expected);
      });
    }
  }

  it('is not fooled by a name', async (context) => {
    const directory = tree(context, {
      'libcuda.so.1': buildElf({ soname: 'libcuda.so.1' }),
      'libfoo.so': buildElf({ note: ourNote }),
    });
    const contents = new ContentCache();
    assert.equal((await contents.of(path.join(directory, 'libcuda.so.1'), 'x'))?.vendor, 'foreign');
    assert.equal((await contents.of(path.join(directory, 'libfoo.so'), 'x'))?.vendor, 'vgpu');
  });

  it('is the shim by its note, even when it quotes NVIDIA’s words', async (context) => {
    const file = path.join(tree(context, { lib: buildElf({ note: ourNote, tail: mark }) }), 'lib');
    assert.equal((await new ContentCache().of(file, file))?.vendor, 'vgpu');
  });

  it('sees a mark across the border of two reads, and takes a text file with it for foreign', async (context) => {
    const elf = buildElf();
    const chunk = 4 * 1024 * 1024;
    for (const shift of [0, 1, 20, mark.length - 1, mark.length, 60]) {
      const before = Buffer.alloc(chunk - elf.length - shift);
      const file = path.join(
        tree(context, { lib: Buffer.concat([elf, before, Buffer.from(mark), Buffer.alloc(chunk)]) }),
        'lib',
      );
      const content = await new ContentCache().of(file, file);
      assert.equal(content?.vendor, 'nvidia', `shift ${shift}`);
      assert.equal(content.sha256, createHash('sha256').update(readFileSync(file)).digest('hex'));
    }
    const text = path.join(tree(context, { lib: mark }), 'lib');
    assert.equal((await new ContentCache().of(text, text))?.vendor, 'foreign');
  });

  it('reads a file again when it changed, even with its old time and size', async (context) => {
    const file = path.join(tree(context, { lib: 'aaaa' }), 'lib');
    const contents = new ContentCache();
    const first = await contents.of(file, file);
    assert.equal(await contents.of(file, file), first);
    const { atime, mtime } = statSync(file);
    const changed = (): bigint => statSync(file, { bigint: true }).ctimeNs;
    // File times have a resolution of some milliseconds.
    for (const before = changed(); changed() === before; ) {
      writeFileSync(file, 'bbbb');
      utimesSync(file, atime, mtime);
    }
    assert.notEqual((await contents.of(file, file))?.sha256, first?.sha256);
  });

  it('does not read a file beyond the size limit', async (context) => {
    const file = path.join(tree(context), 'libcuda.so.1');
    const descriptor = openSync(file, 'w');
    ftruncateSync(descriptor, maxContentBytes + 1);
    closeSync(descriptor);
    const content = await new ContentCache().of(file, file);
    assert.equal(content?.sha256, 'unread');
    assert.equal(content.size, maxContentBytes + 1);
  });
});

describe('path-state', () => {
  it('reports exactly the file at a path', async (context) => {
    const directory = tree(context, {
      file: 'content',
      link: { link: 'anything at all' },
      empty: {},
      full: { one: '' },
    });
    chmodSync(path.join(directory, 'file'), 0o4711);
    const root = new Root(directory);
    const contents = new ContentCache();
    const state = (name: string) => pathState(root, `/${name}`, contents);
    const stats = statSync(path.join(directory, 'file'), { bigint: true });
    assert.deepEqual(await state('file'), {
      kind: 'file',
      size: 7,
      sha256: createHash('sha256').update('content').digest('hex'),
      mode: 0o4711,
      uid: Number(stats.uid),
      gid: Number(stats.gid),
      mtimeNs: stats.mtimeNs.toString(),
    });
    const link = await state('link');
    assert.ok(link.kind === 'link');
    assert.equal(link.target, 'anything at all');
    const [empty, full] = [await state('empty'), await state('full')];
    assert.ok(empty.kind === 'directory' && empty.empty);
    assert.ok(full.kind === 'directory' && !full.empty);
    assert.deepEqual(await state('nothing'), { kind: 'absent' });
    assert.deepEqual(await state('file/below'), { kind: 'absent' });
  });

  it('reads the text of an installed file, and of nothing else', async (context) => {
    const root = new Root(tree(context, { conf: 'host=x\n', link: { link: 'conf' } }));
    const contents = new ContentCache();
    assert.equal((await ownedFile(root, '/conf', contents)).content, 'host=x\n');
    assert.equal((await ownedFile(root, '/link', contents)).content, null);
    assert.equal((await ownedFile(root, '/none', contents)).content, null);
  });
});
