import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { Root } from '../../../../agent/guest/files/root.js';
import { glob } from '../../../../agent/lib/glob.js';
import { tree } from '../support.js';

describe('root', () => {
  it('resolves absolute and climbing links inside the root', (context) => {
    const root = new Root(
      tree(context, {
        'usr/lib/real.so': 'x',
        'usr/lib/absolute.so': { link: '/usr/lib/real.so' },
        'usr/lib/climbing.so': { link: '../../../../../../usr/lib/real.so' },
        lib: { link: 'usr/lib' },
      }),
    );
    for (const name of ['absolute.so', 'climbing.so']) {
      const resolution = root.resolve(`/lib/${name}`);
      assert.ok(resolution.kind === 'file');
      assert.equal(resolution.realPath, '/usr/lib/real.so');
    }
    assert.equal(root.readFile('/lib/climbing.so', 10)?.toString(), 'x');
    assert.equal(root.canonical('/lib/absolute.so'), '/usr/lib/absolute.so');
  });

  it('names every step of a chain like Debian’s alternatives', (context) => {
    const slave = 'nvidia--libcuda.so.1-x86_64-linux-gnu';
    const directory = '/usr/lib/x86_64-linux-gnu';
    const root = new Root(
      tree(context, {
        [`${directory}/libcuda.so.1`]: { link: `/etc/alternatives/${slave}` },
        [`etc/alternatives/${slave}`]: { link: `${directory}/nvidia/current/libcuda.so.1` },
        [`${directory}/nvidia/current/libcuda.so.1`]: { link: 'libcuda.so.550.163.01' },
        [`${directory}/nvidia/current/libcuda.so.550.163.01`]: 'x',
      }),
    );
    assert.deepEqual(root.resolve(`${directory}/libcuda.so.1`), {
      kind: 'file',
      realPath: `${directory}/nvidia/current/libcuda.so.550.163.01`,
      steps: [
        { path: `${directory}/libcuda.so.1`, target: `/etc/alternatives/${slave}` },
        { path: `/etc/alternatives/${slave}`, target: `${directory}/nvidia/current/libcuda.so.1` },
        { path: `${directory}/nvidia/current/libcuda.so.1`, target: 'libcuda.so.550.163.01' },
      ],
    });
  });

  it('tells dangling, looping, directory and absent apart', (context) => {
    const root = new Root(
      tree(context, {
        dangling: { link: 'gone/away' },
        'deep-dangling': { link: 'dangling' },
        self: { link: 'self' },
        one: { link: 'two' },
        two: { link: 'one' },
        directory: {},
        'to-directory': { link: 'directory' },
        'loop-dir': { link: 'loop-dir' },
        file: '',
      }),
    );
    const kinds = Object.fromEntries(
      ['dangling', 'deep-dangling', 'self', 'one', 'to-directory', 'nothing', 'file/under', 'loop-dir/x'].map(
        (name) => [name, root.resolve(`/${name}`).kind],
      ),
    );
    assert.deepEqual(kinds, {
      dangling: 'dangling',
      'deep-dangling': 'dangling',
      self: 'loop',
      one: 'loop',
      'to-directory': 'directory',
      nothing: 'absent',
      'file/under': 'absent',
      'loop-dir/x': 'loop',
    });
    const resolution = root.resolve('/deep-dangling');
    assert.ok(resolution.kind === 'dangling');
    assert.equal(resolution.missing, '/gone');
    assert.equal(resolution.steps.length, 2);
  });

  it('follows `..` after a link from the target of the link, as the kernel does', (context) => {
    const root = new Root(
      tree(context, {
        'a/b/c': {},
        'a/b/file': 'right',
        short: { link: 'a/b/c' },
        link: { link: 'short/../file' },
        file: 'wrong',
      }),
    );
    assert.equal(root.readFile('/link', 10)?.toString(), 'right');
    assert.equal(root.readFile('/short/../file', 10)?.toString(), 'right');
  });

  it('does not open a FIFO, which would block', (context) => {
    const directory = tree(context);
    spawnSync('mkfifo', [path.join(directory, 'libcuda.so.1')]);
    const root = new Root(directory);
    assert.equal(root.open('/libcuda.so.1'), null);
    assert.equal(root.resolve('/libcuda.so.1').kind, 'file');
  });

  it('does not read more than asked for', (context) => {
    const root = new Root(tree(context, { file: '0123456789' }));
    assert.equal(root.readFile('/file', 9), null);
    assert.equal(root.readFile('/file', 10)?.length, 10);
  });

  it('sees the running system as it is', () => {
    const root = new Root();
    assert.equal(root.isLive, true);
    assert.equal(root.hostPath('/etc/os-release'), '/etc/os-release');
    assert.equal(root.resolve('/proc/self/exe').kind, 'file');
  });
});

describe('glob', () => {
  it('matches as a shell does', (context) => {
    const directory = tree(context, {
      'lib/ollama/cuda_v12/a': '',
      'lib/ollama/cuda_v13/a': '',
      'lib/ollama/vulkan/a': '',
      'lib/ollama/.hidden/a': '',
      'lib/x[1].conf': '',
      'lib/x2.conf': '',
      'lib/dangling': { link: 'nowhere' },
    });
    mkdirSync(path.join(directory, 'lib/ollama/cuda_v12/deep'));
    const root = new Root(directory);
    assert.deepEqual(glob(root, '/lib/ollama/cuda_v*'), ['/lib/ollama/cuda_v12', '/lib/ollama/cuda_v13']);
    assert.deepEqual(glob(root, '/lib/*/*/a'), [
      '/lib/ollama/cuda_v12/a',
      '/lib/ollama/cuda_v13/a',
      '/lib/ollama/vulkan/a',
    ]);
    assert.deepEqual(glob(root, '/lib/ollama/cuda_v1[!2]'), ['/lib/ollama/cuda_v13']);
    assert.deepEqual(glob(root, '/lib/x?.conf'), ['/lib/x2.conf']);
    assert.deepEqual(glob(root, '/lib/x[[]1].conf'), ['/lib/x[1].conf']);
    assert.deepEqual(glob(root, '/lib/dangl*'), ['/lib/dangling']);
    assert.deepEqual(glob(root, '/nothing/*'), []);
    assert.deepEqual(glob(root, '/lib/ollama'), ['/lib/ollama']);
  });
});
