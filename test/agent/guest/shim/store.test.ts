import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmodSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { readShimBuild, readStore, storeId } from '../../../../agent/guest/shim/store.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { buildElf, grow, ourNote, tree } from '../support.js';

function shimTree(context: TestContext, changes: Readonly<Record<string, string | Buffer>> = {}): string {
  return tree(context, {
    'libcuda.so.1': buildElf({ soname: 'libcuda.so.1', note: ourNote }),
    'libnvidia-ml.so.1': buildElf({ note: ourNote.replace('libcuda', 'libnvidia-ml') }),
    'vgpu-probe': 'probe',
    ...changes,
  });
}

describe('shim-build', () => {
  it('reads files, version and links, and the id is the one of the contract', async (context) => {
    const directory = shimTree(context);
    const shim = await readShimBuild(directory, new ContentCache());
    assert.equal(shim.version, '0.1.0');
    assert.deepEqual(shim.links, [
      { name: 'libcuda.so', target: 'libcuda.so.1' },
      { name: 'libnvidia-ml.so', target: 'libnvidia-ml.so.1' },
    ]);
    const lines = shim.files.map(
      (file) => `${file.name}\0${file.mode.toString(8).padStart(4, '0')}\0${file.sha256}\n`,
    );
    assert.equal(shim.id, createHash('sha256').update(lines.join('')).digest('hex').slice(0, 16));
    assert.match(shim.id, /^[0-9a-f]{16}$/);
  });

  it('takes the tracer along where it was built, of the same version', async (context) => {
    const name = 'libvgpu-trace.so';
    const plain = await readShimBuild(shimTree(context), new ContentCache());
    const note = ourNote.replace('libcuda', 'libvgpu-trace');
    const traced = await readShimBuild(shimTree(context, { [name]: buildElf({ note }) }), new ContentCache());
    const added = traced.files.filter((file) => !plain.files.some((other) => other.name === file.name));
    assert.deepEqual(
      added.map((file) => [file.name, file.mode]),
      [[name, 0o644]],
    );
    assert.deepEqual(traced.links, plain.links, 'nobody finds it by another name');
    assert.notEqual(traced.id, plain.id);
    const other = shimTree(context, { [name]: buildElf({ note: note.replace('0.1.0', '0.2.0') }) });
    await assert.rejects(readShimBuild(other, new ContentCache()), /versions 0\.1\.0 and 0\.2\.0/);
  });

  it('takes our ptxas along where it was built, as a program', async (context) => {
    const { files } = await readShimBuild(
      shimTree(context, { 'vgpu-ptxas': '#!/bin/sh' }),
      new ContentCache(),
    );
    assert.equal(files.find((file) => file.name === 'vgpu-ptxas')?.mode, 0o755);
  });

  it('has one id whatever the umask and the order, another for other bytes', async (context) => {
    const id = async (directory: string) => (await readShimBuild(directory, new ContentCache())).id;
    const first = shimTree(context);
    const second = shimTree(context);
    chmodSync(path.join(second, 'vgpu-probe'), 0o700);
    assert.equal(await id(first), await id(second));
    assert.notEqual(await id(first), await id(shimTree(context, { 'vgpu-probe': 'another' })));
    const files = [
      { name: 'b', mode: 0o644, sha256: '1' },
      { name: 'a', mode: 0o755, sha256: '2' },
    ];
    assert.equal(storeId(files), storeId(files.toReversed()));
    assert.notEqual(storeId(files), storeId(files.map((file) => ({ ...file, mode: 0o600 }))));
  });

  for (const [what, changes, message] of [
    ['another library', { 'libcuda.so.1': buildElf({ soname: 'libcuda.so.1' }) }, /no \.note\.vgpu/],
    ['a truncated library', { 'libcuda.so.1': buildElf().subarray(0, 30) }, /is not a library/],
    [
      'libraries of two builds',
      { 'libcuda.so.1': buildElf({ note: ourNote.replace('0.1.0', '0.2.0') }) },
      /0\.2\.0/,
    ],
  ] as const) {
    it(`refuses ${what}`, async (context) => {
      await assert.rejects(readShimBuild(shimTree(context, changes), new ContentCache()), message);
    });
  }

  it('says how to build when a file is missing', async (context) => {
    const directory = shimTree(context);
    rmSync(path.join(directory, 'libnvidia-ml.so.1'));
    await assert.rejects(readShimBuild(directory, new ContentCache()), (error) => {
      assert.ok(error instanceof VgpuError);
      assert.equal(error.path, path.join(directory, 'libnvidia-ml.so.1'));
      assert.match(error.remedy ?? '', /scripts\/setup/);
      return true;
    });
  });
});

describe('store', () => {
  /** A root whose store holds the build as apply/ leaves it. */
  async function stored(context: TestContext): Promise<{ directory: string; version: string; id: string }> {
    const shim = await readShimBuild(shimTree(context), new ContentCache());
    const directory = tree(context);
    const version = path.join(directory, 'opt/vgpu/versions', shim.id);
    for (const file of shim.files) {
      grow(version, { [file.name]: file.name === 'vgpu-probe' ? 'probe' : '' });
    }
    grow(version, {
      'libcuda.so.1': buildElf({ soname: 'libcuda.so.1', note: ourNote }),
      'libnvidia-ml.so.1': buildElf({ note: ourNote.replace('libcuda', 'libnvidia-ml') }),
      'libcuda.so': { link: 'libcuda.so.1' },
      'libnvidia-ml.so': { link: 'libnvidia-ml.so.1' },
    });
    for (const file of shim.files) chmodSync(path.join(version, file.name), file.mode);
    symlinkSync(`versions/${shim.id}`, path.join(directory, 'opt/vgpu/current'));
    return { directory, version, id: shim.id };
  }
  const read = (directory: string) => readStore(new Root(directory), new ContentCache());

  it('finds nothing in a bare guest', async (context) => {
    assert.deepEqual(await read(tree(context)), {
      root: { kind: 'absent' },
      current: { kind: 'absent' },
      versions: [],
    });
  });

  it('finds a version that matches its id', async (context) => {
    const { directory, id } = await stored(context);
    const store = await read(directory);
    assert.deepEqual(store.versions, [{ id, intact: true }]);
    assert.ok(store.current.kind === 'link');
    assert.equal(store.current.target, `versions/${id}`);
  });

  const damages: readonly (readonly [string, (version: string) => void])[] = [
    ['a changed byte', (version) => writeFileSync(path.join(version, 'vgpu-probe'), 'prob3')],
    ['a changed mode', (version) => chmodSync(path.join(version, 'libcuda.so.1'), 0o666)],
    ['a missing file', (version) => rmSync(path.join(version, 'libcuda.so.1'))],
    ['an extra file', (version) => writeFileSync(path.join(version, 'extra'), '')],
    ['a missing link', (version) => rmSync(path.join(version, 'libcuda.so'))],
    ['an extra directory', (version) => grow(version, { extra: {} })],
    [
      'a link that leads elsewhere',
      (version) => {
        rmSync(path.join(version, 'libcuda.so'));
        symlinkSync('/etc/passwd', path.join(version, 'libcuda.so'));
      },
    ],
  ];
  for (const [what, damage] of damages) {
    it(`is not intact with ${what}`, async (context) => {
      const { directory, version, id } = await stored(context);
      damage(version);
      assert.deepEqual((await read(directory)).versions, [{ id, intact: false }]);
    });
  }

  it('does not take an unfinished directory for a version', async (context) => {
    const directory = tree(context, { 'opt/vgpu/versions/.0123456789abcdef.tmp': { x: '' } });
    assert.deepEqual((await read(directory)).versions, []);
  });
});
