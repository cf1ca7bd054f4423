// Programs of another Debian (scripts/test-roots), run on this machine: in an overlay of that root, in a mount namespace.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Ran, run } from './process.js';
import { testRoot } from './roots.js';

/** The root is not changed. `shared` is bound at its own path, writable; /run is this machine's, for guests. */
export async function runInRoot(
  root: string,
  shared: readonly string[],
  command: readonly [string, ...string[]],
  env: Readonly<Record<string, string>> = {},
): Promise<Ran> {
  const point = mkdtempSync(join(tmpdir(), 'vgpu-test-root-'));
  const script = `set -e
    point=$1 lower=$2 count=$3; shift 3
    mount -t tmpfs scratch "$point"
    mkdir "$point/upper" "$point/work" "$point/root"
    mount -t overlay -o "lowerdir=$lower,upperdir=$point/upper,workdir=$point/work" overlay "$point/root"
    mount --bind /proc "$point/root/proc"
    mount --bind /dev "$point/root/dev"
    mount --rbind /run "$point/root/run"
    mount -t tmpfs scratch "$point/root/tmp"
    for ((; count > 0; count--)); do
      mkdir -p "$point/root$1"
      mount --rbind "$1" "$point/root$1"
      shift
    done
    exec chroot "$point/root" "$@"`;
  try {
    return await run(
      'unshare',
      [
        ...['--mount', '--propagation', 'private', 'env', '-i', 'SHLVL=1', 'HOME=/root', 'LC_ALL=C.UTF-8'],
        'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
        ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
        ...[
          'bash',
          '-c',
          script,
          'root',
          point,
          testRoot(root),
          String(shared.length),
          ...shared,
          ...command,
        ],
      ],
      { timeoutMs: 600_000 },
    );
  } finally {
    rmSync(point, { recursive: true, force: true });
  }
}
