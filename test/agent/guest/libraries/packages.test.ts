import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { Root } from '../../../../agent/guest/files/root.js';
import { packageOwners } from '../../../../agent/guest/libraries/packages.js';
import { type CommandRunner, spawnRunner } from '../../../../agent/lib/run-command.js';
import { tree } from '../support.js';

/** Answers with recorded output; fails on anything unexpected. */
function recorded(answers: Readonly<Record<string, string>>): CommandRunner {
  return {
    run: async (file, args) => {
      const stdout = answers[[file, ...args].join(' ')];
      if (stdout === undefined) throw new Error(`unexpected: ${file} ${args.join(' ')}`);
      return { code: 1, signal: null, stdout: Buffer.from(stdout), stderr: Buffer.alloc(0), timedOut: false };
    },
  };
}
const nobody = recorded({});

describe('packages', () => {
  const noDpkg = spawnSync('dpkg-query', ['--version']).status !== 0 && 'there is no dpkg here';
  it('names the owners that dpkg-query names on this system', { skip: noDpkg }, async () => {
    const libc = '/lib/x86_64-linux-gnu/libc.so.6';
    const files = [libc, '/usr/bin/dpkg', '/usr/bin/env', '/nonexistent/libcuda.so.1'];
    const owners = await packageOwners(new Root(), spawnRunner(), 'debian', [...files, `/usr${libc}`]);
    const told = spawnSync('dpkg-query', ['-S', ...files], { encoding: 'utf8' }).stdout;
    const expected = new Map(
      [...told.matchAll(/^(\S+): (.+)$/gm)].map((match) => [match[2] ?? '', match[1] ?? '']),
    );
    // Under either name of a merged directory it is the same file.
    const libcOwner = expected.get(libc);
    if (libcOwner !== undefined) expected.set(`/usr${libc}`, libcOwner);
    assert.ok(expected.size >= 3);
    assert.deepEqual(new Map([...owners].toSorted()), new Map([...expected].toSorted()));
  });

  it('reads dpkg-query’s answers: architectures, several owners, diversions, names of before merged /usr', async () => {
    const merged = {
      isLive: true,
      stat: () => ({ mtimeNs: 1n }),
      canonical: (file: string) => file.replace(/^\/lib\//, '/usr/lib/'),
    } as unknown as Root;
    const runner = recorded({
      'dpkg-query -S -- /usr/lib/x/libcuda.so.1 /lib/x/libcuda.so.1 /a\\[b\\]': [
        'diversion by glx-diversions from: /usr/lib/x/libcuda.so.1',
        'libcuda1:amd64, other: /lib/x/libcuda.so.1',
        'odd: /a[b]\n',
      ].join('\n'),
    });
    assert.deepEqual(
      [...(await packageOwners(merged, runner, 'debian', ['/usr/lib/x/libcuda.so.1', '/a[b]']))],
      [
        ['/usr/lib/x/libcuda.so.1', 'libcuda1:amd64'],
        ['/a[b]', 'odd'],
      ],
    );
  });

  it('asks no package manager of this system about another root', async (context) => {
    const owners = await packageOwners(new Root(tree(context)), nobody, 'redhat', [
      '/usr/lib64/libcuda.so.1',
    ]);
    assert.equal(owners.size, 0);
  });

  // rpm and pacman do not run on Debian: their documented output, as recorded on Fedora 40 and Arch.
  const live = { isLive: true, stat: () => null, canonical: (file: string) => file } as unknown as Root;
  it('reads rpm’s answers: the first of two owners', async () => {
    const ask = 'rpm -qf --queryformat %{NAME}\\n -- ';
    const runner = recorded({
      [`${ask}/a`]: 'nvidia-driver-cuda-libs\n',
      [`${ask}/b`]: 'file /b is not owned by any package\n',
      [`${ask}/c`]: 'one\ntwo\n',
    });
    assert.deepEqual(
      [...(await packageOwners(live, runner, 'redhat', ['/a', '/b', '/c']))],
      [
        ['/a', 'nvidia-driver-cuda-libs'],
        ['/c', 'one'],
      ],
    );
  });

  it('reads pacman’s answers', async () => {
    const runner = recorded({
      'pacman -Qoq -- /usr/lib/libcuda.so.1': 'nvidia-utils\n',
      'pacman -Qoq -- /x': '',
    });
    assert.deepEqual(
      [...(await packageOwners(live, runner, 'arch', ['/usr/lib/libcuda.so.1', '/x']))],
      [['/usr/lib/libcuda.so.1', 'nvidia-utils']],
    );
  });
});
