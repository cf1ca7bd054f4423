// scripts/setup and scripts/demo from a bare root, which takes minutes each: with VGPU_TEST_LONG=1.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { whyNoGuest } from './support/guest.js';
import { run } from './support/process.js';
import { repository } from './support/repository.js';
import { nodeVersions, releases, testNode, testRoot, whyNoNode, whyNoRoot } from './support/roots.js';

const long = process.env['VGPU_TEST_LONG'] === '1' ? false : 'takes minutes: VGPU_TEST_LONG=1';

describe('from a bare root to a verdict', { skip: long || whyNoGuest() }, () => {
  for (const release of releases) {
    // Without a Node of ours: the release's own, or the one that setup fetches.
    for (const node of [null, ...nodeVersions]) {
      test(`${release} with ${node === null ? 'what setup finds' : `Node ${node}`}`, {
        skip: whyNoRoot(`bare-${release}`) || (node !== null && whyNoNode(node)),
      }, async (t) => {
        const args = [testRoot(`bare-${release}`), ...(node === null ? [] : [testNode(node)])];
        const ran = await run(join(repository, 'scripts/lib/bare-run'), args, { timeoutMs: 1_800_000 });
        t.diagnostic(ran.stdout.trim().split('\n').at(-1) ?? '');
        assert.equal(ran.code, 0, ran.stdout + ran.stderr);
        assert.match(ran.stderr, /installing \d+ packages, [\d.]+ MB to download, [\d.]+ [MG]B on disk/);
        assert.match(ran.stdout, /What stays: (no package was installed|\d+ Debian packages)/);
        assert.doesNotMatch(ran.stderr, /systemd-journald could not be compiled/);
      });
    }
  }
});
