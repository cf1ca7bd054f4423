import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { LibraryCandidate, LoaderFacts } from '../../../../agent/contracts/facts.js';
import { readDistribution } from '../../../../agent/guest/distribution.js';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { readAlternatives } from '../../../../agent/guest/libraries/alternatives.js';
import {
  consumerDirectories,
  findCandidates,
  libraryOf,
  publicDirectories,
} from '../../../../agent/guest/libraries/candidates.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { packageRoot } from '../../../../agent/lib/paths.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { buildElf, ourNote, realLibrary, type Tree, tree, withoutRealLibraries } from '../support.js';

const profile = loadProfile('ollama');
const triplet = 'x86_64-linux-gnu';
const debian = { 'etc/os-release': 'ID=debian\nVERSION_ID="12"\n', lib: { link: 'usr/lib' } };
const multiarch = '/usr/lib/x86_64-linux-gnu';
const nothing: LoaderFacts = { cache: [], directories: [] };

function candidates(directory: string, loader = nothing): Promise<LibraryCandidate[]> {
  const root = new Root(directory);
  const distribution = readDistribution(root, 'x86_64');
  return findCandidates(root, profile, distribution, loader, readAlternatives(root), new ContentCache());
}

async function at(directory: string, file: string, loader = nothing): Promise<LibraryCandidate> {
  const found = (await candidates(directory, loader)).find((one) => one.path === file);
  assert.ok(found !== undefined, `no candidate ${file}`);
  return found;
}

const ours = buildElf({ soname: 'libcuda.so.1', note: ourNote });
const foreign = buildElf({ soname: 'libcuda.so.1' });

describe('candidates', () => {
  it('lists every public name of a bare guest as absent, once for directories that are one', async (context) => {
    const found = await candidates(tree(context, { ...debian, 'usr/lib/x86_64-linux-gnu': {} }));
    const names = ['libcuda.so', 'libcuda.so.1', 'libnvidia-ml.so', 'libnvidia-ml.so.1'];
    assert.deepEqual(
      found.map((one) => [one.path, one.state.kind, one.resolution.kind, one.vendor]),
      [multiarch, '/usr/lib64', '/usr/local/lib'].flatMap((directory) =>
        names.map((name) => [`${directory}/${name}`, 'absent', 'absent', null]),
      ),
    );
  });

  it('keeps /lib and /usr/lib apart where they are two', async (context) => {
    const found = await candidates(
      tree(context, {
        'etc/os-release': 'ID=debian\n',
        'usr/lib/x86_64-linux-gnu': {},
        'lib/x86_64-linux-gnu': { 'libcuda.so.1': foreign },
      }),
    );
    const two = found.filter((one) => one.path.endsWith('x86_64-linux-gnu/libcuda.so.1'));
    assert.deepEqual(
      two.map((one) => [one.path, one.state.kind]),
      [
        [`${multiarch}/libcuda.so.1`, 'absent'],
        ['/lib/x86_64-linux-gnu/libcuda.so.1', 'file'],
      ],
    );
  });

  const states: readonly (readonly [string, Tree, Partial<Record<string, unknown>>])[] = [
    [
      'our link',
      { 'libcuda.so.1': { link: '/opt/vgpu/current/libcuda.so.1' } },
      { kind: 'file', vendor: 'vgpu' },
    ],
    ['a foreign file', { 'libcuda.so.1': foreign }, { kind: 'file', vendor: 'foreign' }],
    ['a dangling link', { 'libcuda.so.1': { link: 'libcuda.so.9' } }, { kind: 'dangling', vendor: null }],
    ['a loop', { 'libcuda.so.1': { link: 'libcuda.so.1' } }, { kind: 'loop', vendor: null }],
    ['a directory', { 'libcuda.so.1': {} }, { kind: 'directory', vendor: null }],
    ['a text file', { 'libcuda.so.1': 'INPUT(x)' }, { kind: 'file', vendor: 'foreign', elf: null }],
    ['an empty file', { 'libcuda.so.1': '' }, { kind: 'file', vendor: 'foreign', elf: null }],
  ];
  for (const [what, content, expected] of states) {
    it(`tells ${what}`, async (context) => {
      const directory = tree(context, {
        ...debian,
        'usr/lib/x86_64-linux-gnu': content,
        'opt/vgpu/versions/0123456789abcdef/libcuda.so.1': ours,
        'opt/vgpu/current': { link: 'versions/0123456789abcdef' },
      });
      const found = await at(directory, `${multiarch}/libcuda.so.1`);
      assert.equal(found.resolution.kind, expected['kind']);
      assert.equal(found.vendor, expected['vendor']);
      if ('elf' in expected) {
        assert.equal(found.elf, null);
        assert.match(found.elfProblem ?? '', /too few|magic/);
      }
    });
  }

  it('tells a FIFO without opening it', async (context) => {
    const directory = tree(context, { ...debian, 'usr/lib/x86_64-linux-gnu': {} });
    spawnSync('mkfifo', [path.join(directory, multiarch, 'libcuda.so.1')]);
    const found = await at(directory, `${multiarch}/libcuda.so.1`);
    assert.ok(found.state.kind === 'other');
    assert.equal(found.state.type, 'fifo');
    assert.deepEqual([found.elf, found.vendor, found.elfProblem], [null, null, 'it is not a regular file']);
  });

  it('looks where the loader, the consumer, drivers and we keep libraries', async (context) => {
    const directory = tree(context, {
      ...debian,
      'usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1': foreign,
      'usr/lib/wsl/lib/libcuda.so.1': foreign,
      'usr/local/cuda-12.4/compat/libcuda.so.1': foreign,
      'usr/local/lib/ollama/cuda_v13/libcuda.so.1': foreign,
      'usr/local/lib/ollama/libnvidia-ml.so.1': foreign,
      'srv/odd/libcuda.so.1': foreign,
      'etc/listed/libnvidia-ml.so': foreign,
      'opt/vgpu/versions/0123456789abcdef/libcuda.so.1': ours,
      'opt/vgpu/current': { link: 'versions/0123456789abcdef' },
    });
    const found = await candidates(directory, {
      cache: [{ soname: 'libcuda.so.1', path: '/srv/odd/libcuda.so.1', flags: 'libc6,x86-64' }],
      directories: [{ path: '/etc/listed', from: '/etc/ld.so.conf' }],
    });
    assert.deepEqual(
      found.filter((one) => one.state.kind !== 'absent').map((one) => [one.path, one.library]),
      [
        ['/srv/odd/libcuda.so.1', 'libcuda'],
        ['/etc/listed/libnvidia-ml.so', 'libnvidia-ml'],
        ['/usr/local/lib/ollama/libnvidia-ml.so.1', 'libnvidia-ml'],
        ['/usr/local/lib/ollama/cuda_v13/libcuda.so.1', 'libcuda'],
        [`${multiarch}/nvidia/current/libcuda.so.1`, 'libcuda'],
        ['/usr/lib/wsl/lib/libcuda.so.1', 'libcuda'],
        ['/usr/local/cuda-12.4/compat/libcuda.so.1', 'libcuda'],
        ['/opt/vgpu/current/libcuda.so.1', 'libcuda'],
      ],
    );
  });

  it('lists versioned names in public directories, as Ubuntu’s layout has them', async (context) => {
    const directory = tree(context, {
      ...debian,
      'usr/lib/x86_64-linux-gnu': {
        'libcuda.so.1': { link: 'libcuda.so.550.163.01' },
        'libcuda.so.550.163.01': foreign,
        'libcuda.so.99999.0': { link: '/opt/vgpu/current/libcuda.so.1' },
        'libcudart.so.12': foreign,
        'libcuda.a': '',
      },
    });
    const found = await candidates(directory);
    assert.deepEqual(
      found.filter((one) => one.state.kind !== 'absent').map((one) => [one.path, one.state.kind]),
      [
        [`${multiarch}/libcuda.so.1`, 'link'],
        [`${multiarch}/libcuda.so.550.163.01`, 'file'],
        [`${multiarch}/libcuda.so.99999.0`, 'link'],
      ],
    );
  });

  it('lists a public directory once when the loader knows it under its other name', async (context) => {
    const directory = tree(context, { ...debian, 'usr/lib/x86_64-linux-gnu/libcuda.so.1': foreign });
    const found = await candidates(directory, {
      cache: [{ soname: 'libcuda.so.1', path: '/lib/x86_64-linux-gnu/libcuda.so.1', flags: 'libc6,x86-64' }],
      directories: [{ path: '/lib/x86_64-linux-gnu', from: 'built in' }],
    });
    const present = found.filter((one) => one.state.kind !== 'absent').map((one) => one.path);
    assert.deepEqual(present, [`${multiarch}/libcuda.so.1`]);
  });

  for (const driver of ['535', '550'] as const) {
    const skip = realLibrary('libcuda', driver) === null && withoutRealLibraries;
    it(`sees Debian's driver ${driver} through its alternatives as NVIDIA's`, { skip }, async (context) => {
      const directory = unpackedDriver(context, driver);
      for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1']) {
        const slave = `nvidia--${name}-x86_64-linux-gnu`;
        const found = await at(directory, `${multiarch}/${name}`);
        assert.equal(found.state.kind, 'link');
        assert.equal(found.vendor, 'nvidia');
        assert.equal(found.elf?.soname, name);
        assert.deepEqual(found.alternative, { group: 'nvidia', slave });
        assert.ok(found.resolution.kind === 'file');
        assert.equal(found.resolution.steps.length, 3);
        const direct = await at(directory, `${multiarch}/nvidia/current/${name}`);
        assert.equal(direct.alternative, null);
        assert.equal(direct.vendor, 'nvidia');
      }
    });
  }

  it('skips files that an ordinary user may not see, but not a public directory', async (context) => {
    const directory = tree(context, {
      ...debian,
      'usr/lib/x86_64-linux-gnu': {},
      'usr/local/lib/ollama/cuda_v12/libcuda.so.1': foreign,
    });
    const closed = [path.join(directory, 'usr/local/lib/ollama/cuda_v12'), path.join(directory, multiarch)];
    const [consumers = '', publicOne = ''] = closed;
    chmodSync(directory, 0o755);
    try {
      chmodSync(consumers, 0);
      await asOrdinaryUser(async () => {
        const found = await candidates(directory);
        assert.equal(
          found.some((one) => one.path.includes('cuda_v12')),
          false,
        );
      });
      chmodSync(publicOne, 0);
      await asOrdinaryUser(() =>
        assert.rejects(candidates(directory), (error) => {
          assert.ok(error instanceof VgpuError);
          assert.match(error.message, /cannot examine .*EACCES/);
          assert.match(error.remedy ?? '', /root/);
          return true;
        }),
      );
    } finally {
      for (const one of closed) chmodSync(one, 0o755);
    }
  });
});

describe('profile directories', () => {
  it('fills in the multiarch directory, and leaves it out where there is none', (context) => {
    const on = (osRelease: string, architecture: string) =>
      publicDirectories(
        profile,
        readDistribution(new Root(tree(context, { 'etc/os-release': osRelease })), architecture),
      ).map((one) => one.path);
    assert.equal(on('ID=debian\n', 'aarch64')[0], '/usr/lib/aarch64-linux-gnu');
    assert.equal(on('ID=fedora\n', 'x86_64')[0], '/usr/lib64');
    assert.deepEqual(on('ID=debian\n', 'm68k'), ['/usr/lib64', '/usr/local/lib']);
  });

  it('counts the consumer’s directories that exist', (context) => {
    const root = new Root(
      tree(context, { 'usr/local/lib/ollama': { cuda_v12: {}, cuda_v13: {}, 'libggml.so': '' } }),
    );
    assert.deepEqual(consumerDirectories(root, profile, readDistribution(root, 'x86_64')), [
      '/usr/local/lib/ollama',
      '/usr/local/lib/ollama/cuda_v12',
      '/usr/local/lib/ollama/cuda_v13',
    ]);
  });

  it('counts those that the profile names by this machine’s triplet, which the verdict’s time-out grows with', (context) => {
    const root = new Root(
      tree(context, { [`usr/lib/${triplet}/ggml/backends0`]: { 'libggml-cuda.so': '' } }),
    );
    const llama = loadProfile('llama-server');
    const debian = { ...readDistribution(root, 'x86_64'), multiarch: triplet };
    assert.deepEqual(consumerDirectories(root, llama, debian), [`/usr/lib/${triplet}/ggml/backends0`]);
  });

  it('does not take other libraries for the driver’s', () => {
    assert.equal(libraryOf('libcuda.so.550.163.01'), 'libcuda');
    assert.equal(libraryOf('libnvidia-ml.so'), 'libnvidia-ml');
    for (const name of [
      'libcudart.so.12',
      'libcuda.soup',
      'libcudadebugger.so.1',
      'xlibcuda.so',
      'libcuda.a',
    ]) {
      assert.equal(libraryOf(name), null, name);
    }
  });
});

/** Without root's right to read everything. An ordinary user does not have it in any case. */
async function asOrdinaryUser(action: () => Promise<void>): Promise<void> {
  if (process.geteuid?.() !== 0) return action();
  process.seteuid?.(65534);
  try {
    await action();
  } finally {
    process.seteuid?.(0);
  }
}

/** A Debian root with the driver unpacked and the group that nvidia-alternative's postinst makes. */
function unpackedDriver(context: TestContext, driver: '535' | '550'): string {
  const directory = tree(context, {
    ...debian,
    [`${multiarch}/nvidia`]: {},
    'var/lib/dpkg/alternatives/nvidia': [
      ...['auto', '/usr/lib/nvidia/nvidia'],
      ...['libcuda.so.1', 'libnvidia-ml.so.1'].flatMap((name) => [
        `nvidia--${name}-x86_64-linux-gnu`,
        `${multiarch}/${name}`,
      ]),
      '',
      ...['/usr/lib/nvidia/current', driver],
      ...['libcuda.so.1', 'libnvidia-ml.so.1'].map((name) => `${multiarch}/nvidia/current/${name}`),
      ...['', ''],
    ].join('\n'),
    'etc/alternatives/nvidia': { link: '/usr/lib/nvidia/current' },
    ...Object.fromEntries(
      ['libcuda.so.1', 'libnvidia-ml.so.1'].flatMap((name) => {
        const slave = `nvidia--${name}-x86_64-linux-gnu`;
        return [
          [`etc/alternatives/${slave}`, { link: `${multiarch}/nvidia/current/${name}` }],
          [`${multiarch}/${name}`, { link: `/etc/alternatives/${slave}` }],
        ];
      }),
    ),
  });
  mkdirSync(path.join(directory, 'usr/lib/nvidia/current'), { recursive: true });
  cpSync(
    path.join(packageRoot(), `.cache/roots/driver-${driver}${multiarch}/nvidia/current`),
    path.join(directory, multiarch, 'nvidia/current'),
    { recursive: true, verbatimSymlinks: true },
  );
  return directory;
}
