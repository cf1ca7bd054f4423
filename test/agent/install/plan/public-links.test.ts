import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { LibraryCandidate } from '../../../../agent/contracts/facts.js';
import {
  candidate,
  candidates,
  changeAt,
  linkTo,
  multiarch,
  owner,
  plan,
  regular,
  warningCodes,
} from './support.js';

const cuda = `${multiarch}/libcuda.so.1`;
const short = `${multiarch}/libcuda.so`;
const target = '/opt/vgpu/current/libcuda.so.1';

function withCandidates(...given: readonly LibraryCandidate[]): ReturnType<typeof plan> {
  return plan({ candidates: candidates(given) });
}

const dangling = (path: string, to: string): LibraryCandidate =>
  candidate(path, {
    state: linkTo(to),
    resolution: { kind: 'dangling', missing: to, steps: [{ path, target: to }] },
  });

describe('a public link', () => {
  it('is made where the profile wants it and nothing is', () => {
    const change = changeAt(withCandidates(), cuda);
    assert.deepEqual(change?.kind === 'write-link' && [change.target, change.before.kind], [
      target,
      'absent',
    ]);
  });

  it('is not made in a directory where only existing links are repaired', () => {
    assert.equal(changeAt(withCandidates(), '/usr/local/lib/libcuda.so.1'), undefined);
  });

  it('is left alone when it is right, also through its sibling', () => {
    const made = withCandidates(
      candidate(cuda, {
        state: linkTo(target),
        resolution: { kind: 'dangling', missing: target, steps: [] },
      }),
      dangling(short, 'libcuda.so.1'),
    );
    assert.equal(changeAt(made, cuda), undefined);
    assert.equal(changeAt(made, short), undefined);
  });

  it('is not correct through a sibling link that no command will make', () => {
    const made = withCandidates(dangling('/usr/local/lib/libcuda.so', 'libcuda.so.1'));
    assert.match(String(changeAt(made, '/usr/local/lib/libcuda.so')?.reason), /does not exist/);
  });

  it('is repaired on both ends of a loop', () => {
    const loop = (path: string, to: string): LibraryCandidate =>
      candidate(path, { state: linkTo(to), resolution: { kind: 'loop', steps: [] } });
    const made = withCandidates(loop(cuda, 'libcuda.so'), loop(short, 'libcuda.so.1'));
    for (const path of [cuda, short]) assert.match(String(changeAt(made, path)?.reason), /loop/);
  });

  it('no longer points past `current` into one version', () => {
    const path = '/opt/vgpu/versions/0011223344556677/libcuda.so.1';
    const made = withCandidates(
      candidate(cuda, {
        state: linkTo(path),
        resolution: { kind: 'file', realPath: path, steps: [{ path: cuda, target: path }] },
      }),
    );
    assert.match(String(changeAt(made, cuda)?.reason), /past the link that follows upgrades/);
  });

  it('takes the place of a file of no package and of an empty directory', () => {
    const made = withCandidates(
      candidate(cuda, { state: regular(), vendor: 'nvidia' }),
      candidate(short, { state: { kind: 'directory', empty: true, mode: 0o755, ...owner } }),
    );
    assert.match(String(changeAt(made, cuda)?.reason), /NVIDIA.*kept and comes back/);
    assert.match(String(changeAt(made, short)?.reason), /empty directory/);
  });

  it('does not take the place of a package’s file', () => {
    const made = withCandidates(candidate(cuda, { state: regular(), ownerOfPath: 'odd-cuda' }));
    assert.equal(changeAt(made, cuda), undefined);
    assert.deepEqual(warningCodes(made), ['package-owned-file']);
  });

  it('takes over a package’s link, and says that an upgrade may set it back', () => {
    const made = withCandidates({ ...dangling(cuda, '/opt/odd/libcuda.so.1'), ownerOfPath: 'odd-cuda' });
    const change = changeAt(made, cuda);
    assert.equal(change?.kind === 'write-link' && change.ownerPackage, 'odd-cuda');
    assert.deepEqual(warningCodes(made), ['package-owned-link']);
  });

  it('is made again when it was removed, also where the system does not make it', () => {
    const path = '/usr/local/lib/libcuda.so.1';
    const made = plan({
      manifest: {
        schema: 2,
        agent: '',
        consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
        storeId: '',
        endpoint: '',
        items: [{ kind: 'link', path, target, before: linkTo('/gone'), backup: 'x' }],
      },
    });
    assert.match(String(changeAt(made, path)?.reason), /removed since/);
  });

  it('goes through a version that ldconfig prefers, where ldconfig sets it', () => {
    const real = `${multiarch}/libcuda.so.550.54.14`;
    const made = withCandidates(
      candidate(cuda, {
        state: linkTo('libcuda.so.550.54.14'),
        resolution: { kind: 'file', realPath: real, steps: [{ path: cuda, target: 'libcuda.so.550.54.14' }] },
        vendor: 'nvidia',
        ownerOfPath: 'libnvidia-compute-550',
      }),
    );
    const [highest, link] = [changeAt(made, `${multiarch}/libcuda.so.99999.0`), changeAt(made, cuda)];
    assert.equal(highest?.kind === 'write-link' && highest.target, target);
    assert.equal(link?.kind === 'write-link' && link.target, 'libcuda.so.99999.0');
    assert.deepEqual(warningCodes(made), []);
  });
});
