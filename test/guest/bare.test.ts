// scripts/setup and scripts/demo from a bare root, which takes minutes each: with VGPU_TEST_LONG=1.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { aboveFloor, floors } from '../shim/support/glibc_floor.js';
import { whyNoGuest } from './support/guest.js';
import { run } from './support/process.js';
import { repository } from './support/repository.js';
import { nodeVersions, releases, testNode, testRoot, whyNoNode, whyNoRoot } from './support/roots.js';

const long = process.env['VGPU_TEST_LONG'] === '1' ? false : 'takes minutes: VGPU_TEST_LONG=1';

/** Megabytes: what `scripts/setup && demo` may add to a bare root, wherever. */
const mayGrow = 700;

/** The last line of bare-run: its result, and how many megabytes the root grew. */
async function bareRun(
  t: TestContext,
  ...args: readonly string[]
): Promise<{ grew: number; stderr: string }> {
  const ran = await run(join(repository, 'scripts/lib/bare-run'), args, { timeoutMs: 1_800_000 });
  const last = ran.stdout.trim().split('\n').at(-1) ?? '';
  t.diagnostic(last);
  assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  assert.match(ran.stderr, /installing \d+ packages, [\d.]+ MB to download, [\d.]+ [MG]B on disk/);
  assert.match(ran.stdout, /What stays: no package was installed/);
  assert.doesNotMatch(ran.stderr, /systemd-journald could not be compiled/);
  const [, before, after, downloads] =
    /grew from (\d+) to (\d+) MB \(of which downloads (\d+) MB\)/.exec(last) ?? [];
  // apt's lists and tables, npm's cache: there were none, so none stays. (An offline run is given a cache of npm's.)
  if (!args.includes('--offline')) assert.ok(Number(downloads) <= 3, last);
  return { grew: Number(after) - Number(before), stderr: ran.stderr };
}

describe('from a bare root to a verdict', { skip: long || whyNoGuest() }, () => {
  for (const release of releases) {
    // Without a Node given to it: the release's own, or the one that setup fetches.
    for (const node of [null, ...nodeVersions]) {
      test(`${release} with ${node === null ? 'what setup finds' : `Node ${node}`}`, {
        skip: whyNoRoot(`bare-${release}`) || (node !== null && whyNoNode(node)),
      }, async (t) => {
        const shim = mkdtempSync(join(tmpdir(), 'vgpu-bare-'));
        t.after(() => rmSync(shim, { recursive: true }));
        const { grew } = await bareRun(
          t,
          ...['--shim', shim, testRoot(`bare-${release}`)],
          ...(node === null ? [] : [testNode(node)]),
        );
        assert.ok(grew < mayGrow, `the root grew by ${grew} MB`);
        // Whichever system builds them, an older one runs them.
        for (const [file, floor] of Object.entries(floors))
          assert.deepEqual(aboveFloor(join(shim, file), floor), [], file);
      });
    }
  }

  test('behind a proxy that signs with an authority of its own, and no other way out', {
    skip: whyNoRoot('bare-bookworm'),
  }, async (t) => {
    await bareRun(t, '--proxy', testRoot('bare-bookworm'));
  });

  test('the demo fetches a real consumer, and what that needs', {
    skip: whyNoRoot('bare-trixie'),
  }, async (t) => {
    const ran = await run(join(repository, 'scripts/lib/bare-run'), ['--fetch', testRoot('bare-trixie')], {
      timeoutMs: 1_800_000,
    });
    t.diagnostic(ran.stdout.trim().split('\n').at(-1) ?? '');
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
    assert.match(ran.stderr, /installing \d+ packages.* mmdebstrap/);
    assert.match(ran.stdout, /consumer {2}a real llama-server, Debian sid's/);
  });

  test('again without a network, with what the first run left', {
    skip: whyNoRoot('bare-trixie'),
  }, async (t) => {
    const { stderr } = await bareRun(t, '--offline', testRoot('bare-trixie'));
    assert.match(stderr, /again, without a network[\s\S]*as package-lock\.json says \([\d.]+ s\)/);
  });
});
