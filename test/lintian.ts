/** Debian's lintian, of the root that scripts/test-roots makes, over packages that scripts/package made. */

import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { testRoot, whyNoRoot } from './guest/support/roots.js';

/** Why it cannot run, or false; for the `skip` option of a test. */
export function whyNoLintian(): string | false {
  return whyNoRoot('package-trixie') || (process.getuid?.() === 0 ? false : 'needs root');
}

/** The output of lintian about the packages in that directory. */
export function lintian(packages: string): SpawnSyncReturns<string> {
  // The packages of tests are not compressed.
  const fast = '--suppress-tags uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball';
  // A private mount namespace and an overlay: the root stays as it is.
  const script = `mount -t tmpfs scratch "$1" && mkdir "$1/upper" "$1/work" "$1/root" &&
    mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root" &&
    mkdir "$1/root/packages" && mount --bind "$3" "$1/root/packages" && mount -t proc proc "$1/root/proc" &&
    exec chroot "$1/root" sh -c 'lintian --allow-root --fail-on error,warning --tag-display-limit 0 ${fast} /packages/*.deb'`;
  const point = mkdtempSync(path.join(tmpdir(), 'vgpu-test-lintian-'));
  const args = ['--mount', '--propagation', 'private', 'bash', '-c', script, 'lint'];
  const ran = spawnSync('unshare', [...args, point, testRoot('package-trixie'), packages], {
    encoding: 'utf8',
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8', SHLVL: '1' },
  });
  rmdirSync(point);
  return ran;
}
